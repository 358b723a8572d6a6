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

// TestAnotherListens expects an error that names the flag.
func TestAnotherListens(t *testing.T) {
	t.Parallel()
	used, o := startTCP(t, testOptions(), limits.Limits{}), testOptions()
	o.Address = used.address
	require.ErrorContains(t, newRig(t, o, limits.Limits{}).OpenListener(), "listen on --proxy-bind-address "+used.address)
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
