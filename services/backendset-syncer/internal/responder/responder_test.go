package responder

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// meter counts answers by status.
type meter struct {
	mu       sync.Mutex
	answered map[int]int
}

func (m *meter) CountAnswer(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[status]++
}

func (m *meter) count(status int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered[status]
}

// network is where servers listen, in memory.
type network struct {
	refuse    int // number of attempts to listen that fail
	listeners map[string]*memnet.Listener
}

func (n *network) listen(_ context.Context, _, address string) (net.Listener, error) {
	if n.refuse > 0 {
		n.refuse--
		return nil, syscall.EADDRINUSE
	}
	return n.listeners[address], nil
}

func newNetwork(addresses ...string) *network {
	n := &network{listeners: map[string]*memnet.Listener{}}
	for _, a := range addresses {
		n.listeners[a] = memnet.Listen()
	}
	return n
}

func (n *network) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return n.listeners[address].Dial(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// start runs a Responder. stop ends it.
func start(t *testing.T, o Options, n *network) (m *meter, logs *zapobserver.ObservedLogs, stop func()) {
	t.Helper()
	m = &meter{answered: map[int]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	core, logs := zapobserver.New(zap.WarnLevel)
	r := New(o, m, zap.New(core))
	r.listen = n.listen
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	return m, logs, func() {
		cancel()
		<-ended
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := Options{NotFound: "responder.test:1404", NoBackends: "responder.test:1500"}
		n := newNetwork(o.NotFound, o.NoBackends)
		m, _, stop := start(t, o, n)
		client := n.client(t)
		for address, status := range map[string]int{o.NotFound: http.StatusNotFound, o.NoBackends: http.StatusInternalServerError} {
			response, err := client.Post("http://"+address+"/any/path?query", "text/plain", strings.NewReader("body"))
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, status, response.StatusCode)
			assert.Contains(t, string(text), "route")
			assert.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
			assert.Equal(t, 1, m.count(status))
		}
		stop()
		_, err := client.Get("http://" + o.NotFound)
		require.ErrorContains(t, err, "connection refused", "the ports are closed")
	})
}

func TestNoServerWithoutAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, stop := start(t, Options{}, newNetwork())
		stop()
	})
}

// A port that another program still has is tried again.
func TestAnAddressInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const address = "responder.test:1404"
		n := newNetwork(address)
		n.refuse = 3
		_, logs, stop := start(t, Options{NotFound: address}, n)
		defer stop()
		time.Sleep(3*retryInterval + time.Second)
		assert.Equal(t, 3, logs.FilterMessageSnippet("Responder does not work").Len(), "once for each attempt")
		response, err := n.client(t).Get("http://" + address)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusNotFound, response.StatusCode)
	})
}

// TestConnections are those of a load balancer, which uses idle ones again for 300 s, and one with headers that are too large.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const address = "responder.test:1404"
		n := newNetwork(address)
		_, _, stop := start(t, Options{NotFound: address}, n)
		defer stop()
		c, err := n.listeners[address].Dial(t.Context(), "", "")
		require.NoError(t, err)
		defer c.Close()
		reader := bufio.NewReader(c)
		for _, size := range []int{1, maxHeader - 1<<10, maxHeader + 8<<10} { // net/http adds 4 KiB
			go func() {
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n")
			}()
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			if size < maxHeader {
				assert.Equal(t, http.StatusNotFound, response.StatusCode)
			} else {
				assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
			}
			time.Sleep(300 * time.Second)
		}
	})
}

// TestAttacks holds up a server from one address and from many. A load balancer is answered meanwhile.
func TestAttacks(t *testing.T) {
	t.Parallel()
	const address = "responder.test:1404"
	attacks := map[string]string{
		"silent": "", "half requests": "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeader),
		"bodies that do not come":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
		"answers that nobody reads": strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000),
	}
	for name, text := range attacks {
		for _, hosts := range []int{1, 2 * maxConnections} {
			t.Run(fmt.Sprintf("%s from %d addresses", name, hosts), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newNetwork(address)
					_, _, stop := start(t, Options{NotFound: address}, n)
					defer stop()
					synctest.Wait()
					var attack []net.Conn
					for i := range 2 * maxConnections {
						c, err := n.listeners[address].From(netip.AddrPortFrom(
							netip.AddrFrom4([4]byte{10, 9, byte(i % hosts >> 8), byte(i % hosts)}), 1000))(t.Context(), "", "")
						require.NoError(t, err)
						defer c.Close()
						attack = append(attack, c)
						go func() { _, _ = io.WriteString(c, text) }()
					}
					synctest.Wait()
					response, err := n.client(t).Get("http://" + address)
					require.NoError(t, err)
					require.NoError(t, response.Body.Close())
					assert.Equal(t, http.StatusNotFound, response.StatusCode)
					open := func() (n int) {
						for _, c := range attack {
							if c.SetReadDeadline(time.Time{}) == nil { // of a pipe with an open other end
								n++
							}
						}
						return n
					}
					assert.LessOrEqual(t, open(), maxConnections)
					time.Sleep(requestTimeout + time.Second)
					assert.Zero(t, open())
				})
			})
		}
	}
}
