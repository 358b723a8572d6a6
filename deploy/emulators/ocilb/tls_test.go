package ocilb_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// addCertificate creates a certificate by the API.
func (w *world) addCertificate(t *testing.T, d loadbalancer.CreateCertificateDetails) {
	t.Helper()
	created, err := w.Client.CreateCertificate(t.Context(), loadbalancer.CreateCertificateRequest{LoadBalancerId: common.String(id), CreateCertificateDetails: d})
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, w.Service, created.OpcWorkRequestId).LifecycleState)
}

// addListener creates a listener by the API, at port 443 and with default set chat unless it says something else.
func (w *world) addListener(t *testing.T, d loadbalancer.CreateListenerDetails) {
	t.Helper()
	if d.DefaultBackendSetName == nil {
		d.DefaultBackendSetName = common.String("chat")
	}
	if d.Port == nil {
		d.Port = common.Int(443)
	}
	if d.Protocol == nil {
		d.Protocol = common.String("HTTP")
	}
	created, err := w.Client.CreateListener(t.Context(), loadbalancer.CreateListenerRequest{LoadBalancerId: common.String(id), CreateListenerDetails: d})
	require.NoError(t, err)
	work := await(t, w.Service, created.OpcWorkRequestId)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, work.LifecycleState, "%v", work.ErrorDetails)
}

// askTLS sends a request to port 443, and returns the response with its body.
func (w *world) askTLS(t *testing.T, config *tls.Config) (response *http.Response, body string, err error) {
	t.Helper()
	transport := &http.Transport{DialContext: w.network.Dial, TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+ocilbtest.Address+"/", http.NoBody)
	require.NoError(t, err)
	if config.ServerName != "" {
		r.Host = config.ServerName
	}
	response, err = transport.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(text), nil
}

func TestListenersTerminateTLS(t *testing.T) {
	t.Parallel()
	const http2Suite = "oci-default-http2-tls-12-13-ssl-cipher-suite-v1"
	tests := []struct {
		name, protocol string
		ssl            loadbalancer.SslConfigurationDetails
		highest        uint16 // version of the client
		want           string // protocol of HTTP
		version        uint16
		refusal        string
	}{
		{name: "the default is TLS 1.2", protocol: "HTTP", want: "HTTP/1.1", version: tls.VersionTLS12},
		{name: "TLS 1.3", protocol: "HTTP", ssl: loadbalancer.SslConfigurationDetails{Protocols: []string{"TLSv1.2", "TLSv1.3"}}, want: "HTTP/1.1", version: tls.VersionTLS13},
		{name: "an old client", protocol: "HTTP", ssl: loadbalancer.SslConfigurationDetails{Protocols: []string{"TLSv1.3"}}, highest: tls.VersionTLS12, refusal: "protocol version"},
		{name: "HTTP/2", protocol: "HTTP2", ssl: loadbalancer.SslConfigurationDetails{CipherSuiteName: common.String(http2Suite)}, want: "HTTP/2.0", version: tls.VersionTLS12},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				authority := ocilbtest.NewAuthority(t)
				public, private := authority.Issue(t, ocilbtest.Address)
				w.addCertificate(t, loadbalancer.CreateCertificateDetails{CertificateName: common.String("site"), PublicCertificate: &public, PrivateKey: &private})
				w.serve(t, 1)
				w.set(t, "chat", backend(1))
				tt.ssl.CertificateName = common.String("site")
				w.addListener(t, loadbalancer.CreateListenerDetails{Name: common.String("secure"), Protocol: &tt.protocol, SslConfiguration: &tt.ssl})
				time.Sleep(time.Minute)
				response, body, err := w.askTLS(t, &tls.Config{RootCAs: authority.Pool(), MaxVersion: tt.highest})
				if tt.refusal != "" {
					require.ErrorContains(t, err, tt.refusal)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, "1", body)
				assert.Equal(t, tt.want, response.Proto)
				assert.Equal(t, tt.version, response.TLS.Version)
				assert.Equal(t, map[string]int{"1": 1}, w.answers(t, 1), "the other port has no TLS")
			})
		})
	}
}

// The certificates of Oracle's certificates service are unknown: the listener has one that nobody trusts.
func TestCertificatesByOCID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		w.addListener(t, loadbalancer.CreateListenerDetails{
			Name: common.String("secure"), SslConfiguration: &loadbalancer.SslConfigurationDetails{CertificateIds: []string{"ocid1.certificate.oc1..a"}},
		})
		time.Sleep(time.Minute)
		_, _, err := w.askTLS(t, &tls.Config{RootCAs: ocilbtest.NewAuthority(t).Pool()})
		require.ErrorContains(t, err, "certificate")
		_, body, err := w.askTLS(t, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		assert.Equal(t, "1", body)
	})
}

