package request

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// signalOf returns the health signal of a response to a request of a known API.
func signalOf(t *testing.T, r ResponseHeaders, body string, end func(rc *Context)) HealthSignal {
	t.Helper()
	pool := newFakePool()
	pool.result.Streaming, pool.result.Generates, pool.result.Inference = r.Events, true, true
	rc := begin(pool)
	rc.PickEndpoint(context.Background(), nil)
	rc.ConfirmSent()
	rc.OnResponseHeaders(&r)
	if body != "" {
		rc.OnResponseChunk([]byte(body))
	}
	end(rc)
	rc.EndRequest(nil)
	if len(pool.signals) == 0 {
		return NoSignal
	}
	assert.Len(t, pool.signals, 1)
	return pool.signals[0]
}

func TestHealthSignal(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	tests := []struct {
		name string
		give ResponseHeaders
		body string
		end  func(rc *Context)
		want HealthSignal
	}{
		{name: "an object", give: ResponseHeaders{Status: 200}, body: `{"choices":[{}]}`, want: Answered},
		{name: "events", give: ResponseHeaders{Status: 200, Events: true}, body: text + "data: [DONE]\n\n", want: Answered},
		{name: "compressed", give: ResponseHeaders{Status: 200, Events: true, Encoded: true}, body: "\x1f\x8b", want: Answered},
		{name: "compressed, although that was not accepted", give: ResponseHeaders{Status: 200, Encoded: true, UnacceptedEncoding: true},
			body: "\x1f\x8b", want: Doubtful},
		{name: "not shown", give: ResponseHeaders{Status: 200, Hidden: true}, want: Answered},
		{name: "not shown, and its end neither", give: ResponseHeaders{Status: 200, Hidden: true}, end: func(*Context) {}, want: Answered},
		{name: "nothing", give: ResponseHeaders{Status: 200}, want: Faulty},
		{name: "no event", give: ResponseHeaders{Status: 200, Events: true}, want: Faulty},
		{name: "half an answer", give: ResponseHeaders{Status: 200, Events: true}, body: text, want: Faulty},
		{name: "an error event", give: ResponseHeaders{Status: 200, Events: true}, body: `data: {"error":{"code":503}}` + "\n\n",
			end: func(*Context) {}, want: Faulty},
		{name: "another object", give: ResponseHeaders{Status: 200}, body: `{"status":"queued"}`, want: Doubtful},
		{name: "an accepted request", give: ResponseHeaders{Status: 202}, body: `{"status":"queued"}`, want: Doubtful},
		{name: "text", give: ResponseHeaders{Status: 200}, body: `Service starting`, want: Doubtful},
		{name: "an error object", give: ResponseHeaders{Status: 200}, body: `{"error":{"code":503}}`, want: Faulty},
		{name: "an error object for a wrong request", give: ResponseHeaders{Status: 200}, body: `{"error":{"code":400}}`, want: Doubtful},
		{name: "an error event for a wrong request", give: ResponseHeaders{Status: 200, Events: true},
			body: `data: {"error":{"code":400}}` + "\n\n", want: Doubtful},
		{name: "a page", give: ResponseHeaders{Status: 200, HTML: true}, body: `<html>`, want: Faulty},
		{name: "a login page", give: ResponseHeaders{Status: 302}, want: Faulty},
		{name: "500", give: ResponseHeaders{Status: 500}, body: `{}`, want: Faulty},
		{name: "503", give: ResponseHeaders{Status: 503}, want: Faulty},
		{name: "too many requests", give: ResponseHeaders{Status: 429}, want: Faulty},
		{name: "not implemented", give: ResponseHeaders{Status: 501}, want: Doubtful},
		{name: "not found", give: ResponseHeaders{Status: 404}, body: `{}`, want: Doubtful},
		{name: "a wrong request", give: ResponseHeaders{Status: 422}, want: Doubtful},
		{name: "no status", give: ResponseHeaders{}, want: NoSignal},
		{name: "the client has gone", give: ResponseHeaders{Status: 200, Events: true}, body: text, end: func(*Context) {},
			want: NoSignal},
		{name: "the server has gone", give: ResponseHeaders{Status: 200, Events: true}, body: text,
			end: func(rc *Context) { rc.ReportHealth(Faulty) }, want: Faulty},
		{name: "the client has gone before any event", give: ResponseHeaders{Status: 200, Events: true}, end: (*Context).OnClientGone,
			want: Silent},
		{name: "the client has gone after comments", give: ResponseHeaders{Status: 200, Events: true}, body: ": ping\n\n",
			end: (*Context).OnClientGone, want: Silent},
		{name: "the client has gone after an event", give: ResponseHeaders{Status: 200, Events: true}, body: text,
			end: (*Context).OnClientGone, want: Silent},
		{name: "the client has gone after an error", give: ResponseHeaders{Status: 404}, end: (*Context).OnClientGone, want: Doubtful},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.end == nil {
				tt.end = (*Context).OnResponseEnd
			}
			assert.Equal(t, tt.want, signalOf(t, tt.give, tt.body, tt.end))
		})
	}
}

