package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/pkg/memnet"
)

func TestRun_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), []string{"--nam=a"}), "unknown flag")
	assert.ErrorContains(t, run(t.Context(), []string{"a"}), `unexpected argument "a"`)
}

func TestServe_SpeaksBothVersionsOnOnePort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := start(t.Context(), t)
		for _, want := range []string{"HTTP/1.1", "HTTP/2.0"} {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(want == "HTTP/1.1")
			protocols.SetUnencryptedHTTP2(want == "HTTP/2.0")
			transport := &http.Transport{DialContext: l.Dial, Protocols: protocols}
			t.Cleanup(transport.CloseIdleConnections)
			resp := get(t, &http.Client{Transport: transport}, "/")
			var got echo.Answer
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
			assert.Equal(t, want, got.Protocol)
		}
	})
}

func TestServe_AnswersWhatItWasAskedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := start(ctx, t)
		resp := get(t, &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}}, "/?events=2&interval=1h")
		cancel() // after the header and before the last event
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "data: {\"name\":\"a\",\"index\":1}\n\ndata: {\"name\":\"a\",\"index\":2}\n\n", string(raw))
		_, err = l.Dial(t.Context(), "", "")
		assert.Error(t, err, "the server has closed its listener")
	})
}

// start starts a server until ctx ends, and returns its listener. The test waits for the end of the server.
func start(ctx context.Context, t *testing.T) *memnet.Listener {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l := memnet.Listen()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, echo.New("a")) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return l
}

func get(t *testing.T, client *http.Client, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo"+path, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}
