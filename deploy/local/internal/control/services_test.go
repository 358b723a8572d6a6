package control

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"fairlead.dev/deploy/local/internal/svcproxy"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// serve lets the cluster know a Service web.default with one endpoint, and one without any.
func serve(t *testing.T, c *cluster) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	port := corev1.ServicePort{Name: "http", Port: 80}
	client := fake.NewClientset(
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}}},
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
		})
	d, err := svcproxy.NewDirectory(client)
	require.NoError(t, err)
	d.Start(t.Context())
	require.NoError(t, d.WaitForSync(t.Context()))
	c.services.Store(svcproxy.NewProxy(d, false))
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       []string
		wantErr    string
	}{
		{name: "an address", give: "10.244.1.7:8000", want: []string{"10.244.1.7:8000"}},
		{name: "the first node", give: "node-1:10250", want: []string{"10.200.0.11:10250"}},
		{name: "a node by its own name", give: "gpu:10250", want: []string{"10.200.0.12:10250"}},
		{name: "a service by port number", give: "web.default:80", want: []string{"10.244.1.2:8080"}},
		{name: "a service by port name", give: "web.default:http", want: []string{"10.244.1.2:8080"}},
		{name: "a service as pods may call it", give: "web.default.svc:80", want: []string{"10.244.1.2:8080"}},
		{name: "a service by its whole name", give: "web.default.svc.cluster.local:80", want: []string{"10.244.1.2:8080"}},
		{name: "no port", give: "web.default", wantErr: `"web.default" is not host:port`},
		{name: "nothing", give: "", wantErr: `"" is not host:port`},
		{name: "a name of nobody", give: "node-3:80", wantErr: `"node-3" names no address, node or service.namespace`},
		{name: "an unknown service", give: "nobody.default:80", wantErr: "no service nobody in namespace default"},
		{name: "a service of another namespace", give: "web.kube-system:80", wantErr: "no service web in namespace kube-system"},
		{name: "an unknown port", give: "web.default:443", wantErr: "service web.default has no port 443"},
		{name: "nobody behind it", give: "empty.default:80", wantErr: "service empty.default has no ready endpoint for port 80"},
	}
	c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}, {Name: "gpu"}})
	serve(t, c)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.addresses(tt.give)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestAddresses_OfServicesAreUnknownBeforeTheyAreServed(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}})
	_, err := c.addresses("web.default:80")
	require.ErrorContains(t, err, "web.default")
	got, err := c.addresses("node-1:80")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.200.0.11:80"}, got)
}

func TestAccept_RefusesWhatIsNoListener(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.ErrorContains(t, accept(fd, nil), "take over listener: ")
}

// echo is a server that answers, when a caller has said all, with what was said.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			said, _ := io.ReadAll(conn) // what came is what is answered
			_, _ = conn.Write(append([]byte("heard "), said...))
			conn.Close()
		}
	}()
	return ln.Addr().String()
}

func TestDial_PassesOnBothWaysAndHalfCloses(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil)
	client := steer(t, c)
	conn, err := client.Dial(t.Context(), echo(t))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "heard hello", string(answer))
}

func TestDial_HearsTheCallerOutWhenTheOtherSideHasSaidAll(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	heard := make(chan string, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "go on")
		_ = conn.(*net.TCPConn).CloseWrite()
		said, _ := io.ReadAll(conn) // what came is what counts
		heard <- string(said)
	}()
	c, _ := newCluster(t, nil)
	conn, err := steer(t, c).Dial(t.Context(), ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "go on", string(answer))
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Equal(t, "hello", <-heard)
}

func TestDial_PassesOnWhatCameWithTheRequest(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil)
	steer(t, c)
	conn := connect(t, c)
	_, err := io.WriteString(conn, "GET /v1/dial?target="+echo(t)+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.NoError(t, conn.(*net.UnixConn).CloseWrite())
	answer, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "heard early", string(answer))
}

func TestDial_SaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil)
	client := steer(t, c)
	_, err := client.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorContains(t, err, "connection refused")
	_, err = client.Dial(t.Context(), "nobody:1")
	require.EqualError(t, err, `dial nobody:1 in the cluster: "nobody" names no address, node or service.namespace`)
}
