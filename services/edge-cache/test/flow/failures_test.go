//go:build system

package flow

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/services/edge-cache/internal/config"
)

// failure is a way in which the API server fails while a cache runs.
type failure struct {
	begin, end func()
}

// survives goes through a failure. The watch stays open and silent, lists are answered, and afterwards the watch gets exactly the
// difference.
func (e *edge) survives(t *testing.T, f failure) {
	t.Helper()
	for i := range 3 {
		e.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1"))
	}
	e.ready()
	informer := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, informer)
	e.converges(informer)
	events := follow(t, e.rest())
	f.begin()
	e.change(t)
	for range 30 {
		got := ask(t, e.rest(), slicesPath, values(), "")
		require.Equal(t, http.StatusOK, got.code, "%s", got.body)
		assert.Len(t, got.Items, 4)
		time.Sleep(200 * time.Millisecond)
	}
	silentFor(t, events, 10*time.Millisecond)
	f.end()
	got := map[string]string{}
	for range 3 {
		ev := next(t, events)
		got[ev.Object.Metadata.Name] = ev.Type
	}
	assert.Equal(t, map[string]string{"new": "ADDED", "a-0": "MODIFIED", "a-1": "DELETED"}, got)
	silentFor(t, events, 300*time.Millisecond)
	e.converges(informer)
}

// change creates, changes and deletes a slice.
func (w *world) change(t *testing.T) {
	t.Helper()
	slices := w.direct.DiscoveryV1().EndpointSlices("default")
	w.createSlice(slice("default", "a", "new", "in-1"))
	live, err := slices.Get(t.Context(), "a-0", metav1.GetOptions{})
	require.NoError(t, err)
	live.Endpoints = nil
	_, err = slices.Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, slices.Delete(t.Context(), "a-1", metav1.DeleteOptions{}))
}

// TestErrorsOfTheAPIServer answers everything with an error for some time.
func TestErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, code := range []int{
		http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusGatewayTimeout, http.StatusUnauthorized,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.node("in-1", "edge")
			l := w.liar()
			l.all.Store(true)
			e := w.edge("edge", l.configure)
			e.survives(t, failure{
				begin: func() {
					l.tell(func(out http.ResponseWriter, _ *http.Request) {
						if code == http.StatusTooManyRequests {
							out.Header().Set("Retry-After", "2")
						}
						http.Error(out, "not now", code)
					})
				},
				end: func() {
					want := []int{http.StatusServiceUnavailable}
					if code != http.StatusUnauthorized { // that would be about the token of the controller
						want = append(want, code)
					}
					assert.Contains(t, want, e.write(t))
					l.tell(nil)
				},
			})
		})
	}
}

// TestLinkThatBreaksInTheMiddle cuts the link after some bytes of the first sync, and of the events of a running cache. There is never a
// part of a list.
func TestLinkThatBreaksInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	for i := range 200 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1", "in-1", "in-1"))
	}
	whole := len(w.oracle("edge"))
	e := w.edge("edge")
	for _, bytes := range []int64{1, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 14000} {
		e.stop()
		require.NoError(t, os.RemoveAll(filepath.Join(e.cfg.Data.Dir, "journal"))) // the credentials stay
		w.network.cutAfter(bytes)
		e.start()
		require.Eventually(t, func() bool {
			got, err := tryAsk(e.rest(), slicesPath)
			return err == nil && (w.network.is(linkCut) || got.code == http.StatusOK)
		}, kubetest.Patience, tick, "nothing was sent")
		got := ask(t, e.rest(), slicesPath, values(), "")
		if got.code != http.StatusServiceUnavailable {
			require.Equal(t, http.StatusOK, got.code)
			assert.Len(t, got.Items, whole, "after %d bytes", bytes)
		}
	}
	w.network.set(linkUp)
	e.ready()
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
	tail := e.follow(t)
	for n := range 12 {
		w.network.cutAfter(int64(400 + 173*n)) // within the frames of the events below
		for m := range 4 {
			live, err := w.direct.DiscoveryV1().EndpointSlices("default").Get(t.Context(), fmt.Sprint("a-", 4*n+m), metav1.GetOptions{})
			require.NoError(t, err)
			live.Endpoints = live.Endpoints[:n%3]
			_, err = w.direct.DiscoveryV1().EndpointSlices("default").Update(t.Context(), live, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { return w.network.is(linkCut) }, kubetest.Patience, tick, "nothing was sent")
		w.network.set(linkUp)
	}
	e.converges(i)
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, e.oracle("edge"), tail.state()) }, kubetest.Patience, tick)
	assert.Empty(t, tail.problems())
}

