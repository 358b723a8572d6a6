package request

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

var errFull = errors.New("full")

// TestRefusal_Body writes refusals in the forms of the APIs: https://platform.openai.com/docs/guides/error-codes and
// https://docs.anthropic.com/en/api/errors.
func TestRefusal_Body(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                    string
		refusal                 *Refusal
		openAI, anthropic, text string
	}{
		{
			name: "wrong", refusal: BadRequest(errors.New(`unexpected "x"`)),
			openAI:    `{"error":{"type":"invalid_request_error","message":"unexpected \"x\"","code":"bad_request"}}`,
			anthropic: `{"type":"error","error":{"type":"invalid_request_error","message":"unexpected \"x\""}}`,
			text:      `inference error: BadRequest - unexpected "x"`,
		},
		{
			name: "too large", refusal: TooLarge(10),
			openAI:    `{"error":{"type":"invalid_request_error","message":"request body is over 10 bytes: send a shorter one","code":"request_entity_too_large"}}`,
			anthropic: `{"type":"error","error":{"type":"request_too_large","message":"request body is over 10 bytes: send a shorter one"}}`,
			text:      "inference error: PayloadTooLarge - request body is over 10 bytes: send a shorter one",
		},
		{
			name: "too many", refusal: Exhausted(errFull),
			openAI:    `{"error":{"type":"rate_limit_error","message":"full; try again in 1 s","code":"rejected-saturated"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"full; try again in 1 s"}}`,
			text:      "inference error: ResourceExhausted - full; try again in 1 s",
		},
		{
			name: "no endpoint", refusal: Unavailable(errFull),
			openAI:    `{"error":{"type":"server_error","message":"full; try again in 1 s","code":"rejected-no-endpoints"}}`,
			anthropic: `{"type":"error","error":{"type":"overloaded_error","message":"full; try again in 1 s"}}`,
			text:      "inference error: ServiceUnavailable - full; try again in 1 s",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for form, want := range map[ErrorFormat][2]string{
				OpenAI: {tt.openAI, "application/json"}, Anthropic: {tt.anthropic, "application/json"}, PlainText: {tt.text, "text/plain; charset=utf-8"},
			} {
				body, contentType := tt.refusal.EncodeBody(form)
				assert.Equal(t, want, [2]string{string(body), contentType})
			}
		})
	}
}

// TestEveryRefusalHasAKind has each status that a carrier answers with.
func TestEveryRefusalHasAKind(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 404, 408, 413, 415, 429, 501, 502, 503, 504} {
		k := errorNamesByStatus[code]
		assert.NotEmpty(t, k.text, code)
		assert.NotEmpty(t, k.openAI, code)
		assert.NotEmpty(t, k.anthropic, code)
		assert.NotEmpty(t, NoAnswer(code, http.ErrAbortHandler).FormatError(OpenAI).Code)
	}
}

func TestFormOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]ErrorFormat{
		"": OpenAI, "/v1/chat/completions": OpenAI, "/v1/messages": Anthropic, "/v1/messages?beta=true": Anthropic, "/v1/messages/count_tokens": Anthropic,
		"/anthropic/v1/messages": Anthropic, "/v1/messages_of_others": OpenAI, "/v1/models?next=/v1/messages": OpenAI,
	} {
		assert.Equal(t, want, ErrorFormatOf(path), path)
	}
}

func TestAcceptsJSON(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": true, " ": true, "*/*": true, "application/*": true, "application/json": true, "Application/JSON; charset=utf-8": true,
		"text/html, application/json;q=0.5": true, "text/html,*/*;q=0.1": true, "text/event-stream": true, "application/json, text/event-stream": true,
		"text/plain": false, "text/html,application/xhtml+xml": false, "application/json;q=0": false, "application/json; q=0.000": false,
		"*/*, application/json;q=0": false, "*/*;q=0, application/json": true, "application/json;q=0, */*": false, "text/*": false, ",": false, "application/grpc": false,
	} {
		assert.Equal(t, want, AcceptsJSON(accept), accept)
	}
}

func FuzzAcceptsJSON(f *testing.F) {
	f.Add("text/html, application/json;q=0.5")
	f.Fuzz(func(_ *testing.T, accept string) { AcceptsJSON(accept) })
}
