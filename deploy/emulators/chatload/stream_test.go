package chatload

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Events of a valid stream.
const (
	role   = `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	delta  = `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" abc"},"finish_reason":null}]}`
	last   = `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" xyz"},"finish_reason":"length"}]}`
	three  = `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" x y z"},"finish_reason":null,"token_ids":[1,2,3]}]}`
	finish = `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	total  = `{"id":"a","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`
	done   = `[DONE]`
)

func events(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

func TestChatStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		tokens     int
		class      Class
		message    string
	}{
		{"complete", events(role, delta, last, total, done), 2, ClassNone, ""},
		{"finish reason by itself", events(role, delta, delta, finish, total, done), 2, ClassNone, ""},
		{"no usage", events(role, last, done), 1, ClassNone, ""},
		{"several tokens in an event", events(role, three, last, done), 4, ClassNone, ""},
		{"no content", events(role, finish, done), 0, ClassNone, ""},
		{"comments", ": ping\n\n" + events(role) + ": ping\n" + events(last, done), 1, ClassNone, ""},

		{"nothing", "", 0, ClassTruncated, "after 0 tokens without [DONE]"},
		{"no [DONE]", events(role, delta, last, total), 2, ClassTruncated, "after 2 tokens without [DONE]"},
		{"cut in a line", events(role, delta) + "data: {", 1, ClassTruncated, "after 1 tokens without [DONE]"},
		{"cut after a line", events(role) + "data: " + delta + "\n", 0, ClassTruncated, "ended inside an event"},

		{"no finish reason", events(role, delta, done), 1, ClassMalformed, "no finish_reason"},
		{"event after [DONE]", events(role, last, done, delta), 1, ClassMalformed, "unexpected line"},
		{"comment after [DONE]", events(role, last, done) + ": ping\n", 1, ClassMalformed, "unexpected line"},
		{"empty line too many", events(role, last) + "\n" + events(done), 1, ClassMalformed, "unexpected line"},
		{"no empty line", "data: " + role + "\ndata: " + last + "\n\n", 0, ClassMalformed, "not followed by an empty line"},
		{"no data", "event: ping\n\n", 0, ClassMalformed, "unexpected line"},
		{"not JSON", events("{"), 0, ClassMalformed, "decode event"},
		{"error", events(role, `{"error":{"message":"out of memory"}}`), 0, ClassMalformed, "out of memory"},
		{"no role", events(delta), 0, ClassMalformed, "role of the assistant"},
		{"another id", events(role, strings.Replace(delta, `"a"`, `"b"`, 1)), 0, ClassMalformed, "another answer"},
		{"another object", events(strings.Replace(role, ".chunk", "", 1)), 0, ClassMalformed, "another answer"},
		{"two choices", events(role, `{"id":"a","object":"chat.completion.chunk","choices":[{"index":0},{"index":1}]}`), 0, ClassMalformed, "more than one"},
		{"second choice", events(role, strings.Replace(delta, `"index":0`, `"index":1`, 1)), 0, ClassMalformed, "more than one"},
		{"delta after the finish reason", events(role, last, delta), 1, ClassMalformed, "after the finish_reason"},
		{"usage before the finish reason", events(role, total), 0, ClassMalformed, "without a choice"},
		{"no choice and no usage", events(role, last, `{"id":"a","object":"chat.completion.chunk","choices":[]}`), 1, ClassMalformed, "without a choice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seen := 0
			s := chatStream{onTokens: func(n int) { seen += n }}
			err := s.read(strings.NewReader(tt.give))
			assert.Equal(t, tt.tokens, s.tokens)
			assert.Equal(t, tt.tokens, seen)
			assert.Equal(t, tt.class, classify(t.Context(), err), "%v", err)
			if tt.class != ClassNone {
				require.ErrorContains(t, err, tt.message)
			}
		})
	}
}

func TestBrokenConnectionIsAReset(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset by peer")
	for _, before := range []string{"", events(role, delta), events(role) + "data: " + delta + "\n", events(role, last, done)} {
		s := chatStream{onTokens: func(int) {}}
		err := s.read(io.MultiReader(strings.NewReader(before), brokenReader{broken}))
		require.ErrorIs(t, err, broken, before)
		assert.Equal(t, ClassReset, classify(t.Context(), err))
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

// FuzzChatStream tests that read succeeds only for a stream with a finish reason that ends in [DONE].
func FuzzChatStream(f *testing.F) {
	f.Add(events(role, delta, last, total, done))
	f.Add(": ping\n\n" + events(role, finish, done))
	f.Add(events(role, delta))
	f.Fuzz(func(t *testing.T, body string) {
		s := chatStream{onTokens: func(int) {}}
		if err := s.read(strings.NewReader(body)); err != nil {
			return
		}
		require.True(t, s.finished && s.done)
		require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"))
		require.LessOrEqual(t, s.tokens, strings.Count(body, "content")+strings.Count(body, ","))
	})
}