// TestTokenThatRanOut ends an outage with a token that nobody could replace meanwhile. What is stored is served until the next one comes,
// and watches stay open.
func TestTokenThatRanOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	_, err := w.cluster.Kubectl(t.Context(), "create", "clusterrolebinding", "edge", "--clusterrole=cluster-admin",
		"--serviceaccount=default:default")
	require.NoError(t, err)
	dir := t.TempDir()
	token, ca, valid := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt"), []byte(w.token())
	require.NoError(t, os.WriteFile(token, valid, 0o600))
	require.NoError(t, os.WriteFile(ca, authority(t, w), 0o600))
	e := w.edge("edge", func(c *config.Config) {
		c.Upstream = config.Upstream{Server: "https://" + w.network.address(), CAFile: ca, TokenFile: token}
	})
	e.survives(t, failure{
		begin: func() {
			w.network.set(linkCut)
			require.NoError(t, os.WriteFile(token, []byte("ran out"), 0o600))
			time.Sleep(time.Second)
			w.network.set(linkUp)
		},
		end: func() { require.NoError(t, os.WriteFile(token, valid, 0o600)) },
	})
}

// front is a server with a certificate of its own before the API server, which can be replaced.
type front struct {
	server      *httptest.Server
	certificate atomic.Pointer[tls.Certificate]
	authority   []byte
	issue       func(until time.Time) *tls.Certificate
}

func (w *world) front(t *testing.T) *front {
	t.Helper()
	target, err := url.Parse(w.cluster.RESTConfig().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(w.cluster.RESTConfig())
	require.NoError(t, err)
	f := &front{}
	f.authority, f.issue = newAuthority(t)
	f.certificate.Store(f.issue(time.Now().Add(time.Hour)))
	f.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") }, Transport: transport,
		FlushInterval: -1,
	})
	f.server.TLS = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.certificate.Load(), nil },
	}
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	f.server.TLS.Certificates = nil
	t.Cleanup(func() { f.server.CloseClientConnections(); f.server.Close() })
	return f
}

func (f *front) use(c *tls.Certificate) {
	f.certificate.Store(c)
	f.server.CloseClientConnections()
}

// newAuthority returns an authority in PEM, and a function that issues certificates for 127.0.0.1.
func newAuthority(t *testing.T) (authority []byte, issue func(until time.Time) *tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	require.NoError(t, err)
	serial := int64(1)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), func(until time.Time) *tls.Certificate {
		serial++
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, key)
		require.NoError(t, err)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
}

// TestCertificateThatRanOut replaces the certificate of the API server by one that ran out, and then by a valid one.
func TestCertificateThatRanOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	f := w.front(t)
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(token, []byte("t"), 0o600))
	require.NoError(t, os.WriteFile(ca, f.authority, 0o600))
	e := w.edge("edge", func(c *config.Config) {
		c.Upstream = config.Upstream{Server: "https://" + f.server.Listener.Addr().String(), CAFile: ca, TokenFile: token}
	})
	e.survives(t, failure{
		begin: func() { f.use(f.issue(time.Now().Add(-time.Hour))) },
		end:   func() { f.use(f.issue(time.Now().Add(time.Hour))) },
	})
}

// TestNameThatCannotBeResolved runs a cache whose API server has a name, and takes the name away.
func TestNameThatCannotBeResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	_, err := w.cluster.Kubectl(t.Context(), "create", "clusterrolebinding", "edge", "--clusterrole=cluster-admin",
		"--serviceaccount=default:default")
	require.NoError(t, err)
	p := w.process("edge")
	token, ca := filepath.Join(p.dir, "token"), filepath.Join(p.dir, "ca.crt")
	require.NoError(t, os.WriteFile(token, []byte(w.token()), 0o600))
	require.NoError(t, os.WriteFile(ca, authority(t, w), 0o600))
	_, port, err := net.SplitHostPort(p.network.address())
	require.NoError(t, err)
	p.cfg.Upstream = config.Upstream{Server: "https://kubernetes.default.svc:" + port, CAFile: ca, TokenFile: token}
	p.hosts = filepath.Join(p.dir, "hosts")
	known := []byte("127.0.0.1 localhost kubernetes.default.svc\n")
	require.NoError(t, os.WriteFile(p.hosts, known, 0o600))
	p.start()
	p.survives(t, failure{
		begin: func() {
			require.NoError(t, os.WriteFile(p.hosts, []byte("127.0.0.1 localhost\n"), 0o600))
			time.Sleep(6 * time.Second) // the resolver reads the file again after 5 s
			p.network.set(linkCut)
			p.network.set(linkUp)
		},
		end: func() { require.NoError(t, os.WriteFile(p.hosts, known, 0o600)) },
	})
}

