package api

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func framed(message []byte) string {
	return string([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}) + string(message)
}

func join(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func TestReader_Usage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		form AnswerFormat
		give string
		want Usage
	}{
		{name: "nothing"},
		{name: "none", give: `{"id": "x", "choices": []}`},
		{
			name: "chat completion",
			give: `{"id":"x","choices":[{"message":{"content":"the \"usage\": {\"prompt_tokens\": 9}"}}],"usage":{"prompt_tokens":12,` +
				`"completion_tokens":34,"total_tokens":46,"prompt_tokens_details":{"cached_tokens":8}}}`,
			want: Usage{Known: true, Prompt: 12, Output: 34, Cached: 8, CachedKnown: true},
		},
		{
			name: "spaces, and details that are not there",
			give: `{"usage" : {"prompt_tokens": 1, "prompt_tokens_details": null, "completion_tokens": 2, "note": "a } \" { b"}, "x": 1}`,
			want: Usage{Known: true, Prompt: 1, Output: 2},
		},
		{
			name: "events",
			give: "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n" +
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n" +
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n",
			want: Usage{Known: true, Prompt: 5, Output: 7},
		},
		{
			name: "Anthropic's, in two halves",
			give: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":100," +
				"\"cache_creation_input_tokens\":30,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
			want: Usage{Known: true, Prompt: 155, Output: 15, Cached: 100, CachedKnown: true},
		},
		{
			name: "OpenAI's responses",
			give: `{"type":"response.completed","response":{"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":16},"output_tokens":11}}}`,
			want: Usage{Known: true, Prompt: 37, Output: 11, Cached: 16, CachedKnown: true},
		},
		{
			name: "SGLang's",
			form: FormatMetaInfo,
			give: `{"text":"x","meta_info":{"prompt_tokens":3,"completion_tokens":4,"cached_tokens":2}}`,
			want: Usage{Known: true, Prompt: 3, Output: 4, Cached: 2, CachedKnown: true},
		},
		{
			name: "vLLM's gRPC, in chunks", form: FormatVLLM,
			give: framed(field(1, join(field(1, []byte{7}), number(2, 5), number(3, 1)))) + framed(field(1, field(1, []byte{8}))) +
				framed(field(1, join(number(2, 5), number(3, 9), number(4, 4)))),
			want: Usage{Known: true, Prompt: 5, Output: 9, Cached: 4, CachedKnown: true},
		},
		{
			name: "vLLM's gRPC, in one", form: FormatVLLM,
			give: framed(field(2, join(field(1, []byte{7, 8}), field(2, []byte("stop")), number(3, 5), number(4, 2), number(5, 1)))),
			want: Usage{Known: true, Prompt: 5, Output: 2, Cached: 1, CachedKnown: true},
		},
		{
			name: "an embedding", form: FormatVLLM,
			give: framed(join(field(1, make([]byte, 400)), number(2, 12))), want: Usage{Known: true, Prompt: 12},
		},
		{name: "compressed gRPC", form: FormatVLLM, give: "\x01\x00\x00\x00\x02ab"},
		{name: "not gRPC", form: FormatVLLM, give: `{"usage":{"prompt_tokens":1}}`},
		{name: "a value, not a key", give: `{"a":"usage","b":{"prompt_tokens":1}}`},
		{name: "figures that are none", give: `{"usage":{"prompt_tokens":-1,"completion_tokens":"x"}}`, want: Usage{Known: true}},
		{name: "an object that is broken", give: `{"usage":{"prompt_tokens":1,}}`},
		{name: "an object that does not end", give: `{"usage":{"prompt_tokens":1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tt.give)+1; size++ {
				assert.Equal(t, tt.want, bodyOf(AnswerReader{Format: tt.form}, tt.give, size).Usage(), "in pieces of %d", size)
			}
		})
	}
}

func TestReader_KeepsNoEndlessUsage(t *testing.T) {
	t.Parallel()
	var r AnswerReader
	r.ReadPiece([]byte(`{"usage":{`))
	for range 10_000 {
		r.ReadPiece([]byte(`"a":1,`))
	}
	assert.LessOrEqual(t, cap(r.usage.object), 2*maxUsage)
	r.ReadPiece([]byte(`}} "usage":{"prompt_tokens":1}`))
	assert.Equal(t, Usage{Known: true, Prompt: 1}, r.Usage(), "it goes on")
}

func TestReader_AllocatesNothingForEvents(t *testing.T) {
	piece := []byte("data: {\"id\":\"chatcmpl-8f3b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n")
	r := AnswerReader{Events: true}
	assert.Zero(t, testing.AllocsPerRun(100, func() { r.ReadPiece(piece) }))
}

func FuzzReader_Usage(f *testing.F) {
	f.Add(`{"usage":{"prompt_tokens":12,"completion_tokens":34}}`, uint8(3))
	f.Add(`"usage""usage":{"a":"\"}"}"usage"`, uint8(1))
	f.Add(framed(field(1, number(2, 5))), uint8(2))
	f.Fuzz(func(t *testing.T, body string, size uint8) {
		form := AnswerReader{Format: AnswerFormat(size % 3)}
		assert.Equal(t, bodyOf(form, body, len(body)+1).Usage(), bodyOf(form, body, int(size)+1).Usage())
	})
}
