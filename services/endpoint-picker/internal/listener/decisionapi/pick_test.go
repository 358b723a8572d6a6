package decisionapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const prompt = `{"model":"m","prompt":"a \"quoted\" line\n"}`

// TestPick_Forms sends requests in all forms. The pool sees the same as from a gateway.
func TestPick_Forms(t *testing.T) {
	t.Parallel()
	text := api.Incoming{
		Path: "/v1/completions", Body: []byte(prompt),
		Headers: api.Headers{{Name: "x-llm-d-inference-fairness-id", Value: "tenant"}, {Name: "x-session", Value: "s1"}},
	}
	digest := func(d api.Digest) api.Incoming { return api.Incoming{Body: []byte{}, Digest: &d} }
	tests := []struct {
		name    string
		give    string
		headers []string
		want    api.Incoming
	}{
		{
			name: "object with a body", want: text,
			give: `{"path":"/v1/completions","body":"{\"model\":\"m\",\"prompt\":\"a \\\"quoted\\\" line\\n\"}",
				"headers":{"X-Session":"s1","x-llm-d-inference-fairness-id":["tenant"],"Cookie":"\u0000","accept":["a","b"]}}`,
		},
		{
			name: "object with a body in base64", want: text,
			give: `{"headers":{"x-session":"s1","X-LLM-D-Inference-Fairness-ID":"tenant"},"path":"/v1/completions",
				"body_base64":"eyJtb2RlbCI6Im0iLCJwcm9tcHQiOiJhIFwicXVvdGVkXCIgbGluZVxuIn0="}`,
		},
		{
			name: "raw", give: prompt, want: api.Incoming{
				Path: text.Path, Body: text.Body,
				Headers: append(text.Headers[:1:1], api.Header{Name: "x-original-path", Value: "/v1/completions"}, text.Headers[1]),
			},
			headers: []string{"X-Original-Path", "/v1/completions", "X-Session", "s1", "X-Llm-D-Inference-Fairness-Id", "tenant", "Accept", "*/*"},
		},
		{name: "nothing known", give: `{"body":null}`, want: api.Incoming{Body: []byte{}}},
		{
			name: "digest", give: `{"model":"m","stream":true,"prompt_tokens":70,"prompt_blocks":["ff","00000000000000AA",18446744073709551615],"block_tokens":16}`,
			want: digest(api.Digest{Model: "m", Stream: true, Tokens: 70, Blocks: []uint64{0xff, 0xaa, 1<<64 - 1}, Size: 1}),
		},
		{
			name: "digest of a conversation, in large blocks", give: `{"model":"m","cache_salt":"s","prompt_blocks":[1,2,3],"block_tokens":64,
				"conversation":{"opening":1,"asked":2,"history":3}}`,
			want: digest(api.Digest{Model: "m", Salt: "s", Tokens: 192, Blocks: []uint64{1, 2, 3}, Size: 4, Turns: api.Turns{Opening: 1, Asked: 2, History: 3}}),
		},
		{name: "digest of a short prompt", give: `{"prompt_tokens":3}`, want: digest(api.Digest{Tokens: 3, Size: 1})},
		{name: "the last of duplicate fields counts", give: `{"prompt_blocks":[1,2],"prompt_blocks":[3]}`, want: digest(api.Digest{Tokens: 16, Blocks: []uint64{3}, Size: 1})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.params.Options.Wanted.SetFurther([]string{"x-session"})
			r.pick("", tt.give, tt.headers...)
			assert.Equal(t, []api.Incoming{tt.want}, r.pool.incoming)
			assert.Equal(t, []bool{true}, r.pool.late, "nobody promised to report the first token")
		})
	}
}

func TestPick_Answer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.params.Options.NewID = func() string { return "new" }
	r.pool.change = func(r *request.PickResult) { r.Model, r.Target = "m", "other" }
	a := r.pick("?n=2&pool=ns/pool&first_token=true", `{"body":"{}","headers":{"x-llm-d-model-name-rewrite":"other"}}`)
	assert.Len(t, a.ID, 32)
	assert.Equal(t, Answer{
		ID: a.ID, Model: "other", OutcomeURL: "http://example.com/v1/outcome", Expires: 60,
		Endpoints: []Endpoint{
			{Address: "10.0.0.1:8000", Pod: "ns/model", Score: 0, Wait: 0.5, Cached: 16},
			{Address: "10.0.0.2:8000", Pod: "ns/model", Score: -1, Wait: 0.5, Cached: 16},
		},
		SetHeaders: api.Headers{{Name: "x-request-id", Value: "new"}}, RemoveHeaders: []string{"x-llm-d-model-name-rewrite"},
	}, a)
	assert.Equal(t, []bool{false}, r.pool.late)
	assert.Len(t, r.pick("", `{}`).Endpoints, usualEndpoints)
	assert.EqualValues(t, 2, r.pool.inFlight())
	assert.Equal(t, 2, r.PickStats().Open)
}

