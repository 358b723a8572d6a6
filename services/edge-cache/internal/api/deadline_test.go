package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIdleStreamOutlivesTheTimeOfAWrite writes, is idle for longer than a write may take, and writes again. Without an end of the limit, HTTP/2 resets the stream
// meanwhile.
func TestIdleStreamOutlivesTheTimeOfAWrite(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream := &deadlineWriter{w: w, c: idleController{http.NewResponseController(w)}, limit: limit}
		for _, text := range []string{"first ", "second"} {
			_, err := io.WriteString(stream, text)
			assert.NoError(t, err)
			assert.NoError(t, stream.c.Flush())
			time.Sleep(4 * limit)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 2, response.ProtoMajor)
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "first second", string(content))
}
