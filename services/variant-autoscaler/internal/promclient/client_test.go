package promclient

import (
	"context"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

const emptyVector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// stub is a Prometheus in memory, and the configuration of its clients.
type stub struct {
	Config

	memory *memnet.Listener
}

// serve starts a stub.
func serve(t *testing.T, handler http.HandlerFunc) stub {
	t.Helper()
	memory := memnet.Listen()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(memory) // until it is closed
	}()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		<-ended
	})
	return stub{Config{Prometheus: settings.Prometheus{BaseURL: "http://prometheus.example"}, Timeout: time.Minute}, memory}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func newClient(t *testing.T, stub stub) *Client {
	t.Helper()
	return newLoggingClient(t, stub, zap.NewNop())
}

func newLoggingClient(t *testing.T, stub stub, log *zap.Logger) *Client {
	t.Helper()
	c, err := New(stub.Config, log)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	transport, err := c.credentials.currentTransport()
	require.NoError(t, err)
	transport.DialContext = stub.memory.Dial
	return c
}

// answers returns a handler with one answer.
func answers(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "POST /prefix/api/v1/query", r.Method+" "+r.URL.String())
		assert.Equal(t, `up{job="a"} or on (pod) b`, r.FormValue("query"))
		assert.Equal(t, "60000ms", r.FormValue("timeout"))
		assert.Equal(t, "false", r.FormValue("partial_response"))
		assert.Empty(t, r.Header.Get("Authorization"))
		answers(http.StatusOK, `{"status":"success","warnings":["PromQL warning: x"],"infos":["y"],"data":{"resultType":"vector","result":[`+
			`{"metric":{"pod":"a"},"value":[1435781451.781,"0.25"]},{"metric":{},"value":[1435781451,"NaN"]},`+
			`{"metric":{"pod":"b"},"value":[1435781451.781,"+Inf"]},{"metric":{"pod":"c"},"value":[1435781451.781,"1e999"]}]}}`)(w, r)
	})
	config.BaseURL += "/prefix/"
	series, err := newClient(t, config).Query(t.Context(), `up{job="a"} or on (pod) b`)
	require.NoError(t, err)
	require.Len(t, series, 4)
	assert.Equal(t, Series{Labels: map[string]string{"pod": "a"}, Value: 0.25}, series[0])
	assert.True(t, math.IsNaN(series[1].Value))
	assert.True(t, math.IsInf(series[2].Value, 1))
	assert.True(t, math.IsInf(series[3].Value, 1))
}

func TestAnswersThatAreErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		code int
		body string
		want string
	}{
		{"bad expression", http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"unexpected\nend"}`,
			`Prometheus answered 400 Bad Request (bad_data): "unexpected\nend"`},
		{"timeout", http.StatusServiceUnavailable, `{"status":"error","errorType":"timeout","error":"too slow"}`, "503 Service Unavailable (timeout)"},
		{"unauthorized", http.StatusUnauthorized, "no", "401 Unauthorized: set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH"},
		{"forbidden", http.StatusForbidden, "", "403 Forbidden: give the user of the token the right to query"},
		{"another program", http.StatusNotFound, "<html>", "404 Not Found: check PROMETHEUS_BASE_URL"},
		{"a page", http.StatusOK, "<html>", "check that PROMETHEUS_BASE_URL leads to a Prometheus"},
		{"nothing", http.StatusOK, "", "read the answer of Prometheus: unexpected end of JSON input"},
		{"half of it", http.StatusOK, emptyVector[:40], "unexpected end of JSON input"},
		{"null", http.StatusOK, "null", "status , result"},
		{"error with 200", http.StatusOK, `{"status":"error","errorType":"execution","error":"x"}`, "(execution)"},
		{"a matrix", http.StatusOK, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "result matrix"},
		{"a histogram", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`, "read a value"},
		{"not a number", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}`, "read a value"},
		{"stores missing", http.StatusOK, `{"status":"success","warnings":["store a: unavailable"],"data":{"resultType":"vector","result":[]}}`,
			`incomplete: "store a: unavailable"`},
		{"a long error", http.StatusInternalServerError, `{"status":"error","error":"` + strings.Repeat("x", 5000) + `"}`, "xxx…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			series, err := newClient(t, serve(t, answers(tt.code, tt.body))).Query(t.Context(), "up")
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, series)
			assert.Less(t, len(err.Error()), 600)
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const element = `{"metric":{},"value":[1,"1"]}`
	var sent atomic.Int64
	config := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		piece := []byte(strings.Repeat(element+",", 1000))
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[`))
		for range 10_000 { // 300 MB
			n, err := w.Write(piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	_, err := newClient(t, config).Query(t.Context(), "up")
	require.ErrorContains(t, err, "more than 8388608 bytes: too many series match")
	assert.Less(t, sent.Load(), int64(100<<20), "the client stopped to read")

	few := serve(t, answers(http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[`+element+","+element+","+element+`]}}`))
	few.MaxSeries = 3
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.NoError(t, err)
	few.MaxSeries = 2
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.ErrorContains(t, err, "3 series, more than 2")

	few.MaxBytes = 10
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.ErrorContains(t, err, "more than 10 bytes")
}

func TestHangingServer(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"before the answer": "", "in the answer": `{"status":`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				config := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if begin != "" {
						_, _ = w.Write([]byte(begin))
						w.(http.Flusher).Flush()
					}
					<-done
				})
				t.Cleanup(func() { close(done) })
				config.Timeout = 10 * time.Second
				began := time.Now()
				_, err := newClient(t, config).Query(t.Context(), "up")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "no answer in time, which is at most 10s")
				assert.Equal(t, config.Timeout, time.Since(began))
			})
		})
	}
}

func TestTokenFileIsFollowed(t *testing.T) {
	t.Parallel()
	var want atomic.Value
	want.Store("Bearer one")
	var queries atomic.Int64
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries.Add(1)
		if r.Header.Get("Authorization") != want.Load() {
			answers(http.StatusUnauthorized, "")(w, r)
			return
		}
		answers(http.StatusOK, emptyVector)(w, r)
	})
	config.TokenPath = write(t, "token", "one\n")
	c := newClient(t, config)
	_, err := c.Query(t.Context(), "up")
	require.NoError(t, err)

	// A change that its time shows is read before the query.
	require.NoError(t, os.WriteFile(config.TokenPath, []byte("second\n"), 0o600))
	want.Store("Bearer second")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, int64(1), queries.Load())

	// A change that nothing shows is read when the server refuses the token.
	info, err := os.Stat(config.TokenPath)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config.TokenPath, []byte("tokens\n"), 0o600))
	require.NoError(t, os.Chtimes(config.TokenPath, info.ModTime(), info.ModTime()))
	want.Store("Bearer tokens")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, int64(2), queries.Load())

	// A token that stays refused is sent once.
	want.Store("Bearer another")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "401 Unauthorized")
	assert.Equal(t, int64(1), queries.Load())
}

func TestUnreadableTokens(t *testing.T) {
	t.Parallel()
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer good", r.Header.Get("Authorization"))
		answers(http.StatusOK, emptyVector)(w, r)
	})
	config.TokenPath = write(t, "token", "two\nlines")
	core, logs := observer.New(zap.WarnLevel)
	c := newLoggingClient(t, config, zap.New(core)) // the file may come later
	logs.TakeAll()
	_, err := c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "no HTTP header can have: check PROMETHEUS_TOKEN_PATH")
	assert.NotContains(t, err.Error(), "lines")

	require.NoError(t, os.WriteFile(config.TokenPath, []byte("good"), 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	require.NoError(t, os.Remove(config.TokenPath))
	for range 3 {
		_, err = c.Query(t.Context(), "up")
		require.NoError(t, err, "the last good token stays")
	}
	assert.Equal(t, 1, logs.Len(), "it is reported once")

	require.NoError(t, os.WriteFile(config.TokenPath, []byte(strings.Repeat("x", 2<<20)), 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err, "a huge file is not read")

	config.BearerToken = " good "
	_, err = newClient(t, config).Query(t.Context(), "up")
	require.NoError(t, err, "the literal token wins")
}

// TestRefusedAndUnreadable: the file of a refused token is gone. That is reported once, not for each query.
func TestRefusedAndUnreadable(t *testing.T) {
	t.Parallel()
	config := serve(t, answers(http.StatusUnauthorized, ""))
	config.TokenPath = write(t, "token", "old")
	core, logs := observer.New(zap.WarnLevel)
	c := newLoggingClient(t, config, zap.New(core))
	logs.TakeAll()
	_, err := c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "401")
	require.NoError(t, os.Remove(config.TokenPath))
	for range 5 {
		_, err = c.Query(t.Context(), "up")
		require.ErrorContains(t, err, "401")
	}
	assert.Equal(t, 1, logs.Len())
}

func TestRedirectsAreErrors(t *testing.T) {
	t.Parallel()
	const other = "other.example"
	var stolen atomic.Int64
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		config := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Host == other {
				stolen.Add(1)
				return
			}
			http.Redirect(w, r, "http://"+other, code)
		})
		config.BearerToken = "secret"
		_, err := newClient(t, config).Query(t.Context(), "up")
		require.ErrorContains(t, err, "redirects to \"http://"+other)
		assert.NotContains(t, err.Error(), "secret")
	}
	assert.Zero(t, stolen.Load())
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"nothing", Config{}, "PROMETHEUS_BASE_URL is not set"},
		{"a password", Config{Prometheus: settings.Prometheus{BaseURL: "https://u:hidden@p"}}, "contains a user"},
		{"not a URL", Config{Prometheus: settings.Prometheus{BaseURL: "https://hidden:pass:word@[::1"}}, "is not a URL"},
		{"a broken token", Config{Prometheus: settings.Prometheus{BaseURL: "https://p", BearerToken: "hidden\r\nX: y"}}, "PROMETHEUS_BEARER_TOKEN: the token contains characters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tt.config, zap.NewNop())
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hidden")
		})
	}
	_, err := New(Config{Prometheus: settings.Prometheus{BearerToken: "\n"}}, zap.NewNop())
	assert.Len(t, strings.Split(err.Error(), "\n"), 2, "all mistakes at once")
}

func TestPlainHTTPIsLogged(t *testing.T) {
	t.Parallel()
	config := serve(t, answers(http.StatusOK, emptyVector))
	config.BearerToken = "t"
	core, logs := observer.New(zap.WarnLevel)
	_, err := newLoggingClient(t, config, zap.New(core)).Query(t.Context(), "up")
	require.NoError(t, err)
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "not encrypted")
	assert.Equal(t, true, logs.All()[0].ContextMap()["sendsToken"])
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	config := serve(t, answers(http.StatusOK, emptyVector))
	config.BearerToken = "secret"
	require.NoError(t, config.memory.Close())
	_, err := newClient(t, config).Query(t.Context(), "up")
	require.ErrorContains(t, err, "query Prometheus: ")
	require.ErrorContains(t, err, "connection refused")
	assert.NotContains(t, err.Error(), "secret")
}