// TestPick_Wrong gives calls that are refused, with the field that is wrong.
func TestUnknownNamesListTheKnownOnes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ path, give, wantField, want string }{
		{
			path: PathPick, give: `{"prompt": "a"}`, wantField: "prompt",
			want: "unknown field: use one of path, headers, body, body_base64, model, cache_salt, stream, prompt_tokens, prompt_blocks, block_tokens, conversation",
		},
		{path: PathPick, give: `{"conversation": {"turns": 2}}`, wantField: "conversation.turns", want: "unknown field: use one of opening, asked, history"},
		{path: PathPick + "?count=2", give: `{}`, wantField: "count", want: "unknown parameter: use one of n, pool, first_token, wait"},
		{
			path: PathOutcome, give: `{"tokens": 1}`, wantField: "tokens",
			want: "unknown field: use one of id, event, status, endpoint, first_token_seconds, prompt_tokens, completion_tokens, cached_tokens",
		},
	} {
		status, answer := newRig(t).call(tt.path, tt.give)
		assert.Equal(t, http.StatusBadRequest, status)
		field, message := wrongOf(t, answer)
		assert.Equal(t, tt.wantField, field)
		assert.Contains(t, message, tt.want)
	}
}

func TestPick_Wrong(t *testing.T) {
	t.Parallel()
	many := "[1" + strings.Repeat(",1", maxHashes) + "]"
	tests := []struct {
		name, query, give string
		headers           []string
		wantStatus        int
		wantField         string
	}{
		{name: "no JSON", give: `{"path":`},
		{name: "text behind it", give: `{} {}`},
		{name: "no object", give: `[]`},
		{name: "empty"},
		{name: "unknown field", give: `{"prompts":1}`, wantField: "prompts"},
		{name: "path is a number", give: `{"path":1}`, wantField: "path"},
		{name: "long path", give: `{"path":"` + strings.Repeat("/", maxPath+1) + `"}`, wantField: "path"},
		{name: "long path, escaped", give: `{"path":"` + strings.Repeat(`\u0061`, maxPath+1) + `"}`, wantField: "path"},
		{name: "long path, raw", give: "{}", headers: []string{"X-Original-Path", strings.Repeat("/", maxPath+1)}, wantField: "X-Original-Path"},
		{name: "headers are a list", give: `{"headers":[]}`, wantField: "headers"},
		{name: "header is a number", give: `{"headers":{"traceparent":1}}`, wantField: "headers.traceparent"},
		{name: "header without an effect is a number", give: `{"headers":{"a":1}}`, wantField: "headers.a"},
		{name: "header without an effect is an object", give: `{"headers":{"a":{}}}`, wantField: "headers.a"},
		{name: "header without an effect is a list of lists", give: `{"headers":{"a":["b",["c"]]}}`, wantField: "headers.a"},
		{name: "header is a list with a null", give: `{"headers":{"x-request-id":["b",null]}}`, wantField: "headers.x-request-id"},
		{name: "header with a line break", give: `{"headers":{"x-request-id":"a\nb: c"}}`, wantField: "headers.x-request-id"},
		{name: "long header", give: `{"headers":{"x-request-id":"` + strings.Repeat("a", maxHeader+1) + `"}}`, wantField: "headers.x-request-id"},
		{name: "many headers", give: `{"headers":{"x-slo-ttft-ms":["1"` + strings.Repeat(`,"1"`, maxHeaders) + `]}}`, wantField: "x-slo-ttft-ms"},
		{name: "base64", give: `{"body_base64":"!"}`, wantField: "body_base64"},
		{name: "body and digest", give: `{"body":"","prompt_tokens":1}`, wantField: "body"},
		{name: "digest without its length", give: `{"model":"m"}`, wantField: "prompt_tokens"},
		{name: "long model", give: `{"prompt_tokens":1,"model":"` + strings.Repeat("m", api.MaxModel+1) + `"}`, wantField: "model"},
		{name: "stream is a text", give: `{"prompt_tokens":1,"stream":"true"}`, wantField: "stream"},
		{name: "negative tokens", give: `{"prompt_tokens":-1}`, wantField: "prompt_tokens"},
		{name: "fraction of a token", give: `{"prompt_tokens":1.5}`, wantField: "prompt_tokens"},
		{name: "too many tokens", give: fmt.Sprintf(`{"prompt_tokens":%d}`, maxTokens+1), wantField: "prompt_tokens"},
		{name: "tokens overflow", give: `{"prompt_tokens":99999999999999999999999}`, wantField: "prompt_tokens"},
		{name: "hash is no number", give: `{"prompt_blocks":["00",true]}`, wantField: "prompt_blocks[1]"},
		{name: "hash is too long", give: `{"prompt_blocks":["00000000000000000"]}`, wantField: "prompt_blocks[0]"},
		{name: "hash is too large", give: `{"prompt_blocks":[18446744073709551616]}`, wantField: "prompt_blocks[0]"},
		{name: "hash is empty", give: `{"prompt_blocks":[""]}`, wantField: "prompt_blocks[0]"},
		{name: "hashes are a text", give: `{"prompt_blocks":"00"}`, wantField: "prompt_blocks"},
		{name: "too many hashes", give: `{"prompt_blocks":` + many + `}`, wantField: "prompt_blocks"},
		{name: "more blocks than tokens", give: `{"prompt_tokens":31,"prompt_blocks":[1,2]}`, wantField: "prompt_blocks"},
		{name: "odd size of a block", give: `{"prompt_tokens":1,"block_tokens":20}`, wantField: "block_tokens"},
		{name: "no size of a block", give: `{"prompt_tokens":1,"block_tokens":0}`, wantField: "block_tokens"},
		{name: "large block", give: `{"prompt_tokens":1,"block_tokens":8192}`, wantField: "block_tokens"},
		{name: "conversation behind the prompt", give: `{"prompt_blocks":[1],"conversation":{"opening":1,"asked":1,"history":2}}`, wantField: "conversation"},
		{name: "conversation out of order", give: `{"prompt_blocks":[1,2],"conversation":{"opening":2,"asked":1,"history":2}}`, wantField: "conversation"},
		{name: "unknown part of a conversation", give: `{"prompt_blocks":[1,2],"conversation":{"turns":2}}`, wantField: "conversation.turns"},
		{name: "no endpoints", query: "?n=0", give: `{}`, wantField: "n"},
		{name: "too many endpoints", query: "?n=17", give: `{}`, wantField: "n"},
		{name: "unknown parameter", query: "?m=1", give: `{}`, wantField: "m"},
		{name: "first token", query: "?first_token=maybe", give: `{}`, wantField: "first_token"},
		{name: "negative wait", query: "?wait=-1s", give: `{}`, wantField: "wait"},
		{name: "wait without a unit", query: "?wait=5", give: `{}`, wantField: "wait"},
		{name: "unknown pool", query: "?pool=ns/other", give: `{}`, wantStatus: 404, wantField: "pool"},
		{name: "large body", give: strings.Repeat(" ", 1<<20+1), wantStatus: 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			status, answer := r.call(PathPick+tt.query, tt.give, tt.headers...)
			if tt.wantStatus == 0 {
				tt.wantStatus = http.StatusBadRequest
			}
			assert.Equal(t, tt.wantStatus, status, answer)
			field, message := wrongOf(t, answer)
			assert.Equal(t, tt.wantField, field)
			assert.NotEmpty(t, message)
			r.assertNothingHeld()
			assert.Zero(t, r.pool.inFlight())
		})
	}
}

