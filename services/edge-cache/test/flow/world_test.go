//go:build system || long

// Package flow tests the cache as a whole: real client-go informers, a real API server, the cache between them, and a network that fails.
package flow

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/services/edge-cache/internal/app"
	"fairlead.dev/services/edge-cache/internal/config"
)

const (
	poolKey = "apps.openyurt.io/nodepool"
	tick    = 20 * time.Millisecond
)

// detector makes informers compare what a watch-list gave them with a list. client-go reads it once, at its start.
const detector = "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR"

func TestMain(m *testing.M) {
	if file := os.Getenv(processConfig); file != "" {
		os.Exit(runProcess(file))
	}
	if os.Getenv(detector) == "" {
		if self, err := os.Executable(); err == nil {
			_ = syscall.Exec(self, os.Args, append(os.Environ(), detector+"=true"))
		}
	}
	os.Exit(cluster.Suite{M: m, Stock: shared, Parallel: 10}.Run())
}

// world is an API server, a network, and what they hold.
type world struct {
	t       *testing.T
	cluster *cluster.Cluster
	direct  kubernetes.Interface
	network *network
}

// newWorld returns a world of a shared API server. No other test uses it at the same time.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, shared.BorrowCluster(t))
}

// newOwnWorld returns a world of an API server that no other test uses: for tests that stop or restore it, or that need settings of it.
func newOwnWorld(t *testing.T, configure ...func(*clusterapi.Config)) *world {
	t.Helper()
	return newWorldOf(t, cluster.Start(t, append([]func(*clusterapi.Config){cluster.ControlPlaneOnly}, configure...)...))
}

func newWorldOf(t *testing.T, c *cluster.Cluster) *world {
	t.Helper()
	w := &world{t: t, cluster: c, direct: c.Clientset()}
	w.network = newNetwork(t, strings.TrimPrefix(c.RESTConfig().Host, "https://"))
	return w
}

