package svcproxy

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/memnet"
)

// backend is a server on an address of its own that says its name and then does as told.
type backend struct {
	ip   string
	port int32
}

// startBackend serves until the test ends: each connection is given to handle and closed after it.
func startBackend(t *testing.T, handle func(c *net.TCPConn)) backend {
	t.Helper()
	ln, err := net.Listen("tcp4", net.JoinHostPort(loopback(), "0"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	addr := ln.Addr().(*net.TCPAddr)
	return backend{ip: addr.IP.String(), port: int32(addr.Port)}
}

// says answers with a text and ends.
func says(text string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { _, _ = io.WriteString(c, text) } // the client looks
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) } // the client looks

// deadBackend is an address where nobody listens, nor can until the test ends.
func deadBackend(t *testing.T) backend {
	t.Helper()
	ip := loopback()
	return backend{ip: ip, port: hold(t, ip)}
}

// hold keeps a port of an address until the test ends, by a socket that does not listen, and has these options.
func hold(t *testing.T, ip string, options ...int) int32 {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(socket)) })
	for _, option := range options {
		require.NoError(t, unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1))
	}
	require.NoError(t, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(ip).To4())}))
	name, err := unix.Getsockname(socket)
	require.NoError(t, err)
	return int32(name.(*unix.SockaddrInet4).Port)
}

// behind are slices of a service, one a backend: they have ports of their own here.
func behind(svc string, backends ...backend) []runtime.Object {
	var out []runtime.Object
	for i, b := range backends {
		out = append(out, slice(svc, i, endpointPort("http", b.port), readyAt(b.ip)))
	}
	return out
}

// startProxy serves the objects' addresses until the test ends, or until the function that it returns is called.
func startProxy(t *testing.T, onNode bool, objects ...runtime.Object) (*fake.Clientset, func()) {
	t.Helper()
	d, client := newDirectory(t, objects...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { NewProxy(d, onNode).Run(ctx) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return client, stop
}

// dial connects as soon as somebody listens.
func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	var c net.Conn
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var err error
		c, err = net.Dial("tcp4", addr)
		require.NoError(collect, err)
	}, kubetest.Patience, tick)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(kubetest.Patience)))
	return c.(*net.TCPConn)
}

func readAll(t *testing.T, c net.Conn) string {
	t.Helper()
	raw, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(raw)
}

// exchange sends a line and waits for its echo.
func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestProxy_SpreadsConnectionsOverEndpoints(t *testing.T) {
	t.Parallel()
	ip := loopback()
	objects := append(behind("web", startBackend(t, says("one")), startBackend(t, says("two"))), service("web", ip, tcp("http", 8080)))
	startProxy(t, false, objects...)
	seen := map[string]int{}
	for range 60 {
		seen[readAll(t, dial(t, ip+":8080"))]++
	}
	assert.Len(t, seen, 2)
	assert.Positive(t, seen["one"])
	assert.Positive(t, seen["two"])
}

func TestProxy_ResetsWhenNobodyIsThere(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		objects []runtime.Object
	}{
		{name: "no endpoints"},
		{name: "dead endpoints only", objects: behind("web", deadBackend(t), deadBackend(t))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ip := loopback()
			startProxy(t, false, append(tt.objects, service("web", ip, tcp("http", 8080)))...)
			_, err := dial(t, ip+":8080").Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

func TestProxy_PassesHalfClosesOn(t *testing.T) {
	t.Parallel()
	answersAtTheEnd := func(c *net.TCPConn) {
		raw, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(append([]byte("got "), raw...)) // the client looks
		}
	}
	saysByeFirst := func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		raw, _ := io.ReadAll(c) // what came tells
		assert.Equal(t, "last words", string(raw))
	}
	t.Run("from client to server", func(t *testing.T) {
		t.Parallel()
		ip := loopback()
		startProxy(t, false, append(behind("web", startBackend(t, answersAtTheEnd)), service("web", ip, tcp("http", 8080)))...)
		c := dial(t, ip+":8080")
		_, err := io.WriteString(c, "all of it")
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		assert.Equal(t, "got all of it", readAll(t, c))
	})
	t.Run("from server to client", func(t *testing.T) {
		t.Parallel()
		ip := loopback()
		startProxy(t, false, append(behind("web", startBackend(t, saysByeFirst)), service("web", ip, tcp("http", 8080)))...)
		c := dial(t, ip+":8080")
		assert.Equal(t, "bye", readAll(t, c))
		_, err := io.WriteString(c, "last words")
		require.NoError(t, err)
	})
}

