package exchange

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/answer"
)

// judged returns the verdict on a response to a request of a known API.
func judged(t *testing.T, r Response, body string, end func(x *Exchange)) Verdict {
	t.Helper()
	pool := newFakePool()
	x := begin(pool)
	x.Streaming, x.Generates, x.Inference = r.Events, true, true
	x.Decide(context.Background(), nil)
	x.Sent()
	x.Respond(&r)
	if body != "" {
		x.Chunk([]byte(body))
	}
	end(x)
	x.End(nil)
	if len(pool.verdicts) == 0 {
		return Unjudged
	}
	assert.Len(t, pool.verdicts, 1)
	return pool.verdicts[0]
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	tests := []struct {
		name string
		give Response
		body string
		end  func(x *Exchange)
		want Verdict
	}{
		{name: "an object", give: Response{Status: 200}, body: `{"choices":[{}]}`, want: Answered},
		{name: "events", give: Response{Status: 200, Events: true}, body: text + "data: [DONE]\n\n", want: Answered},
		{name: "compressed", give: Response{Status: 200, Events: true, Encoded: true}, body: "\x1f\x8b", want: Answered},
		{name: "compressed, although that was not accepted", give: Response{Status: 200, Encoded: true, Unasked: true}, body: "\x1f\x8b", want: Doubtful},
		{name: "not shown", give: Response{Status: 200, Hidden: true}, want: Answered},
		{name: "not shown, and its end neither", give: Response{Status: 200, Hidden: true}, end: func(*Exchange) {}, want: Answered},
		{name: "nothing", give: Response{Status: 200}, want: Faulty},
		{name: "no event", give: Response{Status: 200, Events: true}, want: Faulty},
		{name: "half an answer", give: Response{Status: 200, Events: true}, body: text, want: Faulty},
		{name: "an error event", give: Response{Status: 200, Events: true}, body: `data: {"error":{"code":503}}` + "\n\n", end: func(*Exchange) {}, want: Faulty},
		{name: "another object", give: Response{Status: 200}, body: `{"status":"queued"}`, want: Doubtful},
		{name: "an accepted request", give: Response{Status: 202}, body: `{"status":"queued"}`, want: Doubtful},
		{name: "text", give: Response{Status: 200}, body: `Service starting`, want: Doubtful},
		{name: "an error object", give: Response{Status: 200}, body: `{"error":{"code":503}}`, want: Faulty},
		{name: "an error object for a wrong request", give: Response{Status: 200}, body: `{"error":{"code":400}}`, want: Doubtful},
		{name: "an error event for a wrong request", give: Response{Status: 200, Events: true}, body: `data: {"error":{"code":400}}` + "\n\n", want: Doubtful},
		{name: "a page", give: Response{Status: 200, Page: true}, body: `<html>`, want: Faulty},
		{name: "a login page", give: Response{Status: 302}, want: Faulty},
		{name: "500", give: Response{Status: 500}, body: `{}`, want: Faulty},
		{name: "503", give: Response{Status: 503}, want: Faulty},
		{name: "too many requests", give: Response{Status: 429}, want: Faulty},
		{name: "not implemented", give: Response{Status: 501}, want: Doubtful},
		{name: "not found", give: Response{Status: 404}, body: `{}`, want: Doubtful},
		{name: "a wrong request", give: Response{Status: 422}, want: Doubtful},
		{name: "no status", give: Response{}, want: Unjudged},
		{name: "the client has gone", give: Response{Status: 200, Events: true}, body: text, end: func(*Exchange) {}, want: Unjudged},
		{name: "the server has gone", give: Response{Status: 200, Events: true}, body: text, end: func(x *Exchange) { x.Judge(Faulty) }, want: Faulty},
		{name: "the client has gone before any event", give: Response{Status: 200, Events: true}, end: (*Exchange).Left, want: Silent},
		{name: "the client has gone after comments", give: Response{Status: 200, Events: true}, body: ": ping\n\n", end: (*Exchange).Left, want: Silent},
		{name: "the client has gone after an event", give: Response{Status: 200, Events: true}, body: text, end: (*Exchange).Left, want: Silent},
		{name: "the client has gone after an error", give: Response{Status: 404}, end: (*Exchange).Left, want: Doubtful},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.end == nil {
				tt.end = (*Exchange).Complete
			}
			assert.Equal(t, tt.want, judged(t, tt.give, tt.body, tt.end))
		})
	}
}

func TestVerdict_ClientThatHasGone(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		pool := newFakePool()
		x := begin(pool)
		x.Inference = known
		x.Left()
		assert.Empty(t, pool.verdicts, "no server has the request")
		x.Decide(context.Background(), nil)
		x.Sent()
		x.Left()
		x.End(nil)
		if known {
			assert.Equal(t, []Verdict{Silent}, pool.verdicts)
		} else {
			assert.Empty(t, pool.verdicts, "answers of other APIs may take as long as they like")
		}
	}
}

func TestExchange_Failure(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	tests := []struct {
		give Response
		body string
		want string
	}{
		{want: "no answer"},
		{give: Response{Status: 502, Unanswered: true}, want: "no answer"},
		{give: Response{Status: 302}, want: "status 302"},
		{give: Response{Status: 500}, body: "{}", want: "status 500"},
		{give: Response{Status: 200, Page: true}, body: "<html>", want: "a page of HTML"},
		{give: Response{Status: 200, Encoded: true, Unasked: true}, body: "\x1f\x8b", want: "compressed, which the request did not accept"},
		{give: Response{Status: 200, Events: true}, body: `data: {"error":{"code":503}}` + "\n\n", want: "error in the body"},
		{give: Response{Status: 200, Events: true}, body: ": ping\n\n", want: "no content"},
		{give: Response{Status: 200, Events: true}, body: text, want: "ended early"},
	}
	for _, tt := range tests {
		x := begin(newFakePool())
		x.Streaming, x.Generates, x.Inference = tt.give.Events, true, true
		x.Decide(context.Background(), nil)
		x.Respond(&tt.give)
		x.Chunk([]byte(tt.body))
		assert.Equal(t, tt.want, x.Failure())
	}
}

