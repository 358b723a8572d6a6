package chatload

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failure is an answer and the class that it has.
type failure struct {
	name    string
	handler http.HandlerFunc
	change  func(*Options)
	class   Class
	message string
}

// failures returns answers of all classes.
func failures() []failure {
	abort := func() { panic(http.ErrAbortHandler) }
	endpoints := func(picked, served string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerPickedEndpoint, picked)
			w.Header().Set(headerServedEndpoint, served)
			answer(w)
		}
	}
	return []failure{
		{"status", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no endpoint is ready", 503) }, nil, ClassStatus,
			"status 503: no endpoint is ready"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", 302) }, nil, ClassStatus, "status 302"},
		{"not a stream", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, events(role, last, done)) }, nil, ClassMalformed,
			"not a stream of events"},
		{"closed before an answer", func(http.ResponseWriter, *http.Request) { abort() }, nil, ClassReset, "EOF"},
		{"closed in the stream", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, role, delta)
			_ = http.NewResponseController(w).Flush()
			abort()
		}, nil, ClassReset, "read stream after 1 tokens: unexpected EOF"},
		{"closed after [DONE]", func(w http.ResponseWriter, _ *http.Request) {
			answer(w)
			_ = http.NewResponseController(w).Flush()
			abort()
		}, nil, ClassReset, "unexpected EOF"},
		{"ended early", func(w http.ResponseWriter, _ *http.Request) { answer(w, role, delta) }, nil, ClassTruncated, "without [DONE]"},
		{"not a completion", func(w http.ResponseWriter, _ *http.Request) { answer(w, delta) }, nil, ClassMalformed, "role of the assistant"},
		{"no usage", func(w http.ResponseWriter, _ *http.Request) { answer(w, role, delta, last, done) }, nil, ClassTokens, "no usage"},
		{"a token lost", func(w http.ResponseWriter, _ *http.Request) { answer(w, role, last, total, done) }, nil, ClassTokens,
			"received 1 tokens, but the server reports 2"},
		{"too few tokens", func(w http.ResponseWriter, _ *http.Request) { answer(w) }, func(o *Options) { o.MaxTokens = 3 }, ClassTokens,
			"received 2 tokens, but requested 3"},
		{"fewer than allowed", func(w http.ResponseWriter, _ *http.Request) { answer(w) }, func(o *Options) { o.MaxTokens, o.IgnoreEOS = 3, false }, ClassNone, ""},
		{"more than allowed", func(w http.ResponseWriter, _ *http.Request) { answer(w) }, func(o *Options) { o.MaxTokens, o.IgnoreEOS = 1, false }, ClassTokens,
			"received 2 tokens, but requested 1"},
		{"served by another", endpoints("10.0.0.1:8000", "10.0.0.2:8000"), nil, ClassPicked,
			`picked endpoint is "10.0.0.1:8000", but "10.0.0.2:8000" answered`},
		{"served by another port", endpoints("10.0.0.1:8000", "10.0.0.1:8001"), nil, ClassPicked, "picked endpoint is"},
		{"no picked endpoint", endpoints("", "10.0.0.1:8000"), nil, ClassNone, ""},
		{"no picked endpoint, but required", endpoints("", "10.0.0.1:8000"), func(o *Options) { o.RequirePicked = true }, ClassPicked,
			`picked endpoint is ""`},
		{"too slow", func(_ http.ResponseWriter, r *http.Request) { waitForClient(r) }, func(o *Options) { o.Timeout = 50 * time.Millisecond }, ClassTimeout, "deadline"},
		{"too slow in the stream", func(w http.ResponseWriter, r *http.Request) {
			answer(w, role, delta)
			_ = http.NewResponseController(w).Flush()
			waitForClient(r)
		}, func(o *Options) { o.Timeout = 200 * time.Millisecond }, ClassTimeout, "deadline"},
	}
}

// check sends a request with options, and compares the report with the class.
func (f *failure) check(t *testing.T, o Options) {
	t.Helper()
	if f.change != nil {
		f.change(&o)
	}
	report, results := run(t, o)
	require.Len(t, results, 1)
	assert.Equal(t, f.class, results[0].Class)
	if f.class == ClassNone {
		require.NoError(t, results[0].Err)
		assert.Equal(t, 0, report.Failed())
		return
	}
	require.ErrorContains(t, results[0].Err, f.message)
	assert.Equal(t, map[Class]int{f.class: 1}, report.Failures)
	assert.Equal(t, 1, report.Failed())
}

func TestFailureClasses(t *testing.T) {
	t.Parallel()
	for _, tt := range failures() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tt.check(t, serve(t, tt.handler)) })
		})
	}
}

func TestConnectFailures(t *testing.T) {
	t.Parallel()
	o := options("http://server")
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no endpoint of the Service is ready")
	}
	_, results := run(t, o)
	assert.Equal(t, ClassConnect, results[0].Class)
	require.ErrorContains(t, results[0].Err, "no endpoint of the Service is ready")
}