func TestProxy_PassesResetsOn(t *testing.T) {
	t.Parallel()
	t.Run("from server to client", func(t *testing.T) {
		t.Parallel()
		ip := loopback()
		aborts := func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
		}
		startProxy(t, false, append(behind("web", startBackend(t, aborts)), service("web", ip, tcp("http", 8080)))...)
		c := dial(t, ip+":8080")
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("from client to server", func(t *testing.T) {
		t.Parallel()
		ip, got := loopback(), make(chan error, 1)
		reads := func(c *net.TCPConn) {
			_, err := io.ReadFull(c, make([]byte, 2))
			got <- err
		}
		startProxy(t, false, append(behind("web", startBackend(t, reads)), service("web", ip, tcp("http", 8080)))...)
		c := dial(t, ip+":8080")
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-got, syscall.ECONNRESET)
	})
}

func TestProxy_RunningConnectionsSurviveAChangeOfEndpoints(t *testing.T) {
	t.Parallel()
	ip := loopback()
	old, next := startBackend(t, echo), startBackend(t, says("next"))
	client, _ := startProxy(t, false, append(behind("web", old), service("web", ip, tcp("http", 8080)))...)
	c := dial(t, ip+":8080")
	exchange(t, c, "before")

	_, err := client.DiscoveryV1().EndpointSlices("default").Update(t.Context(), behind("web", next)[0].(*discoveryv1.EndpointSlice), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		c, err := net.Dial("tcp4", ip+":8080")
		require.NoError(collect, err)
		defer c.Close()
		_ = c.(*net.TCPConn).CloseWrite() // the old one's echo ends, too
		raw, err := io.ReadAll(c)
		require.NoError(collect, err)
		assert.Equal(collect, "next", string(raw))
	}, kubetest.Patience, tick)
	exchange(t, c, "after")

	require.NoError(t, client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	refused(t, ip+":8080")
	exchange(t, c, "at the end")
}

// refused waits until nobody listens.
func refused(t *testing.T, addr string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		c, err := net.Dial("tcp4", addr)
		if err == nil {
			c.Close()
		}
		require.ErrorIs(collect, err, syscall.ECONNREFUSED)
	}, kubetest.Patience, tick)
}

func TestProxy_ListensWhileAServiceIsThere(t *testing.T) {
	t.Parallel()
	ip, moved := loopback(), loopback()
	client, stop := startProxy(t, false, behind("web", startBackend(t, says("web")))...)
	services := client.CoreV1().Services("default")
	refused(t, ip+":8080")

	_, err := services.Create(t.Context(), service("web", ip, tcp("http", 8080)), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "web", readAll(t, dial(t, ip+":8080")))

	_, err = services.Update(t.Context(), service("web", moved, tcp("http", 8081)), metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "web", readAll(t, dial(t, moved+":8081")))
	refused(t, ip+":8080")

	stop()
	refused(t, moved+":8081")
}

func TestProxy_NodePortMayHaveTheNumberOfAServicePort(t *testing.T) {
	t.Parallel()
	ip := loopback()
	free := hold(t, "0.0.0.0", unix.SO_REUSEPORT) // which the proxy's listeners have too
	port := tcp("http", free)
	port.NodePort = free
	startProxy(t, true, append(behind("web", startBackend(t, says("web"))), service("web", ip, port))...)
	addr := net.JoinHostPort(ip, strconv.Itoa(int(free)))
	assert.Equal(t, "web", readAll(t, dial(t, addr)))
	assert.Equal(t, "web", readAll(t, dial(t, net.JoinHostPort(loopback(), strconv.Itoa(int(free))))))
}