// TestPick_Refused has a pool that refuses the request. Its client needs to know why.
func TestPick_Refused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pool.refuse = request.Exhausted(errors.New("full"))
	q := httptest.NewRequest(http.MethodPost, PathPick, strings.NewReader("{}"))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.JSONEq(t, `{"error":{"type":"rate_limit_error","message":"full; try again in 1 s","code":"rejected-saturated","reason":"rejected-saturated"}}`, w.Body.String())
	assert.Equal(t, request.Refused, r.pool.last().Outcome)
	assert.Zero(t, r.PickStats().Open)
}

func TestPick_OtherMethodsAndPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodOptions} {
		for _, path := range []string{PathPick, PathOutcome} {
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
			assert.Equal(t, http.MethodPost, w.Header().Get("Allow"))
			assert.JSONEq(t, `{"error":{"type":"invalid_request_error","message":"the method is not POST","code":"method_not_allowed"}}`, w.Body.String())
		}
	}
	for _, path := range []string{"/", "/v1/picks", PathPick + "/"} {
		status, answer := r.call(path, "{}")
		assert.Equal(t, http.StatusNotFound, status, path)
		assert.JSONEq(t, `{"error":{"type":"invalid_request_error","message":"the path is neither /v1/pick nor /v1/outcome","code":"not_found"}}`, answer, path)
	}
}

// brokenWriter is the connection of a client that has gone.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestPick_ClientThatIsGone has clients that do not take the answer: their request is not sent to any server.
func TestPick_ClientThatIsGone(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		w    http.ResponseWriter
		ctx  context.Context
	}{
		{name: "before the answer", w: httptest.NewRecorder(), ctx: gone},
		{name: "during the answer", w: brokenWriter{httptest.NewRecorder()}, ctx: t.Context()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.ServeHTTP(tt.w, httptest.NewRequest(http.MethodPost, PathPick, strings.NewReader("{}")).WithContext(tt.ctx))
			assert.Zero(t, r.pool.inFlight())
			r.assertNothingHeld()
			assert.Equal(t, 1, r.results.of(resultGone))
		})
	}
}

// failingBody is a body that breaks off.
type failingBody struct{ err error }

func (b failingBody) Read([]byte) (int, error) {
	if b.err == nil {
		return 0, io.ErrUnexpectedEOF
	}
	return 0, b.err
}

func TestPick_BodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{os.ErrDeadlineExceeded: http.StatusRequestTimeout, io.ErrUnexpectedEOF: http.StatusBadRequest} {
		r := newRig(t)
		status, answer := r.serve(httptest.NewRequest(http.MethodPost, PathPick, failingBody{err}))
		assert.Equal(t, want, status, answer)
		r.assertNothingHeld()
	}
}
