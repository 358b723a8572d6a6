package nodeagent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// serviceIP is the address of the Service web.default.
const serviceIP = "10.96.0.20"

// startAPI serves lists of one Service and of its endpoint, to the nodes' service proxies alone.
func startAPI(t *testing.T, cfg *clusterapi.Config, endpoint int32) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
	lists := map[string]any{
		"/api/v1/services": corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.Service{{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: serviceIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}}}},
		"/apis/discovery.k8s.io/v1/endpointslices": discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []discoveryv1.EndpointSlice{{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{network.ControlIP}}},
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: &endpoint}}}}},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, ok := lists[r.URL.Path]
		switch q := r.URL.Query(); {
		case !ok || r.TLS.PeerCertificates[0].Subject.CommonName != "system:kube-proxy":
			w.WriteHeader(http.StatusForbidden)
		case q.Get("sendInitialEvents") != "": // then it lists
			w.WriteHeader(http.StatusBadRequest)
		case q.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			assert.NoError(t, json.NewEncoder(w).Encode(list))
		}
	}))
	pki := func(name string) string { return filepath.Join(components.PKIDir(cfg.Dir), name) }
	pair, err := tls.LoadX509KeyPair(pki("apiserver.crt"), pki("apiserver.key"))
	require.NoError(t, err)
	ca, err := os.ReadFile(pki("ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	require.NoError(t, server.Listener.Close())
	server.Listener, err = net.Listen("tcp4", strings.TrimPrefix(components.InnerAPI, "https://"))
	require.NoError(t, err)
	server.StartTLS()
	t.Cleanup(server.Close)
}

// startBackend answers each caller with a word and returns its port.
func startBackend(t *testing.T) int32 {
	t.Helper()
	ln, err := net.Listen("tcp4", net.JoinHostPort(network.ControlIP, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "welcome")
			conn.Close()
		}
	}()
	return int32(ln.Addr().(*net.TCPAddr).Port)
}

func TestServeServices_AppearWhenTheAPIServerAnswers(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, network.SetupControl()) // service addresses are local there as on a node
		m := newMachine(t)
		require.NoError(t, components.WriteCertificates(&m.Config, "127.0.0.1:1"))
		require.NoError(t, m.ServeServices(t.Context()), "without an API server")
		ask := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
		_, err := dns.Exchange(ask, network.ClusterDNS+":53")
		require.Error(t, err)

		startAPI(t, &m.Config, startBackend(t))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			answer, err := dns.Exchange(ask, network.ClusterDNS+":53")
			require.NoError(collect, err)
			require.Len(collect, answer.Answer, 1)
			require.Equal(collect, serviceIP, answer.Answer[0].(*dns.A).A.String())
		}, kubetest.Patience, tick)
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			conn, err := net.Dial("tcp4", serviceIP+":80")
			require.NoError(collect, err)
			defer conn.Close()
			answer, err := io.ReadAll(conn)
			require.NoError(collect, err)
			require.Equal(collect, "welcome", string(answer))
		}, kubetest.Patience, tick)
	})
}

func TestServeServices_NeedsItsKubeconfig(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	require.ErrorContains(t, m.ServeServices(t.Context()), components.Kubeconfig(m.Config.Dir, components.UserProxy))
}
