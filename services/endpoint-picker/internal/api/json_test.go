package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// seen is a request in words. Values without a place in the body are shown by their size.
type seen struct {
	model        string
	salt         uint64
	stream       bool
	tokens       int
	turns        Turns
	head, prompt []string // media and token ids begin with their kind and their number of tokens
}

func see(r *Request, body string) seen {
	words := func(parts []Part) (all []string) {
		for _, p := range parts {
			if p == (Part{}) {
				continue // the place of a role that the message lacks
			}
			text := body[p.From:p.To]
			switch p.Kind {
			case Value:
				if text = strings.Trim(text, `"`); text == "" {
					text = fmt.Sprint("value ", p.Size)
				}
			case Media:
				text = fmt.Sprint("media ", p.Size, " ", text)
			case IDs:
				text = fmt.Sprint("ids ", p.Size, " ", text)
			case Text, PackedIDs:
			}
			all = append(all, text)
		}
		return all
	}
	return seen{
		model: r.Model, salt: r.Salt, stream: r.Stream, tokens: r.Tokens, turns: r.Turns,
		head: words(r.Head), prompt: words(r.Prompt),
	}
}

func TestReadJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, give string
		want             seen
	}{
		{name: "nothing", path: apitest.SGLang, give: `{}`},
		{
			name: "chat", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say \"hi\""}], "stream": true, "max_tokens": 7, "prompt": "ignored"}`,
			want: seen{model: "m", stream: true, tokens: 7, prompt: []string{"system", "Be brief.", "user", `Say \"hi\"`}},
		},
		{
			name: "contents as parts, with an image", path: apitest.Chat, give: `{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]}], "model": "m"}`,
			want: seen{model: "m", tokens: imageTokens + 3, prompt: []string{"user", "What is it?", `media 576 {"url": "data:x"}`}},
		},
		{
			name: "other media", path: apitest.Chat, give: `{"model": "m", "messages": [{"content": [{"input_audio": {"data": "x"}}, {"video_url": "v"}, {"file": {"file_id": "f"}}, {"text": "a", "image_url": null}]}]}`,
			want: seen{model: "m", tokens: audioTokens + videoTokens + fileTokens, prompt: []string{`media 750 {"data": "x"}`, `media 4500 "v"`, `media 2250 {"file_id": "f"}`, "a"}},
		},
		{
			name: "tools come first wherever they are", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}`,
			want: seen{model: "m", tokens: 6, head: []string{`{"type": "function"}`}, prompt: []string{"user", "a"}},
		},
		{
			name: "calls of tools, and no content", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}`,
			want: seen{model: "m", tokens: 5, prompt: []string{"assistant", "value 12"}, turns: Turns{0, 0, 2}},
		},
		{
			name: "turns of a conversation", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]}`,
			want: seen{model: "m", tokens: 8, prompt: []string{"user", "a", "assistant", "b", "user", "c", "assistant", "d", "user", "e"}, turns: Turns{Opening: 2, Asked: 6, History: 8}},
		},
		{
			name: "the role of an answer comes last", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "user", "content": "a"}, {"content": "b", "role": "assistant"}, {"role": "user", "content": "assistant"}]}`,
			want: seen{model: "m", tokens: 7, prompt: []string{"user", "a", "assistant", "b", "user", "assistant"}, turns: Turns{2, 2, 4}},
		},
		{
			name: "completion", path: apitest.Completions, give: `{"model": "m", "prompt": "Once", "messages": ["ignored"]}`,
			want: seen{model: "m", tokens: 1, prompt: []string{"Once"}},
		},
		{
			name: "several prompts", path: apitest.Completions, give: `{"model": "m", "prompt": ["Once", "Twice", "x"]}`,
			want: seen{model: "m", tokens: 2, prompt: []string{"Once"}},
		},
		{
			name: "token ids", path: apitest.Completions, give: `{"model": "m", "prompt": [1, 22, 333]}`,
			want: seen{model: "m", tokens: 3, prompt: []string{"ids 3 [1, 22, 333]"}},
		},
		{
			name: "several lists of token ids", path: apitest.Completions, give: `{"model": "m", "prompt": [ [ 1, 22], [3]]}`,
			want: seen{model: "m", tokens: 3, prompt: []string{"ids 2 [ 1, 22]"}},
		},
		{name: "no prompt in the list", path: apitest.Completions, give: `{"model": "m", "prompt": []}`, want: seen{model: "m"}},
		{
			name: "responses", path: apitest.Responses, give: `{"model": "m", "input": "Tell me", "instructions": "Be brief."}`,
			want: seen{model: "m", tokens: 5, head: []string{"Be brief."}, prompt: []string{"value 4", "Tell me"}},
		},
		{
			name: "responses: the format of the answer and a template are no prompts", path: apitest.Responses,
			give: `{"model": "m", "input": "Tell me a story", "text": {"format": {"type": "json_schema"}}, "prompt": {"id": "p"}}`,
			want: seen{model: "m", tokens: 4, prompt: []string{"value 4", "Tell me a story"}},
		},
		{
			name: "the same without a path", give: `{"model": "m", "input": "Tell me a story", "text": {"format": {"type": "json_schema"}}, "prompt": {"id": "p"}}`,
			want: seen{model: "m", tokens: 4, prompt: []string{"value 4", "Tell me a story"}},
		},
		{
			name: "responses, a list", path: apitest.Responses, give: `{"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]}, "b", {"type": "function_call_output", "output": "c"}]}`,
			want: seen{model: "m", tokens: imageTokens + 1, prompt: []string{"user", "a", `media 576 "u"`, "b", "value 1"}},
		},
		{
			name: "embeddings", path: apitest.Embeddings, give: `{"model": "m", "input": ["first text", "other text"]}`,
			want: seen{model: "m", tokens: 5, prompt: []string{"first text"}},
		},
		{
			name: "embeddings of token ids", path: apitest.Embeddings, give: `{"model": "m", "input": [[1, 2], [3, 4, 5]]}`,
			want: seen{model: "m", tokens: 5, prompt: []string{"ids 2 [1, 2]"}},
		},
		{
			name: "anthropic", path: apitest.Messages, give: `{"model": "claude", "system": [{"type": "text", "text": "Be brief."}], "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "t"}]}`,
			want: seen{model: "claude", tokens: 6, head: []string{`{"name": "t"}`, "Be brief."}, prompt: []string{"user", "a"}},
		},
		{
			name: "anthropic: sources", path: apitest.Messages, give: `{"model": "m", "messages": [{"role": "user", "content": [
				{"type": "image", "source": {"type": "base64", "data": "i"}}, {"type": "document", "source": {"data": "d"}},
				{"type": "document", "source":  {"type": "text", "data": "t"}}, {"type": "tool_result", "content": [{"type": "image", "source": {}}]}]}]}`,
			want: seen{model: "m", tokens: 2*imageTokens + fileTokens + 3, prompt: []string{
				"user", `media 576 {"type": "base64", "data": "i"}`, `media 2250 {"data": "d"}`, `{"type": "text", "data": "t"}`, "media 576 {}",
			}},
		},
		{
			name: "anthropic: marks for caching move from turn to turn", path: apitest.Messages, give: `{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]}`,
			want: seen{model: "m", tokens: 1, prompt: []string{"user", "a"}},
		},
		{
			name: "vLLM's own", path: apitest.VLLM, give: `{"token_ids": [7, 8], "sampling_params": {"max_tokens": 4, "top_k": [1]}, "cache_salt": "s", "features": {"mm_hashes": {"image": ["h"]}, "mm_placeholders": 1}}`,
			want: seen{salt: xxhash.Sum64String("s"), tokens: 2, head: []string{`media 0 {"image": ["h"]}`}, prompt: []string{"ids 2 [7, 8]"}},
		},
		{
			name: "SGLang's own", path: apitest.SGLang, give: `{"text": "Once", "extra_key": "k", "stream": false, "image_data": ["u", "v"], "audio_data": null, "video_data": "w"}`,
			want: seen{salt: xxhash.Sum64String("k"), tokens: 2*imageTokens + videoTokens + 1, head: []string{`media 576 "u"`, `media 576 "v"`, `media 4500 "w"`}, prompt: []string{"Once"}},
		},
		{name: "SGLang's ids", path: apitest.SGLang, give: `{"input_ids": [1, 2]}`, want: seen{tokens: 2, prompt: []string{"ids 2 [1, 2]"}}},
		{
			name: "of two the last counts", path: apitest.Chat, give: `{"model": "\u0061", "model": "b", "messages": ["x", {"role": "assistant"}], "messages": ["y"], "tools": ["one"], "tools": ["two", "three"]}`,
			want: seen{model: "b", tokens: 2, head: []string{"two", "three"}, prompt: []string{"y"}},
		},
		{
			name: "the last of other prompts counts", path: apitest.Completions, give: `{"model": "m", "prompt": ["one", "other prompt"], "prompt": "a text"}`,
			want: seen{model: "m", tokens: 1, prompt: []string{"a text"}},
		},
		{
			name: "other kinds of values", path: apitest.SGLang, give: `{"model": 1, "stream": "yes", "text": null, "input_ids": {"a": 1}, "extra_key": [1], "image_data": {"url": "u"}}`,
			want: seen{tokens: imageTokens, head: []string{`media 576 {"url": "u"}`}},
		},
		{
			name: "other kinds of messages", path: apitest.Chat, give: `{"model": "m", "messages": [1, null, [2], true, {"role": 1, "content": 2, "a": false, "b": {"c": 1}}], "tools": null}`,
			want: seen{model: "m", tokens: 2, prompt: []string{"[2]", "value 7"}},
		},
		{name: "an escaped key", path: apitest.SGLang, give: `{"mod\u0065l": "m"}`, want: seen{model: "m"}},
		{name: "a rendered chat has no prompt", path: "/v1/chat/completions/render", give: `{"model": "m", "messages": ["a"]}`, want: seen{model: "m"}},
		{
			name: "roles of contents are no turns", path: apitest.Chat, give: `{"model": "m", "messages": [{"role": "user", "content": "a"}, {"content": ["b", {"role": "assistant"}], "role": "assistant"}]}`,
			want: seen{model: "m", tokens: 6, prompt: []string{"user", "a", "assistant", "b", "value 9"}, turns: Turns{2, 2, 5}},
		},
		{
			name: "deep contents are values", path: apitest.Chat, give: `{"model": "m", "messages": [{"content": [{"content": [{"content": [{"content": [{"content": "a"}]}]}]}]}]}`,
			want: seen{model: "m", tokens: 3, prompt: []string{`{"content": "a"}`}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			for range 2 { // a request that was used before knows nothing of it
				require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: tt.path, Body: []byte(tt.give)}, enough))
				assert.Equal(t, tt.want, see(&r, tt.give))
			}
		})
	}
}