func TestCertificatesAreRotated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		old, renewed := ocilbtest.NewAuthority(t), ocilbtest.NewAuthority(t)
		for name, authority := range map[string]*ocilbtest.Authority{"old": old, "renewed": renewed} {
			public, private := authority.Issue(t, ocilbtest.Address)
			w.addCertificate(t, loadbalancer.CreateCertificateDetails{CertificateName: &name, PublicCertificate: &public, PrivateKey: &private})
		}
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		w.addListener(t, loadbalancer.CreateListenerDetails{Name: common.String("secure"), SslConfiguration: &loadbalancer.SslConfigurationDetails{CertificateName: common.String("old")}})
		time.Sleep(time.Minute)
		_, _, err := w.askTLS(t, &tls.Config{RootCAs: old.Pool()})
		require.NoError(t, err)

		_, err = w.Client.DeleteCertificate(t.Context(), loadbalancer.DeleteCertificateRequest{LoadBalancerId: common.String(id), CertificateName: common.String("old")})
		assertRefused(t, err, http.StatusConflict, "Conflict")
		updated, err := w.Client.UpdateListener(t.Context(), loadbalancer.UpdateListenerRequest{
			LoadBalancerId: common.String(id), ListenerName: common.String("secure"), UpdateListenerDetails: loadbalancer.UpdateListenerDetails{
				DefaultBackendSetName: common.String("chat"), Port: common.Int(443), Protocol: common.String("HTTP"),
				SslConfiguration: &loadbalancer.SslConfigurationDetails{CertificateName: common.String("renewed")},
			},
		})
		require.NoError(t, err)
		await(t, w.Service, updated.OpcWorkRequestId)
		_, body, err := w.askTLS(t, &tls.Config{RootCAs: renewed.Pool()})
		require.NoError(t, err)
		assert.Equal(t, "1", body)
		deleted, err := w.Client.DeleteCertificate(t.Context(), loadbalancer.DeleteCertificateRequest{LoadBalancerId: common.String(id), CertificateName: common.String("old")})
		require.NoError(t, err)
		await(t, w.Service, deleted.OpcWorkRequestId)
		list, err := w.Client.ListCertificates(t.Context(), loadbalancer.ListCertificatesRequest{LoadBalancerId: common.String(id)})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		assert.Equal(t, "renewed", *list.Items[0].CertificateName)
	})
}

func TestListenersVerifyClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		authority, clients := ocilbtest.NewAuthority(t), ocilbtest.NewAuthority(t)
		intermediate := clients.NewIntermediate(t)
		public, private := authority.Issue(t, ocilbtest.Address)
		w.addCertificate(t, loadbalancer.CreateCertificateDetails{
			CertificateName: common.String("site"), PublicCertificate: &public, PrivateKey: &private, CaCertificate: common.String(clients.PEM()),
		})
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		w.addListener(t, loadbalancer.CreateListenerDetails{Name: common.String("secure"), SslConfiguration: &loadbalancer.SslConfigurationDetails{
			CertificateName: common.String("site"), VerifyPeerCertificate: common.Bool(true),
		}})
		time.Sleep(time.Minute)
		none, trusted, stranger := []tls.Certificate(nil), clients.Pair(t, nil, "client"), authority.Pair(t, nil, "client")
		deep := intermediate.Pair(t, []*ocilbtest.Authority{intermediate}, "client")
		one, two := 1, 2
		for name, tt := range map[string]struct {
			certificates []tls.Certificate
			depth        *int
			ok           bool
		}{
			"none":                     {certificates: none},
			"of the authority":         {certificates: []tls.Certificate{trusted}, ok: true},
			"of another one":           {certificates: []tls.Certificate{stranger}},
			"of an intermediate":       {certificates: []tls.Certificate{deep}, ok: true},
			"within its depth":         {certificates: []tls.Certificate{deep}, depth: &two, ok: true},
			"beyond its depth":         {certificates: []tls.Certificate{deep}, depth: &one},
			"of the authority, with 1": {certificates: []tls.Certificate{trusted}, depth: &one, ok: true},
		} {
			w.edit(t, func(lb *ocilb.LoadBalancer) {
				ssl := *lb.Listeners["secure"].SSLConfiguration
				ssl.VerifyDepth = tt.depth
				lb.Listeners["secure"].SSLConfiguration = &ssl
			})
			_, _, err := w.askTLS(t, &tls.Config{RootCAs: authority.Pool(), Certificates: tt.certificates})
			assert.Equal(t, tt.ok, err == nil, "%s: %v", name, err)
		}
	})
}

