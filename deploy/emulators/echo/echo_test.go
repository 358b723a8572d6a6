package echo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/pkg/memnet"
)

func TestServer_SaysWhatReachedIt(t *testing.T) {
	t.Parallel()
	client := connect(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://echo/x//y%2Fz/%41/?q=a%20b&q=c+d&;", strings.NewReader("hello"))
	require.NoError(t, err)
	req.Host = "models.example.com"
	req.Header["X-Two"] = []string{"1", "2"}

	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var got echo.Answer
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "a", resp.Header.Get(echo.NameHeader))
	assert.Equal(t, []string{"1", "2"}, got.Headers["X-Two"])
	assert.Positive(t, got.Body.Took)
	got.Headers, got.Body.Took = nil, 0
	assert.Equal(t, echo.Answer{Name: "a", Protocol: "HTTP/1.1", Method: "PUT", Host: "models.example.com", Path: "/x//y%2Fz/%41/", Query: "q=a%20b&q=c+d&;",
		Body: echo.Body{Bytes: 5, SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}}, got)
}

func TestServer_SaysHowLongABodyTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, slow := io.Pipe()
		w := httptest.NewRecorder()
		go func() {
			time.Sleep(3 * time.Second)
			slow.Close()
		}()
		echo.New("a").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body))
		var got echo.Answer
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		assert.EqualValues(t, 3, got.Body.Took)
	})
}

func TestServer_HoldsABodyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		begun, w := time.Now(), httptest.NewRecorder()
		go func() {
			_, _ = client.Write([]byte("x")) // returns when the server has read it
			assert.Equal(t, 3*time.Second, time.Since(begun))
			client.Close()
		}()
		echo.New("a").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/?hold=3s", body))
		var got echo.Answer
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		assert.EqualValues(t, 1, got.Body.Bytes)
		assert.Zero(t, got.Body.Took, "the body was complete")
	})
}

func TestServer_StatusAndDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, w := time.Now(), httptest.NewRecorder()
		echo.New("a").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?status=503&delay=70s", nil))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, 70*time.Second, time.Since(begun))
		assert.Contains(t, w.Body.String(), `"name":"a"`, "the status does not change the answer")
	})
}

func TestServer_WrongParameterIsABadRequest(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	echo.New("a").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?events=x", nil))
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), "events")
	assert.Equal(t, "a", w.Header().Get(echo.NameHeader))
}

func TestServer_StreamsEventByEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := connect(t)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo/?status=201&events=3&interval=20ms&pause=60ms", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, http.StatusCreated, resp.StatusCode)
		assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))

		var got []string
		var at []time.Time
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() != "" {
				got, at = append(got, lines.Text()), append(at, time.Now())
			}
		}
		require.Equal(t, []string{`data: {"name":"a","index":1}`, `data: {"name":"a","index":2}`, `data: {"name":"a","index":3}`}, got)
		assert.Equal(t, 20*time.Millisecond, at[1].Sub(at[0]))
		assert.Equal(t, 80*time.Millisecond, at[2].Sub(at[1]))
	})
}

// connect starts a server, and returns a client whose requests all go there.
func connect(t *testing.T) *http.Client {
	t.Helper()
	l := memnet.Listen()
	server := &http.Server{Handler: echo.New("a"), ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	transport := &http.Transport{DialContext: l.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, server.Close())
		<-ended
	})
	return &http.Client{Transport: transport}
}

func TestServer_ClientThatGoesEndsItsAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give string }{
		{name: "before the server reads the request", give: "/?hold=1h"},
		{name: "before the answer", give: "/?delay=1h"},
		{name: "in the middle of a stream", give: "/?events=2&interval=1h"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				r := httptest.NewRequest(http.MethodGet, tt.give, nil)
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				echo.New("a").ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				assert.Equal(t, time.Second, time.Since(begun))
			})
		})
	}
}
