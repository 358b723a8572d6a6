package httpproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// TestServersThatCloseIdleConnections has a server with an idle timeout, and requests after pauses around it. None fails, and
// connections are used again after short pauses.
func TestServersThatCloseIdleConnections(t *testing.T) {
	t.Parallel()
	const near = time.Millisecond
	tests := []struct {
		name      string
		timeout   time.Duration // of the server
		announces bool
		pauses    []time.Duration
		want      int // connections
	}{
		{name: "short pauses", timeout: 5 * time.Second, pauses: []time.Duration{time.Second, 2 * time.Second, defaultKeepAlive - near}, want: 1},
		{
			name: "uvicorn", timeout: 5 * time.Second, want: 6,
			pauses: []time.Duration{defaultKeepAlive + near, 5*time.Second - near, 5 * time.Second, 5*time.Second + near, time.Minute},
		},
		{
			name: "announced", timeout: 2 * time.Second, announces: true, want: 4,
			pauses: []time.Duration{2*time.Second - near, time.Second, 2*time.Second + near, 1500*time.Millisecond + near},
		},
		{
			name: "learned", timeout: 2 * time.Second, want: 4,
			pauses: []time.Duration{3 * time.Second, time.Second, 2*time.Second - near, 2*time.Second + near},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				connections := 0
				r.serveHTTP(&http.Server{
					IdleTimeout: tt.timeout,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
						if tt.announces {
							w.Header().Set("Keep-Alive", "timeout=2")
						}
						echo(w, q)
					}),
					ConnState: func(_ net.Conn, s http.ConnState) {
						if s == http.StateNew {
							connections++
						}
					},
				})
				c := r.client()
				for i := range len(tt.pauses) + 1 {
					a := r.do(c, http.MethodPost, "/", "body")
					assert.Equal(t, "POST / body", a.body, "request %d", i)
					assert.Empty(t, a.header.Get("Keep-Alive"))
					if i < len(tt.pauses) {
						time.Sleep(tt.pauses[i])
					}
				}
				synctest.Wait()
				assert.Equal(t, tt.want, connections)
				time.Sleep(defaultKeepAlive + near)
				synctest.Wait()
				assert.Empty(t, r.ProxyStats().Servers, "idle connections end, and the series of the server")
			})
		})
	}
}

// TestClosedInFlight has a server that closes a connection when a request is on its way. A request that may run twice is sent
// again. Another one is not, because the server may have begun it.
func TestClosedInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for method, want := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusBadGateway} {
			r := start(t, testOptions(), limits.Limits{})
			r.serveRaw(func(n int, c net.Conn) {
				from := bufio.NewReader(c)
				for i := 0; ; i++ {
					q, err := http.ReadRequest(from)
					if err != nil || n == 0 && i == 1 {
						return
					}
					_, _ = io.Copy(io.Discard, q.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			c := r.client()
			assert.Equal(t, http.StatusOK, r.do(c, method, "/", "").status)
			assert.Equal(t, want, r.do(c, method, "/", "").status, method)
			assert.Equal(t, http.StatusOK, r.do(c, method, "/", "").status)
		}
	})
}

// TestSlowReaderHidesIdleTime has a client that reads slowly: the server's response has ended long before its last byte is
// relayed, and the server's timer has run since.
func TestSlowReaderHidesIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, peer := net.Pipe()
		defer func() { _ = peer.Close() }()
		s := &server{}
		c := newServerConn(client, s)
		defer func() { _ = c.Close() }()
		go func() {
			_, _ = peer.Write([]byte("ab"))
			_, _ = io.Copy(io.Discard, peer)
		}()
		var one [1]byte
		_, err := c.Read(one[:])
		require.NoError(t, err)
		long := endpoint.ToMonotonic(time.Now()).Add(-5 * time.Second)
		c.lastRead.Store(long) // the first read was long ago
		_, err = c.Read(one[:])
		require.NoError(t, err)
		require.Equal(t, long, c.idleSince.Load(), "the read did not wait")
		_, err = c.Write([]byte("request"))
		require.ErrorIs(t, err, errIdleTooLong)
		n, err := c.Write([]byte("request"))
		require.NoError(t, err, "the transport has closed it; no other write is refused")
		assert.Equal(t, 7, n)
	})
}

func TestKeepAliveLimit(t *testing.T) {
	t.Parallel()
	now := endpoint.ToMonotonic(time.Now())
	tests := []struct {
		name      string
		announced time.Duration
		learned   []time.Duration
		after     time.Duration
		want      time.Duration
	}{
		{name: "nothing is known", want: defaultKeepAlive},
		{name: "announced", announced: 2 * time.Second, want: 1500 * time.Millisecond},
		{name: "announced, and long", announced: time.Minute, want: defaultKeepAlive},
		{name: "learned", learned: []time.Duration{time.Second}, want: 750 * time.Millisecond},
		{name: "the shortest counts", learned: []time.Duration{3 * time.Second, time.Second, 2 * time.Second}, want: 750 * time.Millisecond},
		{name: "a shutdown is no timeout", learned: []time.Duration{minLearned - 1}, want: defaultKeepAlive},
		{name: "learned long ago", learned: []time.Duration{time.Second}, after: forgetAfter + 1, want: defaultKeepAlive},
		{name: "both", announced: time.Second, learned: []time.Duration{2 * time.Second}, want: 750 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var k keepAlive
			k.announced.Store(int64(tt.announced))
			for _, idle := range tt.learned {
				k.learnTimeout(idle, now)
			}
			assert.Equal(t, tt.want, k.idleLimit(now.Add(tt.after)))
		})
	}
}

// TestServersAreForgotten has a pool whose servers come and go.
func TestServersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(0, nil)
		u.serverAt("10.0.0.1:1").lastUsed.Store(endpoint.ToMonotonic(time.Now()))
		busy := u.reserveServer((&fakePool{}).add("10.0.0.2:1"))
		time.Sleep(forgetAfter + 1)
		u.serverAt("10.0.0.3:1")
		assert.Len(t, u.servers, 2)
		assert.Same(t, busy, u.serverAt("10.0.0.2:1"))
	})
}