func TestHealthSignal_ClientThatHasGone(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		pool := newFakePool()
		rc := begin(pool)
		rc.Inference, pool.result.Inference = known, known
		rc.OnClientGone()
		assert.Empty(t, pool.signals, "no server has the request")
		rc.PickEndpoint(context.Background(), nil)
		rc.ConfirmSent()
		rc.OnClientGone()
		rc.EndRequest(nil)
		if known {
			assert.Equal(t, []HealthSignal{Silent}, pool.signals)
		} else {
			assert.Empty(t, pool.signals, "answers of other APIs may take as long as they like")
		}
	}
}

func TestContext_Failure(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	tests := []struct {
		give ResponseHeaders
		body string
		want string
	}{
		{want: "no answer"},
		{give: ResponseHeaders{Status: 502, Unanswered: true}, want: "no answer"},
		{give: ResponseHeaders{Status: 302}, want: "status 302"},
		{give: ResponseHeaders{Status: 500}, body: "{}", want: "status 500"},
		{give: ResponseHeaders{Status: 200, HTML: true}, body: "<html>", want: "a page of HTML"},
		{give: ResponseHeaders{Status: 200, Encoded: true, UnacceptedEncoding: true}, body: "\x1f\x8b",
			want: "compressed, which the request did not accept"},
		{give: ResponseHeaders{Status: 200, Events: true}, body: `data: {"error":{"code":503}}` + "\n\n", want: "error in the body"},
		{give: ResponseHeaders{Status: 200, Events: true}, body: ": ping\n\n", want: "no content"},
		{give: ResponseHeaders{Status: 200, Events: true}, body: text, want: "ended early"},
	}
	for _, tt := range tests {
		pool := newFakePool()
		rc := begin(pool)
		pool.result.Streaming, pool.result.Generates, pool.result.Inference = tt.give.Events, true, true
		rc.PickEndpoint(context.Background(), nil)
		rc.OnResponseHeaders(&tt.give)
		rc.OnResponseChunk([]byte(tt.body))
		assert.Equal(t, tt.want, rc.describeFailure())
	}
}

func TestContext_Failed(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	rc := begin(pool)
	rc.PickEndpoint(context.Background(), nil)
	for _, status := range []int{0, 200, 503} {
		rc.OnFailedAttempt("10.0.0.1:8000", status)
	}
	assert.Equal(t, []string{
		"Failed 10.0.0.1:8000: no answer", "Failed 10.0.0.1:8000: error in the body", "Failed 10.0.0.1:8000: status 503",
	}, pool.calls[len(pool.calls)-3:])
}

func TestHealthSignal_UnknownAPI(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give            ResponseHeaders
		body            string
		generates, want HealthSignal // of a request with a body, and of one without
	}{
		{give: ResponseHeaders{Status: 200}, body: "a", generates: Answered, want: Answered},
		{give: ResponseHeaders{Status: 200}, body: `{"results":[]}`, generates: Answered, want: Answered},
		{give: ResponseHeaders{Status: 200}, generates: Doubtful, want: Answered},
		{give: ResponseHeaders{Status: 200}, body: `{"error":{"code":503}}`, generates: Doubtful, want: Answered},
		{give: ResponseHeaders{Status: 200, Events: true}, body: "data:{\"error\":\"overloaded\"}\n\n", generates: Doubtful, want: Answered},
		{give: ResponseHeaders{Status: 501}, generates: Doubtful, want: NoSignal},
		{give: ResponseHeaders{Status: 204}, generates: Answered, want: Answered},
		{give: ResponseHeaders{Status: 200, HTML: true}, generates: Doubtful, want: Answered},
		{give: ResponseHeaders{Status: 302}, generates: Doubtful, want: NoSignal},
		{give: ResponseHeaders{Status: 404}, generates: Doubtful, want: NoSignal},
		{give: ResponseHeaders{Status: 429}, generates: Faulty, want: Faulty},
		{give: ResponseHeaders{Status: 500}, generates: Faulty, want: Faulty},
	}
	for _, tt := range tests {
		for _, generates := range []bool{true, false} {
			pool := newFakePool()
			rc := begin(pool)
			pool.result.Generates = generates
			rc.PickEndpoint(context.Background(), nil)
			rc.OnResponseHeaders(&tt.give)
			rc.OnResponseChunk([]byte(tt.body))
			rc.OnResponseEnd()
			rc.EndRequest(nil)
			want := tt.want
			if generates {
				want = tt.generates
			}
			if want == NoSignal {
				assert.Empty(t, pool.signals, tt.give)
			} else {
				assert.Equal(t, []HealthSignal{want}, pool.signals, tt.give)
			}
		}
	}
}

