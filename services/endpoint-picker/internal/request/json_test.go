package request

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seen is a request in words.
type seen struct {
	model, salt string
	stream      bool
	max, others int
	turns       Turns
	prompt      []string // media begin with "media ", token ids with how many there are
}

func see(r *Request) seen {
	s := seen{model: string(r.Text(r.Model)), salt: string(r.Text(r.CacheSalt)), stream: r.Stream, max: r.MaxTokens, others: r.Others, turns: r.Turns}
	for _, p := range r.Prompt {
		text := string(r.Text(p.Span))
		switch {
		case p.Media:
			text = "media " + text
		case p.IDs > 0:
			text = strings.Repeat("#", p.IDs) + text
		}
		s.prompt = append(s.prompt, text)
	}
	return s
}

func TestReadJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       seen
	}{
		{name: "nothing", give: `{}`},
		{
			name: "chat", give: `{"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say \"hi\""}], "stream": true, "max_tokens": 7}`,
			want: seen{model: "m", stream: true, max: 7, prompt: []string{"system", "Be brief.", "user", `Say \"hi\"`}},
		},
		{
			name: "contents as parts, with an image", give: `{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]}], "model": "m"}`,
			want: seen{model: "m", prompt: []string{"user", "text", "What is it?", "image_url", `media {"url": "data:x"}`}},
		},
		{
			name: "tools come first wherever they are", give: `{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}`,
			want: seen{prompt: []string{`[{"type": "function"}]`, "user", "a"}},
		},
		{
			name: "calls of tools, and no content", give: `{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}`,
			want: seen{prompt: []string{"assistant", "null", `[{"id": "1"}]`}, turns: Turns{0, 0, 3}},
		},
		{
			name: "turns of a conversation", give: `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]}`,
			want: seen{prompt: []string{"user", "a", "assistant", "b", "user", "c", "assistant", "d", "user", "e"}, turns: Turns{Opening: 2, Asked: 6, History: 8}},
		},
		{
			name: "a conversation has a history", give: `{"messages": [{"role": "user", "content": "a"}, {"content": "b", "role": "assistant"}, {"role": "user", "content": "assistant"}], "tools": [1]}`,
			want: seen{prompt: []string{"[1]", "user", "a", "b", "assistant", "user", "assistant"}, turns: Turns{3, 3, 5}},
		},
		{
			name: "a prompt instead has none", give: `{"messages": [{"role": "assistant", "content": "b"}], "prompt": "Once"}`,
			want: seen{prompt: []string{"Once"}},
		},
		{name: "completion", give: `{"prompt": "Once", "max_completion_tokens": 5}`, want: seen{prompt: []string{"Once"}, max: 5}},
		{name: "several prompts", give: `{"prompt": ["Once", "Twice", "x"]}`, want: seen{prompt: []string{"Once"}, others: 10}},
		{name: "token ids", give: `{"prompt": [1, 22, 333]}`, want: seen{prompt: []string{"###[1, 22, 333]"}}},
		{name: "several lists of token ids", give: `{"prompt": [[1, 22], [3]]}`, want: seen{prompt: []string{"##[1, 22]"}, others: 3}},
		{name: "no prompt in the list", give: `{"prompt": []}`},
		{
			name: "responses", give: `{"model": "m", "input": "Tell me", "instructions": "Be brief.", "max_output_tokens": 9}`,
			want: seen{model: "m", max: 9, prompt: []string{"Be brief.", "Tell me"}},
		},
		{
			name: "responses, a list", give: `{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, "b"]}`,
			want: seen{prompt: []string{"user", "input_text", "a", "b"}},
		},
		{
			name: "anthropic", give: `{"model": "claude", "system": [{"type": "text", "text": "Be brief."}], "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}`,
			want: seen{model: "claude", max: 3, prompt: []string{`[{"type": "text", "text": "Be brief."}]`, "user", "a"}},
		},
		{
			name: "vLLM's own", give: `{"token_ids": [7, 8], "sampling_params": {"max_tokens": 4, "top_k": [1]}, "cache_salt": "s"}`,
			want: seen{salt: "s", max: 4, prompt: []string{"##[7, 8]"}},
		},
		{
			name: "SGLang's own", give: `{"text": "Once", "sampling_params": {"max_new_tokens": 4}, "extra_key": "k", "stream": false}`,
			want: seen{salt: "k", max: 4, prompt: []string{"Once"}},
		},
		{name: "of two the last counts", give: `{"model": "a", "model": "b", "messages": ["x"], "messages": ["y"]}`, want: seen{model: "b", prompt: []string{"y"}}},
		{
			name: "other kinds of values", give: `{"model": 1, "stream": "yes", "max_tokens": -1, "messages": {"a": [1]}, "tools": null, "sampling_params": 3}`,
			want: seen{prompt: []string{"null", `{"a": [1]}`}},
		},
		{name: "an escaped key", give: `{"mod\u0065l": "m"}`, want: seen{model: "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			for range 2 { // a request that was used before knows nothing of it
				r.Reset([]byte(tt.give))
				require.NoError(t, r.readJSON())
				assert.Equal(t, tt.want, see(&r))
			}
		})
	}
}

func TestReadJSON_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing", give: "", want: "at byte 0: unexpected end"},
		{name: "no JSON", give: "hello", want: "at byte 0: unexpected 'h'"},
		{name: "a list", give: "[]", want: "it is not an object"},
		{name: "cut off", give: `{"model": "m"`, want: "at byte 13: unexpected end"},
		{name: "twice", give: `{}{}`, want: "at byte 2: text after the value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			r.Reset([]byte(tt.give))
			require.EqualError(t, r.readJSON(), tt.want)
		})
	}
}

// FuzzReadJSON checks that the body is taken if encoding/json takes it, that the fields are those that it finds, and
// that everything is where it is said to be.
func FuzzReadJSON(f *testing.F) {
	f.Add(`{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a\"b"}]}], "stream": true, "max_tokens": 7}`)
	f.Add(`{"prompt": [[1, 2], [3]], "cache_salt": "s", "model": "m"}`)
	f.Add(`{"prompt": ["a", {"b": 1}], "sampling_params": {"max_tokens": 1}, "tools": []}`)
	f.Add(`{"input": [1, "a", [2], {"content": {"content": []}}], "model": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ToValidUTF8(text, "") != text {
			return
		}
		var r Request
		r.Reset([]byte(text))
		err := r.readJSON()
		var want map[string]any
		if wrong := json.Unmarshal([]byte(text), &want); wrong != nil || want == nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		model, _ := want["model"].(string)
		var got string
		if r.Model.To > 0 {
			require.NoError(t, json.Unmarshal(r.Body[r.Model.From-1:r.Model.To+1], &got))
		}
		require.Equal(t, model, got)
		stream, _ := want["stream"].(bool)
		require.Equal(t, stream, r.Stream)
		require.LessOrEqual(t, r.Turns.History, len(r.Prompt))
		require.LessOrEqual(t, r.Turns.Asked, r.Turns.History)
		require.LessOrEqual(t, r.Turns.Opening, r.Turns.Asked)
		for _, p := range r.Prompt {
			require.LessOrEqual(t, 0, p.Span.From)
			require.LessOrEqual(t, p.Span.From, p.Span.To)
			require.LessOrEqual(t, p.Span.To, len(text))
		}
	})
}
