//go:build system

package httpproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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
	conns := make(chan net.Conn, 1)
	r := newRig(t, testOptions(), limits.Limits{})
	r.upstream = newUpstream(0, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		conns <- c
		return c, err
	})
	r.listenTCP()
	r.serveRaw(func(_ int, c net.Conn) {
		if readRequest(c) != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_ = c.Close()
	})
	c := r.client()
	for range 500 {
		a := r.do(c, http.MethodPost, "/", "body")
		require.Equal(t, "ok", a.body)
		conn := <-conns
		await(t, func() bool { return closedByPeer(conn) || errors.Is(conn.SetDeadline(time.Time{}), net.ErrClosed) })
	}
	assert.Equal(t, int64(500), r.ProxyStats().Attempts[Answered])
	assert.Zero(t, r.ProxyStats().Attempts[Broken])
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