// TestCompactedHistory compacts etcd while the cache is cut off, so that the API server no longer has the changes in between. The
// watch gets an error event.
func TestCompactedHistory(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, func(c *clusterapi.Config) {
		c.Args = map[string][]string{clusterapi.APIServer: {"--etcd-compaction-interval=1s"}}
	})
	w.node("in-1", "edge")
	for i := range 10 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1"))
	}
	e := w.edge("edge").ready()
	informer := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, informer)
	e.converges(informer)
	services := e.serviceInformer(t)
	synced(t, services)
	events := follow(t, e.rest())
	old := ask(t, w.cluster.RESTConfig(), slicesPath, values(), "").Metadata.ResourceVersion
	w.network.set(linkCut)
	e.change(t)
	for i := range 5 {
		require.NoError(t,
			w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), fmt.Sprint("a-", 5+i), metav1.DeleteOptions{}))
	}
	w.awaitCompaction(old)
	w.network.set(linkUp)
	got := map[string]string{}
	for range 8 {
		ev := next(t, events)
		require.NotEqual(t, "ERROR", ev.Type, "%+v", ev)
		got[ev.Object.Metadata.Name] = ev.Type
	}
	assert.Equal(t, map[string]string{
		"new": "ADDED", "a-0": "MODIFIED", "a-1": "DELETED", "a-5": "DELETED", "a-6": "DELETED", "a-7": "DELETED", "a-8": "DELETED",
		"a-9": "DELETED",
	}, got, "no ghost, and nothing twice")
	silentFor(t, events, 300*time.Millisecond)
	e.converges(informer)
}

// awaitCompaction restarts the API server, so that it forgets its own copy of the history, and waits until etcd has forgotten a version.
func (w *world) awaitCompaction(rv string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		// etcd compacts what is older than a change
		_, err := w.direct.CoreV1().Nodes().Patch(w.t.Context(), "in-1", "application/merge-patch+json",
			[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"time":"%d"}}}`, time.Now().UnixNano())), metav1.PatchOptions{})
		require.NoError(c, err)
		got, err := tryGet(w.cluster.RESTConfig(), slicesPath+"?resourceVersionMatch=Exact&resourceVersion="+rv)
		require.NoError(c, err)
		require.Equal(c, http.StatusGone, got)
	}, kubetest.Patience, 200*time.Millisecond, "etcd was not compacted")
	require.NoError(w.t, w.cluster.Component(w.t.Context(), clusterapi.APIServer, clusterapi.ActionKill))
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		got, err := tryGet(w.cluster.RESTConfig(), "/readyz") // it serves lists before, and watches not yet
		require.NoError(c, err)
		require.Equal(c, http.StatusOK, got)
	}, kubetest.Patience, 100*time.Millisecond)
	first := next(w.t, stream(w.t, w.cluster.RESTConfig(), slicesPath, values("resourceVersion", rv)))
	require.Equal(w.t, "ERROR", first.Type, "the API server must refuse a watch from there")
	require.Equal(w.t, http.StatusGone, first.Object.Code)
}

// tryGet returns the status of an answer.
func tryGet(c *rest.Config, path string) (int, error) {
	got, err := tryAsk(c, path)
	return got.code, err
}

// TestAPIServerThatIsNotReady answers everything, and calls itself not ready: an unhealthy etcd or KMS (kubernetes#119535), or a server
// without that path. Writes and discovery pass.
func TestAPIServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusInternalServerError, http.StatusNotFound, http.StatusTooManyRequests} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.node("in-1", "edge")
			l := w.liar()
			l.all.Store(true)
			var probes atomic.Int32
			l.tell(func(out http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					probes.Add(1)
					http.Error(out, "[-]etcd failed", code)
					return
				}
				l.proxy.ServeHTTP(out, r)
			})
			e := w.edge("edge", l.configure).ready()
			require.Eventually(t, func() bool { return probes.Load() >= 3 }, kubetest.Patience, tick)
			assert.Equal(t, 1.0, e.metric("fairlead_edgecache_upstream_online"))
			assert.Equal(t, http.StatusBadRequest, e.write(t), "the API server says that the patch is empty")
			assert.Equal(t, http.StatusOK, ask(t, e.rest(), "/apis/events.k8s.io/v1", values(), "").code)
		})
	}
}
