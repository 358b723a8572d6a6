//go:build system

package hermetic

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// opening is a request for a WebSocket: RFC 6455, 1.3.
const opening = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// speaks makes a server open a WebSocket, and send back the lines that it gets. At a line "bye" it closes the WebSocket at once. All other
// requests get 200.
func speaks(s *modelServer) {
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			return
		}
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		for line, err := both.ReadString('\n'); err == nil; line, err = both.ReadString('\n') {
			_, _ = io.WriteString(c, "got "+line)
			if line == "bye\n" {
				return
			}
		}
	})
}

// openWebSocket opens a WebSocket. It returns the connection, and what reads it.
func openWebSocket(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, opening)
	require.NoError(t, err)
	from := bufio.NewReader(c)
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	require.NoError(t, response.Body.Close())
	return c, from
}

// assertWebSocket exchanges lines over a WebSocket, each after the answer to the one before. The request is in flight for as long. Then
// it has the server close others, and expects their last bytes.
func assertWebSocket(t *testing.T, r *rig, address string) {
	t.Helper()
	c, from := openWebSocket(t, address)
	for i := range 3 {
		_, err := fmt.Fprintf(c, "line %d\n", i)
		require.NoError(t, err)
		line, err := from.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("got line %d\n", i), line)
	}
	assert.Equal(t, 1.0, r.metrics().sum(inFlight))
	require.NoError(t, c.Close())
	r.await(func() bool { return r.metrics().sum(inFlight) == 0 }, "the tunnel has ended")

	for range 3 { // Envoy waits a second before it closes each
		c, from := openWebSocket(t, address)
		_, err := io.WriteString(c, "bye\n")
		require.NoError(t, err)
		last, err := io.ReadAll(from)
		require.NoError(t, err)
		assert.Equal(t, "got bye\n", string(last))
		require.NoError(t, c.Close())
	}
}

func TestProxy_WebSocket(t *testing.T) {
	t.Parallel()
	r := start(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--proxy-bind-address=127.0.0.1:0"}})
	speaks(r.servers[0])
	assertWebSocket(t, r, r.address("proxy-bind-address"))
}

// TestEnvoy_WebSocket runs Envoy with the example configuration.
func TestEnvoy_WebSocket(t *testing.T) {
	t.Parallel()
	program := findEnvoy(t)
	r := start(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}})
	speaks(r.servers[0])
	address := r.startEnvoy(program, "")
	assertWebSocket(t, r, address)

	// A refusal has the form of the API.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/completions", strings.NewReader("{no JSON"))
	require.NoError(t, err)
	request.Header.Set("x-llm-d-model-name-rewrite", "another") // so that the picker must read the body
	response, err := r.client().Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, response.StatusCode)
	assert.Equal(t, "application/json", response.Header.Get("Content-Type"))
	assert.NotEmpty(t, messageOf(t, text))
}
