package decision

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/endpoint-picker/internal/fairconn"
)

// listen serves the API on a port, until the test ends.
func (r *rig) listen(t testing.TB, changes ...func(l *Listener)) *Listener {
	t.Helper()
	l := NewListener(ListenerParams{Log: zap.NewNop(), Flag: "flag", Address: "127.0.0.1:0", Server: r.Server})
	for _, change := range changes {
		change(l)
	}
	if l.listener == nil {
		require.NoError(t, l.Listen())
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	t.Cleanup(func() {
		l.Close()
		assert.NoError(t, <-ended)
	})
	return l
}

func TestListener(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.listen(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post("http://"+l.Address()+PathPick, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	l.Close()
	assert.Equal(t, 1, r.results.of(resultStopped))
	assert.Zero(t, l.Stats().Open)
}

func TestListener_Disabled(t *testing.T) {
	t.Parallel()
	l := NewListener(ListenerParams{Log: zap.NewNop(), Server: newRig(t).Server})
	require.NoError(t, l.Listen())
	assert.Empty(t, l.Address())
	require.NoError(t, l.Run())
	l.Close()
}

func TestListener_PortInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	used := r.listen(t)
	l := NewListener(ListenerParams{Log: zap.NewNop(), Flag: "flag", Address: used.Address(), Server: r.Server})
	require.ErrorContains(t, l.Listen(), "listen on --flag "+used.Address())
	l.Close()
}

// TestListener_SlowClient sends a part of a call, and then nothing.
func TestListener_SlowClient(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		"POST /v1/pick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{": "HTTP/1.1 408 Request Timeout",
		"POST /v1/pick HTTP/1.1\r\nHost:":                                   "",
	} {
		r := newRig(t, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
		conn, err := net.Dial("tcp", r.listen(t).Address())
		require.NoError(t, err)
		_, err = conn.Write([]byte(call))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		answer := make([]byte, len(want)+1)
		n, _ := conn.Read(answer)
		assert.Equal(t, want, string(answer[:min(n, len(want))]))
		require.NoError(t, conn.Close())
		r.assertNothingHeld()
	}
}

// TestListener_Drain expects that no call is lost in a drain: the answers to calls ask clients to use other connections, a report of the open
// pick comes over a new connection, and a connection without a call is closed only when it has been idle for a while.
func TestListener_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, memory := newRig(t), memnet.Listen()
		l := r.listen(t, func(l *Listener) { l.listener = l.gate.Listener(memory) })
		used, idle := dial(t, memory), dial(t, memory)
		answer, content := used.call(PathPick, "{}")
		require.Equal(t, http.StatusOK, answer.StatusCode)
		assert.False(t, answer.Close)
		var pick Answer
		require.NoError(t, json.Unmarshal(content, &pick))

		l.Leave()
		answer, content = used.call(PathPick, "{}")
		assert.Equal(t, http.StatusOK, answer.StatusCode, "it still answers")
		assert.True(t, answer.Close)
		var second Answer
		require.NoError(t, json.Unmarshal(content, &second))
		began, left := time.Now(), make(chan int, 1)
		go func() { left <- l.Drain(t.Context()) }()
		time.Sleep(fairconn.Linger / 2)
		answer, _ = idle.call(PathPick, "{}")
		assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		assert.True(t, answer.Close)
		for _, id := range []string{pick.ID, second.ID} {
			dial(t, memory) // and sends nothing
			answer, _ = dial(t, memory).call(PathOutcome, `{"id":"`+id+`","event":"completed"}`)
			assert.Equal(t, http.StatusNoContent, answer.StatusCode)
		}
		assert.Zero(t, <-left)
		assert.InDelta(t, (fairconn.Linger * 3 / 2).Seconds(), time.Since(began).Seconds(), 1, "the last connections were idle for long")
		_, err := memory.Dial(t.Context(), "", "")
		require.Error(t, err, "the listener is closed")
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
	conn, err := memory.Dial(t.Context(), "", "")
	require.NoError(t, err)
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
