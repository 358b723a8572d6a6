package httpproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const getRoot = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// startDrain drains with a time limit, and returns a function that waits for the result.
func (r *rig) startDrain(limit time.Duration) func() bool {
	ended := make(chan bool, 1)
	go func() {
		ctx, cancel := context.WithTimeout(r.t.Context(), limit)
		defer cancel()
		ended <- r.DrainConns(ctx)
	}()
	return func() bool { return <-ended }
}

// serveStreams adds a model server whose responses end after a time.
func (r *rig) serveStreams(length time.Duration) {
	r.t.Helper()
	r.serveHTTP(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-q.Context().Done():
		case <-time.After(length):
			_, _ = io.WriteString(w, "done")
		}
	})})
}

// TestConnectionsInADrain has a stream that began before the drain, so that its headers do not ask the client to close the
// connection. The next request on the connection is served if it comes soon, and ends the connection.
func TestConnectionsInADrain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		pause time.Duration // between the end of the stream and the next request
		want  bool          // it is served
	}{
		{name: "the next request follows at once", pause: 0, want: true},
		{name: "a millisecond later", pause: time.Millisecond, want: true},
		{name: "after a pause", pause: limits.Linger - time.Second, want: true},
		{name: "too late", pause: limits.Linger + time.Second, want: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const length = 10 * time.Second
				r := start(t, testOptions(), limits.Limits{})
				r.serveStreams(length)
				c, from := r.dial()
				_, err := io.WriteString(c, getRoot)
				require.NoError(t, err)
				time.Sleep(length / 2)
				drained := r.startDrain(time.Minute)
				first := receive(t, from)
				require.NoError(t, first.err)
				assert.Empty(t, first.header.Values("Connection"))
				time.Sleep(tt.pause)
				began := time.Now()
				_, err = io.WriteString(c, getRoot)
				if !tt.want {
					require.Error(t, err)
					assert.True(t, drained())
					return
				}
				require.NoError(t, err)
				second, err := http.ReadResponse(from, nil)
				require.NoError(t, err)
				assert.True(t, second.Close, "it asks the client to close")
				text, err := io.ReadAll(second.Body)
				require.NoError(t, err)
				require.NoError(t, second.Body.Close())
				assert.Equal(t, "done", string(text))
				assert.True(t, drained())
				assert.InDelta(t, length.Seconds(), time.Since(began).Seconds(), 1, "it ends with the last connection")
			})
		})
	}
}

// TestIdleConnectionsInADrain expects that connections that were idle for long are closed at once, and others when they were.
func TestIdleConnectionsInADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, testOptions(), limits.Limits{})
		r.serveStreams(0)
		old, from := r.dial()
		assert.Equal(t, http.StatusOK, send(t, old, from, getRoot).status)
		r.dial() // and sends nothing
		time.Sleep(limits.Linger)
		fresh, from := r.dial()
		assert.Equal(t, http.StatusOK, send(t, fresh, from, getRoot).status)
		synctest.Wait()
		require.Equal(t, 3, r.OpenConns())
		began, drained := time.Now(), r.startDrain(time.Minute)
		time.Sleep(limits.DrainTick / 2)
		synctest.Wait()
		assert.Equal(t, 1, r.OpenConns())
		assert.True(t, drained())
		assert.InDelta(t, limits.Linger.Seconds(), time.Since(began).Seconds(), 1)
	})
}

// TestLimitOfADrain expects that nothing makes a drain longer than its limit: no idle connection, no open request, and no client
// that sends headers without an end.
func TestLimitOfADrain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want bool // there was no open request
	}{
		{name: "idle", give: "", want: true},
		{name: "half a header", give: "GET / HT", want: true},
		{name: "a stream", give: getRoot, want: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				r.serveStreams(time.Hour)
				c, from := r.dial()
				if tt.give != "" {
					_, err := io.WriteString(c, tt.give)
					require.NoError(t, err)
				}
				synctest.Wait()
				began := time.Now()
				const limit = limits.Linger / 2
				r.startDrain(limit)()
				assert.Equal(t, limit, time.Since(began))
				assert.Equal(t, tt.want, r.InFlight() == 0)
				r.Close()
				assertEnded(t, c, from)
			})
		})
	}
}

// assertEnded expects that the peer has closed a connection.
func assertEnded(t *testing.T, c net.Conn, from *bufio.Reader) {
	t.Helper()
	_, _ = io.Copy(io.Discard, from)
	_, err := io.WriteString(c, getRoot)
	assert.Error(t, err)
}