func TestReadJSON_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "blanks", give: " ", want: "at byte 1: unexpected end"},
		{name: "no JSON", give: "hello", want: "at byte 0: unexpected 'h'"},
		{name: "cut off", give: `{"model": "m"`, want: "at byte 13: unexpected end"},
		{name: "twice", give: `{}{}`, want: "at byte 2: text after the value"},
		{name: "cut off in a list of ids", give: `{"text": [`, want: "at byte 10: unexpected end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r Request
			require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: apitest.SGLang, Body: []byte(tt.give)}, enough))
			require.EqualError(t, r.Unread, tt.want)
		})
	}
}

func jsonPaths() []string {
	return []string{
		"", apitest.Chat, apitest.Completions, apitest.Responses, apitest.Embeddings, apitest.Messages, apitest.SGLang, apitest.VLLM,
	}
}

// checkParts checks that everything is where it is said to be, and that a limit changes nothing but what is collected.
func checkParts(t *testing.T, r *Request, body []byte) {
	t.Helper()
	require.GreaterOrEqual(t, r.Tokens, 0)
	require.LessOrEqual(t, 0, r.Turns.Opening)
	require.LessOrEqual(t, r.Turns.Opening, r.Turns.Asked)
	require.LessOrEqual(t, r.Turns.Asked, r.Turns.History)
	require.LessOrEqual(t, r.Turns.History, len(r.Prompt))
	require.LessOrEqual(t, len(r.Prompt), maxParts(body))
	for _, p := range append(r.Head, r.Prompt...) {
		require.LessOrEqual(t, p.From, p.To)
		require.LessOrEqual(t, int(p.To), len(body))
	}
}