// node makes a Node of a pool; "" is none.
func (w *world) node(name, pool string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if pool != "" {
		n.Labels = map[string]string{poolKey: pool}
	}
	_, err := w.direct.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// label changes the pool of a Node.
func (w *world) label(node, pool string) {
	w.t.Helper()
	value := `"` + pool + `"`
	if pool == "" {
		value = "null"
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, poolKey, value)
	_, err := w.direct.CoreV1().Nodes().Patch(w.t.Context(), node, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// slice returns an EndpointSlice with one endpoint per node; "" is an endpoint without a node.
func slice(namespace, service, name string, nodes ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: pointer("http"), Port: pointer(int32(8080)), Protocol: pointer(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for i, node := range nodes {
		e := discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: pointer(true)},
		}
		if node != "" {
			e.NodeName = pointer(node)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func pointer[T any](v T) *T { return &v }

func (w *world) createSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	w.t.Helper()
	made, err := w.direct.DiscoveryV1().EndpointSlices(s.Namespace).Create(w.t.Context(), s, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return made
}

// edge is a running cache, and the folder that outlives it.
type edge struct {
	*world

	dir     string
	cfg     *config.Config
	clients *http.Transport
	log     *zap.Logger // nil: none, unless FAIRLEAD_TEST_LOG is set
	cancel  context.CancelFunc
	stopped chan error
}

// edge starts a cache for a pool. It connects through the network.
func (w *world) edge(pool string, configure ...func(*config.Config)) *edge {
	w.t.Helper()
	e := w.prepare(pool, configure...)
	w.t.Cleanup(e.stop)
	e.start()
	return e
}

// prepare makes the folder and the configuration of a cache.
func (w *world) prepare(pool string, configure ...func(*config.Config)) *edge {
	w.t.Helper()
	e := &edge{world: w, dir: w.t.TempDir()}
	e.clients = &http.Transport{DialTLSContext: e.dial, ForceAttemptHTTP2: true}
	w.t.Cleanup(e.clients.CloseIdleConnections)
	cfg := config.Default()
	cfg.Pool.Name = pool
	cfg.Client.Address, cfg.HTTP.HealthAddress, cfg.HTTP.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.AddressFile = filepath.Join(e.dir, "addresses")
	cfg.Client.CredentialsDir = filepath.Join(e.dir, "credentials")
	cfg.Client.NamespaceFile = filepath.Join(e.dir, "namespace")
	cfg.Upstream.Kubeconfig = filepath.Join(e.dir, "kubeconfig")
	cfg.Data.Dir = filepath.Join(e.dir, "data")
	require.NoError(w.t, os.WriteFile(cfg.Client.NamespaceFile, []byte("ingress\n"), 0o600))
	w.writeKubeconfig(cfg.Upstream.Kubeconfig, w.cluster.RESTConfig())
	for _, f := range configure {
		f(cfg)
	}
	require.NoError(w.t, cfg.Validate())
	e.cfg = cfg
	return e
}

// writeKubeconfig writes a kubeconfig whose server is the network.
func (w *world) writeKubeconfig(path string, c *rest.Config) {
	w.t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{
		Server: "https://" + w.network.address(), CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile,
	}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, ClientCertificate: c.CertFile,
		ClientKey: c.KeyFile,
	}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	require.NoError(w.t, clientcmd.WriteToFile(*k, path))
}

func (e *edge) start() {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.stopped = cancel, make(chan error, 1)
	log := zaptest.NewLogger(e.t, zaptest.Level(zap.DebugLevel), zaptest.WrapOptions(zap.AddCaller()))
	if os.Getenv("FAIRLEAD_TEST_LOG") == "" {
		log = zap.NewNop()
		if e.log != nil {
			log = e.log
		}
	}
	go func() { e.stopped <- app.Run(ctx, e.cfg, log) }()
}

func (e *edge) stop() {
	if e.cancel == nil {
		return
	}
	e.cancel()
	if err := <-e.stopped; err != nil {
		e.t.Errorf("edge-cache: %v", err)
	}
	e.cancel = nil
	e.forget()
}

// address returns where the cache listens now; "" while it does not.
func (e *edge) address(listener string) string {
	addresses, _ := addressfile.Read(e.cfg.AddressFile) // there is no file while it does not listen
	return addresses[listener]
}

// forget removes the addresses of a cache that has ended.
func (e *edge) forget() { _ = os.Remove(e.cfg.AddressFile) }

func (e *edge) restart() {
	e.t.Helper()
	e.stop()
	e.start()
}

// ready waits until the cache serves.
func (e *edge) ready() *edge {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		c, err := kubernetes.NewForConfig(e.rest())
		if err != nil {
			return false
		}
		_, err = c.DiscoveryV1().EndpointSlices("").List(e.t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		return err == nil
	}, kubetest.Patience, tick, "the cache does not serve")
	return e
}

// online waits until the API server has answered a probe. Until then, lists of the newest state are not confirmed.
func (e *edge) online() *edge {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.metric("fairlead_edgecache_upstream_online") == 1 }, kubetest.Patience, tick)
	return e
}

// dial connects to the cache where it listens now, with the files that it wrote.
func (e *edge) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return e.dialFor(ctx, network, "h2", "http/1.1")
}

// dialFor is dial for some protocols.
func (e *edge) dialFor(ctx context.Context, network string, protocols ...string) (net.Conn, error) {
	address := e.address("client")
	if address == "" {
		return nil, errors.New("the cache does not listen")
	}
	authority, err := os.ReadFile(filepath.Join(e.cfg.Client.CredentialsDir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, ServerName: "127.0.0.1", NextProtos: protocols}}
	return d.DialContext(ctx, network, address)
}

// rest returns the configuration of the controller: that of a pod, with the files that the cache wrote. A restarted cache listens
// elsewhere, and the clients follow.
func (e *edge) rest() *rest.Config {
	token, _ := os.ReadFile(filepath.Join(e.cfg.Client.CredentialsDir, "token"))
	return &rest.Config{Host: "https://127.0.0.1", BearerToken: string(token), QPS: -1, Transport: e.clients}
}

func (e *edge) client() kubernetes.Interface {
	e.t.Helper()
	c, err := kubernetes.NewForConfig(e.rest())
	require.NoError(e.t, err)
	return c
}

// protocolWorld has a pool, and slices in two namespaces.
func protocolWorld(t *testing.T) (*world, *edge) {
	t.Helper()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("out-1", "other")
	w.namespace("team")
	for i := range 3 {
		w.createSlice(slice("default", "a", fmt.Sprintf("a-%d", i), "in-1", "out-1"))
	}
	w.createSlice(slice("team", "b", "b-0", "in-1"))
	return w, w.edge("edge").ready()
}

// namespace makes a namespace. It stays: nothing here could delete it.
func (w *world) namespace(name string) {
	w.t.Helper()
	_, err := w.direct.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) { // an earlier test of the API server left it
		require.NoError(w.t, err)
	}
}