func TestWanted(t *testing.T) {
	t.Parallel()
	exposed := tcp("http", 80)
	exposed.NodePort = 30080
	web := service("web", "10.96.0.20", exposed, corev1.ServicePort{Name: "http", Port: 8080}, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
	outer := externalName("outer", "example.org")
	outer.Spec.Ports = []corev1.ServicePort{tcp("http", 80)}
	d, _ := newDirectory(t, web, outer, service("idle", "10.96.0.21", tcp("http", 80)), service("db", corev1.ClusterIPNone, tcp("sql", 5432)),
		slice("web", 1, endpointPort("http", 8080), readyAt("10.244.1.2")))
	backends := []string{"10.244.1.2:8080"}
	want := map[string][]string{"10.96.0.20:80": backends, "10.96.0.20:8080": backends, "10.96.0.21:80": nil}
	assert.Equal(t, want, NewProxy(d, false).wanted(), "neither UDP nor headless nor external services")

	want["0.0.0.0:30080"] = backends
	assert.Equal(t, want, NewProxy(d, true).wanted())
}

// Whoever cannot have one address must not keep others from theirs.
func TestProxy_ServesTheOthersWhenAnAddressIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", net.JoinHostPort(loopback(), "8080"))
	require.NoError(t, err)
	defer taken.Close()
	free := loopback()
	startProxy(t, false, append(behind("web", startBackend(t, says("web"))), service("web", free, tcp("http", 8080)),
		service("other", taken.Addr().(*net.TCPAddr).IP.String(), tcp("http", 8080)))...)
	assert.Equal(t, "web", readAll(t, dial(t, free+":8080")))
}

func TestDialOne(t *testing.T) {
	t.Parallel()
	_, err := DialOne(t.Context(), nil)
	require.ErrorIs(t, err, ErrNoBackend)

	dead := net.JoinHostPort(deadBackend(t).ip, "1")
	_, err = DialOne(t.Context(), []string{dead})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = DialOne(ctx, []string{dead})
	require.ErrorIs(t, err, context.Canceled)
}

// Each connection has one chance, as with kube-proxy: half of them fail where one of two endpoints is dead.
func TestProxy_TriesOneEndpointOnly(t *testing.T) {
	t.Parallel()
	ip := loopback()
	objects := append(behind("web", deadBackend(t), startBackend(t, says("alive"))), service("web", ip, tcp("http", 8080)))
	startProxy(t, false, objects...)
	failed := 0
	for range 100 {
		c := dial(t, ip+":8080")
		if _, err := io.ReadAll(c); err != nil {
			require.ErrorIs(t, err, syscall.ECONNRESET)
			failed++
		}
		c.Close()
	}
	assert.InDelta(t, 50, failed, 25)
}

// Two changes, one soon after the other: the second is seen a second after the first.
func TestProxy_SeesChangesInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := append(behind("web", backend{ip: "10.244.1.1", port: 8080}), service("web", "10.96.0.20", tcp("http", 80)))
		d, client := newDirectory(t, objects...)
		p := NewProxy(d, false)
		p.listen = func(string) (net.Listener, error) { return memnet.Listen(), nil }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { p.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			wg.Wait()
		})
		move := func(ip string) {
			t.Helper()
			slice := behind("web", backend{ip: ip, port: 8080})[0].(*discoveryv1.EndpointSlice)
			_, err := client.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, []string{ip + ":8080"}, p.directory.backends("default", "web", "http"))
		}
		saw := func(ip string) {
			t.Helper()
			got, err := p.Lookup("default", "web", "http")
			require.NoError(t, err)
			require.Equal(t, []string{ip + ":8080"}, got)
		}
		time.Sleep(10 * minSyncPeriod) // nothing has changed for a while
		saw("10.244.1.1")
		move("10.244.1.2")
		saw("10.244.1.2")
		move("10.244.1.3")
		saw("10.244.1.2")
		time.Sleep(minSyncPeriod - time.Millisecond)
		saw("10.244.1.2")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		saw("10.244.1.3")
	})
}