// FuzzReadJSON checks that the body is taken if encoding/json takes it, that the fields are those that it finds, and that a
// limit changes only what is collected.
func FuzzReadJSON(f *testing.F) {
	f.Add(uint8(1), `{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a\"b"}]}], "stream": true, "max_tokens": 7}`)
	f.Add(uint8(2), `{"prompt": [[1, 2], [3]], "cache_salt": "s", "model": "m"}`)
	f.Add(uint8(6), `{"text": ["a", {"b": 1}], "image_data": [null, "a"], "model": "\ud83d\ude00\/"}`)
	f.Add(uint8(3), `{"input": [1, "a", [2], {"content": {"content": []}}], "model": null}`)
	f.Add(uint8(1), `{"model": "m", "messages": [{"role": "assistant", "content": [{"text": "a"}, {"role": "assistant"}]}]}`)
	for i, path := range jsonPaths() {
		for _, shape := range apitest.Shapes() {
			if body := shape.BuildBody(200); shape.Path == path && len(body) < 1000 {
				f.Add(uint8(i), string(body))
			}
		}
	}
	parsers := allParsers(f)
	f.Fuzz(func(t *testing.T, api uint8, text string) {
		path := jsonPaths()[int(api)%len(jsonPaths())]
		if strings.ToValidUTF8(text, "") != text || path == "" && !isObject([]byte(text)) {
			return
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Infinity") {
			return // encoding/json does not read them
		}
		text = strings.TrimPrefix(text, byteOrderMark)
		var r Request
		require.NoError(t, r.ParseIncoming(parsers, Incoming{Path: path, Body: []byte(text)}, enough))
		var want map[string]json.RawMessage // a number may be too large for Go
		if wrong := json.Unmarshal([]byte(text), &want); text != "" && (wrong != nil || want == nil) {
			require.Empty(t, r.Model)
			require.Empty(t, r.Prompt)
			require.Zero(t, r.Tokens)
			return
		}
		var model string
		_ = json.Unmarshal(want["model"], &model) // other values are no model
		if len(model) > MaxModel {
			require.ErrorIs(t, r.Unread, errLongModel)
			return
		}
		require.Equal(t, text != "" && model == "" && r.API.namesModel, r.Unread != nil)
		require.Equal(t, model, r.Model)
		stream := string(want["stream"]) == "true"
		require.Equal(t, stream && path != apitest.Embeddings, r.Stream)
		checkParts(t, &r, []byte(text))

		var limited Request
		require.NoError(t, limited.ParseIncoming(parsers, Incoming{Path: path, Body: []byte(text)}, 2))
		require.Equal(t, r.Tokens, limited.Tokens)
		require.Equal(t, r.Model, limited.Model)
		require.Equal(t, r.Prompt[:len(limited.Prompt)], limited.Prompt)
		n := len(limited.Prompt)
		require.Equal(t, Turns{min(r.Turns.Opening, n), min(r.Turns.Asked, n), min(r.Turns.History, n)}, limited.Turns)
	})
}