func TestBackendsWithTLS(t *testing.T) {
	t.Parallel()
	yes, no, one, two := true, false, 1, 2
	tests := []struct {
		name     string
		ssl      ocilb.SSLConfiguration
		hosts    []string // of the certificate
		deep     bool     // an intermediate signs it
		anyName  bool     // only the chain is verified
		stranger bool     // another authority signs it
		ok       bool
	}{
		{name: "not verified", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &no}, stranger: true, ok: true},
		{name: "verified", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes}, hosts: []string{"10.0.0.1"}, ok: true},
		{name: "another authority", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes}, hosts: []string{"10.0.0.1"}, stranger: true},
		{name: "another name", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes}, hosts: []string{"example.com"}},
		{name: "another name that nobody verifies", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes}, hosts: []string{"example.com"}, anyName: true, ok: true},
		{name: "beyond its depth", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes, VerifyDepth: &one}, hosts: []string{"10.0.0.1"}, deep: true},
		{name: "within its depth", ssl: ocilb.SSLConfiguration{VerifyPeerCertificate: &yes, VerifyDepth: &two}, hosts: []string{"10.0.0.1"}, deep: true, ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *ocilb.Options) { o.Plane.VerifyName = !tt.anyName })
				authority := ocilbtest.NewAuthority(t)
				w.addCertificate(t, loadbalancer.CreateCertificateDetails{CertificateName: common.String("backends"), CaCertificate: common.String(authority.PEM())})
				var others []*ocilbtest.Authority
				signer := authority
				if tt.stranger {
					signer = ocilbtest.NewAuthority(t)
				}
				if tt.deep {
					signer = authority.NewIntermediate(t)
					others = append(others, signer)
				}
				w.network.ServeTLS(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.Proto) }), signer.Pair(t, others, tt.hosts...))
				w.edit(t, func(lb *ocilb.LoadBalancer) {
					name := "backends"
					tt.ssl.CertificateName = &name
					lb.BackendSets["chat"].SSLConfiguration = &tt.ssl
				})
				w.set(t, "chat", backend(1))
				status, body, err := w.get(t, "/", nil)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				health, err := w.Client.GetBackendHealth(t.Context(), loadbalancer.GetBackendHealthRequest{
					LoadBalancerId: common.String(id), BackendSetName: common.String("chat"), BackendName: common.String(backend(1).Name),
				})
				require.NoError(t, err)
				if !tt.ok {
					assert.Equal(t, http.StatusBadGateway, status)
					assert.Equal(t, loadbalancer.BackendHealthStatusCritical, health.Status)
					return
				}
				assert.Equal(t, "HTTP/1.1", body)
				assert.Equal(t, loadbalancer.BackendHealthStatusOk, health.Status)
			})
		})
	}
}

// A change of the TLS of a set applies to new connections, and health checks can do without.
func TestBackendsThatBeginWithTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		plain := w.serve(t, 1)
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"1": 1}, w.answers(t, 1))
		assertHealth := func(want loadbalancer.BackendSetHealthStatusEnum, why string) {
			t.Helper()
			time.Sleep(time.Minute)
			health, err := w.Client.GetBackendSetHealth(t.Context(), loadbalancer.GetBackendSetHealthRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("chat")})
			require.NoError(t, err)
			assert.Equal(t, want, health.Status, why)
		}
		w.edit(t, func(lb *ocilb.LoadBalancer) { lb.BackendSets["chat"].SSLConfiguration = &ocilb.SSLConfiguration{} })
		assert.Equal(t, map[string]int{"Bad Gateway": 1}, w.answers(t, 1), "the backend has no TLS")
		assertHealth(loadbalancer.BackendSetHealthStatusCritical, "nor have health checks found it")
		w.edit(t, func(lb *ocilb.LoadBalancer) { lb.BackendSets["chat"].HealthChecker.IsForcePlainText = true })
		assertHealth(loadbalancer.BackendSetHealthStatusOk, "health checks are plain")

		plain.Kill()
		w.network.ServeTLS(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "secure") }), ocilbtest.NewAuthority(t).Pair(t, nil))
		w.edit(t, func(lb *ocilb.LoadBalancer) { lb.BackendSets["chat"].HealthChecker.IsForcePlainText = false })
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"secure": 1}, w.answers(t, 1))
	})
}

// A TCP listener with TLS forwards what it has decrypted.
func TestTLSOfTCPListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		authority := ocilbtest.NewAuthority(t)
		public, private := authority.Issue(t, ocilbtest.Address)
		w.addCertificate(t, loadbalancer.CreateCertificateDetails{CertificateName: common.String("site"), PublicCertificate: &public, PrivateKey: &private})
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		w.addListener(t, loadbalancer.CreateListenerDetails{
			Name: common.String("secure"), Protocol: common.String("TCP"), SslConfiguration: &loadbalancer.SslConfigurationDetails{CertificateName: common.String("site")},
		})
		time.Sleep(time.Minute)
		_, body, err := w.askTLS(t, &tls.Config{RootCAs: authority.Pool()})
		require.NoError(t, err)
		assert.Equal(t, "1", body)
		_, _, err = w.askTLS(t, &tls.Config{RootCAs: ocilbtest.NewAuthority(t).Pool()})
		require.Error(t, err)
	})
}