// TestHealthSignal_Bytes has answers that are no text, and begin like an object.
func TestHealthSignal_Bytes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]HealthSignal{"application/octet-stream": Answered, "Audio/Wav": Answered, "application/json": Faulty} {
		pool := newFakePool()
		rc := begin(pool)
		pool.result.Generates, pool.result.Inference, pool.result.UsageFormat = true, true, api.FormatOpen
		rc.PickEndpoint(context.Background(), nil)
		r := ResponseHeaders{Status: 200}
		r.SetContentType(kind)
		rc.OnResponseHeaders(&r)
		rc.OnResponseChunk([]byte("{\x01"))
		rc.OnResponseEnd()
		rc.EndRequest(nil)
		assert.Equal(t, []HealthSignal{want}, pool.signals, kind)
	}
}

// TestHealthSignal_RedirectsToAnotherSpelling has paths that servers redirect to the ones without their last slashes.
func TestHealthSignal_RedirectsToAnotherSpelling(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]HealthSignal{
		"/v1/completions": Faulty, "/v1/completions?a=/": Faulty, "/v1/completions/": Doubtful, "/v1/completions/?a": Doubtful,
		"//v1/completions": Doubtful,
	} {
		pool := newFakePool()
		rc := begin(pool)
		pool.result.Generates, pool.result.Inference, rc.Path = true, true, path
		rc.PickEndpoint(context.Background(), nil)
		rc.OnResponseHeaders(&ResponseHeaders{Status: 307})
		rc.OnResponseEnd()
		rc.EndRequest(nil)
		assert.Equal(t, []HealthSignal{want}, pool.signals, path)
	}
}

func TestHealthSignal_CarrierThatSeesNoBody(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	rc := begin(pool)
	rc.Input.Blind, pool.result.Inference = true, true
	rc.PickEndpoint(context.Background(), nil)
	rc.OnResponseHeaders(&ResponseHeaders{Status: 200})
	rc.OnResponseEnd()
	rc.EndRequest(nil)
	assert.Equal(t, []HealthSignal{Answered}, pool.signals)
}

func TestFailedRequestCountsUntilAnAnswerWouldHaveEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		busy   time.Duration
		want   float64
	}{{500, time.Second, 1}, {500, -time.Second, 0}, {500, 0, 0}} {
		pool := newFakePool()
		if tt.busy != 0 {
			pool.busy = noon.Add(tt.busy)
		}
		rc := begin(pool)
		rc.PickEndpoint(context.Background(), nil)
		rc.OnResponseHeaders(&ResponseHeaders{Status: tt.status})
		rc.OnResponseEnd()
		rc.EndRequest(nil)
		assert.InDelta(t, tt.want, pool.endpoint.Load().Requests, 0)
		pool.endpoint.ExpireFailed(noon.Add(tt.busy), 0)
		assert.Zero(t, pool.endpoint.Load().Requests)
	}
}

func TestAnswerOfAnotherFormIsNoFirstToken(t *testing.T) {
	t.Parallel()
	for _, r := range []ResponseHeaders{{Status: 200}, {Status: 200, HTML: true}, {Status: 200, Events: true, HTML: true}} {
		pool := newFakePool()
		rc := begin(pool)
		pool.result.Streaming, pool.result.Inference = true, true
		rc.PickEndpoint(context.Background(), nil)
		rc.OnResponseHeaders(&r)
		rc.OnResponseChunk([]byte("data: a\n\n"))
		assert.NotContains(t, pool.calls, "Began")
	}
}
