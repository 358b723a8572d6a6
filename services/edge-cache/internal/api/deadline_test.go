package api

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/memnet"
)

// serveHTTP2 serves a handler until the test ends, and returns a client.
func serveHTTP2(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	l, only := memnet.Listen(), new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: h, Protocols: only, ReadHeaderTimeout: headerLimit}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	transport := &http.Transport{DialContext: l.Dial, Protocols: only}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, server.Close())
		l.Break()
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return &http.Client{Transport: transport}
}

const headerLimit = 10 * time.Second

// TestIdleStreamOutlivesTheTimeOfAWrite writes, is idle for longer than a write may take, and writes again. Without an end of the limit,
// HTTP/2 resets the stream meanwhile.
func TestIdleStreamOutlivesTheTimeOfAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		client := serveHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			stream := &deadlineWriter{w: w, c: idleController{http.NewResponseController(w)}, limit: limit}
			for _, text := range []string{"first ", "second"} {
				_, err := io.WriteString(stream, text)
				assert.NoError(t, err)
				assert.NoError(t, stream.c.Flush())
				time.Sleep(4 * limit)
			}
		}))
		response, err := client.Get("http://cache")
		require.NoError(t, err)
		defer response.Body.Close()
		require.Equal(t, 2, response.ProtoMajor)
		content, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, "first second", string(content))
	})
}