func TestExchange_Failed(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	x := begin(pool)
	x.Decide(context.Background(), nil)
	for _, status := range []int{0, 200, 503} {
		x.Failed("10.0.0.1:8000", status)
	}
	assert.Equal(t, []string{
		"Failed 10.0.0.1:8000: no answer", "Failed 10.0.0.1:8000: error in the body", "Failed 10.0.0.1:8000: status 503",
	}, pool.calls[len(pool.calls)-3:])
}

func TestVerdict_UnknownAPI(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give            Response
		body            string
		generates, want Verdict // of a request with a body, and of one without
	}{
		{give: Response{Status: 200}, body: "a", generates: Answered, want: Answered},
		{give: Response{Status: 200}, body: `{"results":[]}`, generates: Answered, want: Answered},
		{give: Response{Status: 200}, generates: Doubtful, want: Answered},
		{give: Response{Status: 200}, body: `{"error":{"code":503}}`, generates: Doubtful, want: Answered},
		{give: Response{Status: 200, Events: true}, body: "data:{\"error\":\"overloaded\"}\n\n", generates: Doubtful, want: Answered},
		{give: Response{Status: 501}, generates: Doubtful, want: Unjudged},
		{give: Response{Status: 204}, generates: Answered, want: Answered},
		{give: Response{Status: 200, Page: true}, generates: Doubtful, want: Answered},
		{give: Response{Status: 302}, generates: Doubtful, want: Unjudged},
		{give: Response{Status: 404}, generates: Doubtful, want: Unjudged},
		{give: Response{Status: 429}, generates: Faulty, want: Faulty},
		{give: Response{Status: 500}, generates: Faulty, want: Faulty},
	}
	for _, tt := range tests {
		for _, generates := range []bool{true, false} {
			pool := newFakePool()
			x := begin(pool)
			x.Generates = generates
			x.Decide(context.Background(), nil)
			x.Respond(&tt.give)
			x.Chunk([]byte(tt.body))
			x.Complete()
			x.End(nil)
			want := tt.want
			if generates {
				want = tt.generates
			}
			if want == Unjudged {
				assert.Empty(t, pool.verdicts, tt.give)
			} else {
				assert.Equal(t, []Verdict{want}, pool.verdicts, tt.give)
			}
		}
	}
}

// TestVerdict_Bytes has answers that are no text, and begin like an object.
func TestVerdict_Bytes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]Verdict{"application/octet-stream": Answered, "Audio/Wav": Answered, "application/json": Faulty} {
		pool := newFakePool()
		x := begin(pool)
		x.Generates, x.Inference, x.UsageForm = true, true, answer.FormOpen
		x.Decide(context.Background(), nil)
		r := Response{Status: 200}
		r.SetContentType(kind)
		x.Respond(&r)
		x.Chunk([]byte("{\x01"))
		x.Complete()
		x.End(nil)
		assert.Equal(t, []Verdict{want}, pool.verdicts, kind)
	}
}

// TestVerdict_RedirectsToAnotherSpelling has paths that servers redirect to the ones without their last slashes.
func TestVerdict_RedirectsToAnotherSpelling(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]Verdict{
		"/v1/completions": Faulty, "/v1/completions?a=/": Faulty, "/v1/completions/": Doubtful, "/v1/completions/?a": Doubtful, "//v1/completions": Doubtful,
	} {
		pool := newFakePool()
		x := begin(pool)
		x.Generates, x.Inference, x.Path = true, true, path
		x.Decide(context.Background(), nil)
		x.Respond(&Response{Status: 307})
		x.Complete()
		x.End(nil)
		assert.Equal(t, []Verdict{want}, pool.verdicts, path)
	}
}

func TestVerdict_CarrierThatSeesNoBody(t *testing.T) {
	t.Parallel()
	pool := newFakePool()
	x := begin(pool)
	x.Blind, x.Inference = true, true
	x.Decide(context.Background(), nil)
	x.Respond(&Response{Status: 200})
	x.Complete()
	x.End(nil)
	assert.Equal(t, []Verdict{Answered}, pool.verdicts)
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
		x := begin(pool)
		x.Decide(context.Background(), nil)
		x.Respond(&Response{Status: tt.status})
		x.Complete()
		x.End(nil)
		assert.InDelta(t, tt.want, pool.endpoint.Load().Requests, 0)
		pool.endpoint.ExpireHeld(noon.Add(tt.busy), 0)
		assert.Zero(t, pool.endpoint.Load().Requests)
	}
}

func TestAnswerOfAnotherFormIsNoFirstToken(t *testing.T) {
	t.Parallel()
	for _, r := range []Response{{Status: 200}, {Status: 200, Page: true}, {Status: 200, Events: true, Page: true}} {
		pool := newFakePool()
		x := begin(pool)
		x.Streaming, x.Inference = true, true
		x.Decide(context.Background(), nil)
		x.Respond(&r)
		x.Chunk([]byte("data: a\n\n"))
		assert.NotContains(t, pool.calls, "Began")
	}
}
