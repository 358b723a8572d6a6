package httpproxy

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	answered = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"
	wrong    = "data: {\"error\":{\"message\":\"the prompt is too long\",\"code\":400}}\n\n"
	queueing = "data: {\"error\":{\"message\":\"the queue is full\",\"code\":503}}\n\n"
)

// respond returns a handler that sends pieces.
func respond(status int, kind string, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{kind}
		w.WriteHeader(status)
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// TestAnotherServerAnswers has a first server that fails without any content, and a second one that answers.
func TestAnotherServerAnswers(t *testing.T) {
	t.Parallel()
	const events, object = "text/event-stream", "application/json"
	good := respond(200, events, answered)
	tests := []struct {
		name  string
		path  string
		first http.HandlerFunc
		want  string // of the first server; empty: the second one answers
	}{
		{name: "500", first: respond(500, object, `{"error":{}}`)},
		{name: "502", first: respond(502, object)},
		{name: "503", first: respond(503, object)},
		{name: "504", first: respond(504, object)},
		{name: "429", first: respond(429, object)},
		{name: "a redirect", first: respond(302, "text/html", "<html>")},
		{name: "an error event", first: respond(200, events, queueing)},
		{name: "a role, and an error", first: respond(200, events, `data: {"choices":[{"delta":{"role":"assistant"}}]}`+"\n\n", queueing)},
		{name: "the beginning of a message, and an error", first: respond(200, events, "event: message_start\ndata: {\"type\":\"message_start\"}\n\n", "event: error\ndata: {}\n\n")},
		{name: "the end only", first: respond(200, events, "data: [DONE]\n\n")},
		{name: "not implemented", first: respond(501, object)},
		{name: "overloaded", first: respond(529, object)},
		{name: "no content", first: respond(204, "")},
		{name: "an error object in pieces", first: respond(200, object, `{"object":"error",`, `"message":"full"}`)},
		{name: "a large error object", first: respond(200, object, `{"error":"`+strings.Repeat("a", 3*pieceSize)+`"}`)},
		{name: "a page without its type", first: respond(200, "", "<html>")},
		{name: "an error event in pieces", first: respond(200, events, queueing[:20], queueing[20:])},
		{name: "an error of Anthropic", first: respond(200, events, "event: error\n", "data: {\"type\":\"error\"}\n\n")},
		{name: "nothing", first: respond(200, events)},
		{name: "blank lines", first: respond(200, events, "\n\n")},
		{name: "an empty object", first: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") }},
		{name: "an error object", first: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"error":{"code":503}}`) }},
		{name: "a page", first: respond(200, "text/html; charset=utf-8", "<html>")},
		{name: "no response", first: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "events that break off", first: func(w http.ResponseWriter, r *http.Request) {
			respond(200, events, "data: {")(w, r)
			panic(http.ErrAbortHandler)
		}},

		{name: "an answer", first: good, want: answered},
		{name: "a comment, and an error later", first: respond(200, events, ": ping\n\n", queueing), want: ": ping\n\n" + queueing},
		{name: "a ping, and an error later", first: respond(200, events, "event: ping\ndata: {}\n\n", queueing), want: "event: ping\ndata: {}\n\n" + queueing},
		{name: "a small object", first: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[{}]}`) }, want: `{"choices":[{}]}`},
		{name: "an object of an API that is not known", first: respond(200, object, `{"status":"queued"}`), want: `{"status":"queued"}`},
		{name: "an object in pieces", first: respond(200, object, `{"choi`, `ces":[{}]}`), want: `{"choices":[{}]}`},
		{name: "a comment in a stream whose type is another", first: respond(200, "text/plain", answered), want: answered},
		{name: "a large object", first: respond(200, object, `{"choices":"`+strings.Repeat("a", 3*pieceSize)+`"}`), want: `{"choices":"` + strings.Repeat("a", 3*pieceSize) + `"}`},
		{name: "a long event", first: respond(200, events, "data: "+strings.Repeat("a", 3*pieceSize)+"\n\n"), want: "data: " + strings.Repeat("a", 3*pieceSize) + "\n\n"},
		{name: "not found", first: respond(404, object, `{}`), want: `{}`},
		{name: "an error event for a wrong request", first: respond(200, events, wrong), want: wrong},
		{name: "a redirect to a path without the last slash", path: "/v1/chat/completions/", first: respond(307, object, `{}`), want: `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, testOptions(), limits.Limits{})
				r.pool.decision.Inference = true
				first, second := r.serve(tt.first), r.serve(good)
				a := r.do(r.client(), "POST", cmp.Or(tt.path, "/v1/chat/completions"), "{}")
				record := r.pool.ended(t, 1)[0]
				if tt.want != "" {
					assert.Equal(t, tt.want, a.body)
					assert.Equal(t, first, record.Served)
					assert.Zero(t, r.ProxyStats().Retries)
					return
				}
				assert.Equal(t, answered, a.body)
				assert.Equal(t, 200, a.status)
				assert.Equal(t, second, record.Served)
				assert.Equal(t, int64(1), r.ProxyStats().Retries)
				assert.Equal(t, []string{first}, r.pool.failures)
				assert.Zero(t, r.pool.inFlight())
			})
		})
	}
}

// TestLastServerAnswers has servers that all fail: the client gets the answer of the last one.
func TestLastServerAnswers(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]string{1: "first", 2: "second", 3: "third", 9: "third"} {
		synctest.Test(t, func(t *testing.T) {
			o := testOptions()
			o.MaxAttempts = attempts
			r := start(t, o, limits.Limits{})
			r.pool.decision.Inference = true
			for _, name := range []string{"first", "second", "third"} {
				r.serve(respond(503, "text/plain", name))
			}
			a := r.do(r.client(), "POST", "/v1/chat/completions", "{}")
			assert.Equal(t, 503, a.status)
			assert.Equal(t, want, a.body)
		})
	}
}

// TestStoredAnswersHaveOneServer has requests that must not run twice.
func TestStoredAnswersHaveOneServer(t *testing.T) {
	t.Parallel()
	for _, d := range []request.Decision{{}, {Inference: true, ResponseID: &api.ResponseIDReader{}}} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, testOptions(), limits.Limits{})
			r.pool.decision = d
			r.serveRaw(func(_ int, c net.Conn) {
				_ = readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
			})
			r.serve(echo)
			assert.Equal(t, 503, r.do(r.client(), "POST", "/v1/responses", "{}").status)
		})
	}
}
