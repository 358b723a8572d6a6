//go:build system

package httpproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// TestClosedAtTheWorstMoment has a server that closes its connections right after each response, without saying so. The end is
// there before the next request, whether the transport has noticed it or not.
func TestClosedAtTheWorstMoment(t *testing.T) {
	t.Parallel()
	closeAfterAnswer := func(c net.Conn) {
		if readRequest(c) != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_ = c.Close()
	}
	for name, secure := range map[string]*tls.Config{"plain": nil, "TLS": newServerTLS(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conns := make(chan net.Conn, 1)
			r := newRig(t, testOptions(), limits.Limits{})
			r.upstream = newUpstream(0, func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				conns <- c
				return c, err
			})
			r.listenTCP()
			r.serveRaw(func(_ int, c net.Conn) {
				if secure != nil {
					c = tls.Server(c, secure)
				}
				closeAfterAnswer(c)
			})
			if secure != nil {
				e := r.pool.endpoints[0]
				d := *e.Description()
				d.TLS = &tls.Config{InsecureSkipVerify: true}
				e.UpdateDescription(d)
			}
			c := r.client()
			for range 300 {
				a := r.do(c, http.MethodPost, "/", "body")
				require.Equal(t, "ok", a.body)
				conn := <-conns
				seen := conn
				if secure != nil {
					seen = tls.Client(conn, secure)
				}
				await(t, func() bool { return closedByPeer(seen) || errors.Is(conn.SetDeadline(time.Time{}), net.ErrClosed) })
			}
			assert.Equal(t, int64(300), r.ProxyStats().Attempts[Answered])
			assert.Zero(t, r.ProxyStats().Attempts[Broken])
		})
	}
}

// newServerTLS returns the settings of a server with a certificate.
func newServerTLS(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return s.TLS.Clone()
}

// TestReset has a server that resets the connection after it has read a request.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method string
		headers      []string
		want         int
	}{
		{name: "may have run", method: http.MethodPost, want: http.StatusBadGateway},
		{name: "may run twice", method: http.MethodGet, want: http.StatusOK},
		{name: "has a key", method: http.MethodPost, headers: []string{"Idempotency-Key", "1"}, want: http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startTCP(t, testOptions(), limits.Limits{})
			r.serveRaw(func(_ int, c net.Conn) { _ = readRequest(c); reset(c) })
			second := r.serve(echo)
			a := r.do(r.client(), tt.method, "/", "", tt.headers...)
			assert.Equal(t, tt.want, a.status)
			record := r.pool.ended(t, 1)[0]
			assert.Equal(t, tt.want, record.Status)
			if tt.want == http.StatusOK {
				assert.Equal(t, second, record.Served)
				assert.Equal(t, request.Completed, record.Outcome)
			}
		})
	}
}

// TestRandomFaultsOfConnections is TestRandomFaults with buffers, resets and ports of the machine.
func TestRandomFaultsOfConnections(t *testing.T) {
	t.Parallel()
	testRandomFaults(t, startTCP)
}

// TestAnotherListens expects an error that names the flag, unless both share the port.
func TestAnotherListens(t *testing.T) {
	t.Parallel()
	for _, shared := range [][2]bool{{false, false}, {true, false}, {false, true}} {
		o := testOptions()
		o.SharePort = shared[0]
		used := startTCP(t, o, limits.Limits{})
		o.Address, o.SharePort = used.address, shared[1]
		require.ErrorContains(t, newRig(t, o, limits.Limits{}).OpenListener(), "listen on --proxy-bind-address "+used.address)
	}
}

// TestSharedPort replaces a process, twice, while clients open connections without a pause. The next process gets none until the other one
// drains, no request fails, and a response of the old one outlasts its listener.
func TestSharedPort(t *testing.T) {
	t.Parallel()
	o := testOptions()
	o.SharePort = true
	var answers [3]atomic.Int64 // by process
	began, release := make(chan int, 2), make(chan struct{})
	open := func(process int) *rig {
		r := startTCP(t, o, limits.Limits{})
		o.Address = r.address
		r.serve(func(_ http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/long" {
				began <- process
				select {
				case <-release:
				case <-q.Context().Done():
				}
				return
			}
			answers[process].Add(1)
		})
		return r
	}
	// serves waits until a process has answered some requests, and reports whether the next one has answered none meanwhile.
	serves := func(process int) bool {
		before, ofNext := answers[process].Load(), answers[process+1].Load()
		await(t, func() bool { return answers[process].Load() > before+100 })
		return ofNext == answers[process+1].Load()
	}
	first := open(0)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for range 4 {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, err := first.try(t.Context(), c, http.MethodGet, "/", ""); err != nil {
					t.Errorf("a request failed: %v", err)
				}
				time.Sleep(time.Millisecond) // each connection takes a port
			}
		})
	}
	drained := make(chan bool, 2)
	old := first
	for process := range 2 {
		if process == 1 {
			await(t, func() bool { // it knows that the process before is gone
				old.shared.mu.Lock()
				defer old.shared.mu.Unlock()
				return old.shared.phase == settled
			})
		}
		next := open(process + 1)
		require.True(t, serves(process))
		clients.Go(func() {
			_, err := first.try(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, http.MethodGet, "/long", "")
			assert.NoError(t, err)
		})
		require.Equal(t, process, <-began)
		go func(r *rig) { drained <- r.DrainConns(t.Context()) }(old)
		await(t, func() bool { return answers[process+1].Load() > 0 && old.OpenConns() == 1 })
		last := answers[process].Load()
		await(t, func() bool { return answers[process+1].Load() > 500 })
		assert.InDelta(t, last, answers[process].Load(), 4, "a request of each client that was not accepted yet")
		assert.Equal(t, 1, old.InFlight())
		old = next
	}
	close(release)
	for range 2 {
		assert.True(t, <-drained)
	}
}

// TestPortOfACrashedProcess expects that a process that waits for a port gets its connections when the other process ends without a drain.
func TestPortOfACrashedProcess(t *testing.T) {
	t.Parallel()
	o := testOptions()
	o.SharePort = true
	first := startTCP(t, o, limits.Limits{})
	o.Address = first.address
	second := startTCP(t, o, limits.Limits{})
	second.serve(echo)
	first.Close()
	assert.Equal(t, "GET / ", second.do(second.client(), http.MethodGet, "/", "").body)
}

// TestDataBetweenTwoRequests has a server that sends something on an idle connection: within TLS, that is the end of the connection.
func TestDataBetweenTwoRequests(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	secure := tls.Client(client, &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12})
	assert.False(t, closedByPeer(secure))
	_, err = io.WriteString(server, "alert")
	require.NoError(t, err)
	await(t, func() bool { return closedByPeer(secure) })
	assert.False(t, closedByPeer(client))
}
