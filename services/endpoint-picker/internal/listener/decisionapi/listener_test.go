package decisionapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// connect returns a connection of a client with an address.
func connect(t *testing.T, memory *memnet.Listener, client string) net.Conn {
	t.Helper()
	c, err := memory.From(netip.MustParseAddrPort(client))(t.Context(), "", "")
	require.NoError(t, err)
	return c
}

// listen serves the API in memory, until the bubble ends.
func (r *rig) listen(t testing.TB) (*Server, *memnet.Listener) {
	t.Helper()
	n := memnet.Listen()
	r.AttachListener(n)
	run(t, r.Server)
	return r.Server, n
}

func run(t testing.TB, l *Server) {
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	t.Cleanup(func() {
		l.Close()
		assert.NoError(t, <-ended)
	})
}

func TestListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l, n := r.listen(t)
		status, _ := callAt(t, n, good, PathPick, "{}")
		assert.Equal(t, http.StatusOK, status)
		l.Close()
		assert.Equal(t, 1, r.results.of(resultStopped))
		assert.Zero(t, l.PickStats().Open)
	})
}

func TestListener_Disabled(t *testing.T) {
	t.Parallel()
	l := newRig(t).Server
	require.NoError(t, l.OpenListener())
	assert.Empty(t, l.ListenAddress())
	require.NoError(t, l.Run())
	l.Close()
}

// TestListener_SlowClient sends a part of a call, and then nothing.
func TestListener_SlowClient(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"POST /v1/pick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{": "HTTP/1.1 408 Request Timeout",
		"POST /v1/pick HTTP/1.1\r\nHost:":                                   "",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l, n := r.listen(t)
			began, c := time.Now(), connect(t, n, good)
			_, err := io.WriteString(c, call)
			require.NoError(t, err)
			answer := make([]byte, len(want)+1)
			read, _ := c.Read(answer)
			assert.Equal(t, want, string(answer[:min(read, len(want))]))
			assert.Equal(t, r.Server.params.Options.BodyTimeout, time.Since(began))
			require.NoError(t, c.Close())
			awaitClosed(t, l)
			r.assertNothingHeld()
		})
	}
}

// TestListener_Drain expects that no call is lost in a drain: the answers to calls ask clients to use other connections, a report of the open
// pick comes over a new connection, and a connection without a call is closed only when it has been idle for a while.
func TestListener_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l, memory := r.listen(t)
		used, idle := dial(t, memory), dial(t, memory)
		answer, content := used.call(PathPick, "{}")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		assert.False(t, answer.Close)
		var pick Answer
		require.NoError(t, json.Unmarshal(content, &pick))

		l.StartDraining()
		answer, content = used.call(PathPick, "{}")
		assert.Equal(t, http.StatusOK, answer.StatusCode, "it still answers")
		assert.True(t, answer.Close)
		var second Answer
		require.NoError(t, json.Unmarshal(content, &second))
		began, left := time.Now(), make(chan int, 1)
		go func() { left <- l.DrainAll(t.Context()) }()
		time.Sleep(limits.Linger / 2)
		answer, _ = idle.call(PathPick, "{}")
		assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		assert.True(t, answer.Close)
		for _, id := range []string{pick.ID, second.ID} {
			dial(t, memory) // and sends nothing
			answer, _ = dial(t, memory).call(PathOutcome, `{"id":"`+id+`","event":"completed"}`)
			assert.Equal(t, http.StatusNoContent, answer.StatusCode)
		}
		assert.Zero(t, <-left)
		assert.InDelta(t, (limits.Linger * 3 / 2).Seconds(), time.Since(began).Seconds(), 1, "the last connections were idle for long")
		_, err := memory.Dial(t.Context(), "", "")
		require.Error(t, err, "the listener is closed")
	})
}

// TestListener_PickThatWaits has a pick that waits for longer than all time limits of a call, and a drain meanwhile: the client gets the
// endpoint, and can report the outcome.
func TestListener_PickThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pool.admit = func(ctx context.Context) *request.Refusal {
			time.Sleep(2 * (r.Server.params.Options.BodyTimeout + writeTimeout))
			if err := ctx.Err(); err != nil {
				return request.Unavailable(err)
			}
			return nil
		}
		l, memory := r.listen(t)
		waiting, reporting := dial(t, memory), dial(t, memory)
		left := make(chan int, 1)
		go func() {
			time.Sleep(time.Second)
			left <- l.DrainAll(t.Context())
		}()
		answer, content := waiting.call(PathPick, "{}")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		var pick Answer
		require.NoError(t, json.Unmarshal(content, &pick))
		_ = reporting.conn.Close()
		answer, _ = dial(t, memory).call(PathOutcome, `{"id":"`+pick.ID+`","event":"completed"}`)
		assert.Equal(t, http.StatusNoContent, answer.StatusCode)
		assert.Zero(t, <-left)
	})
}

// A caller makes calls over one connection.
type caller struct {
	t    *testing.T
	conn net.Conn
	from *bufio.Reader
}

func dial(t *testing.T, memory *memnet.Listener) *caller {
	t.Helper()
	conn := connect(t, memory, good)
	t.Cleanup(func() { _ = conn.Close() })
	synctest.Wait()
	return &caller{t: t, conn: conn, from: bufio.NewReader(conn)}
}

func (c *caller) call(path, body string) (*http.Response, []byte) {
	c.t.Helper()
	r := httptest.NewRequestWithContext(c.t.Context(), http.MethodPost, path, strings.NewReader(body))
	require.NoError(c.t, r.Write(c.conn))
	answer, err := http.ReadResponse(c.from, r)
	require.NoError(c.t, err)
	content, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, answer.Body.Close())
	return answer, content
}
