package decision

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// listen serves the API on a port, until the test ends.
func (r *rig) listen(t testing.TB, changes ...func(l *Listener)) *Listener {
	t.Helper()
	l := NewListener(ListenerParams{Log: zap.NewNop(), Flag: "flag", Address: "127.0.0.1:0", Server: r.Server})
	for _, change := range changes {
		change(l)
	}
	require.NoError(t, l.Listen())
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
