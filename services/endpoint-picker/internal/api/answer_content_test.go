package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// readBody passes a body through a Reader, in pieces. It returns the number of events with content.
func readBody(r *AnswerReader, body string, size int) (found int) {
	for at := 0; at < len(body); at += size {
		found += r.ReadPiece([]byte(body[at:min(at+size, len(body))]))
	}
	return found
}

// bodyOf passes a body through a Reader, in pieces.
func bodyOf(r AnswerReader, body string, size int) *AnswerReader {
	readBody(&r, body, size)
	return &r
}

func TestReader_Content(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give   string
		want, errors int
	}{
		{name: "empty"},
		{name: "comments", give: ": keep-alive\n\n:\n\n: ping\n\n"},
		{name: "a comment, then text", give: ": keep-alive\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n", want: 1},
		{name: "a role only", give: `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":[]},"finish_reason":null}]}` + "\n\n"},
		{name: "reasoning", give: `data: {"choices":[{"delta":{"reasoning_content":"I"}}]}` + "\n\n", want: 1},
		{name: "a call of a tool", give: `data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}}]}` + "\n\n", want: 1},
		{name: "white space", give: `data: {"choices":[{"delta":{"content":" "}}]}` + "\n\n", want: 1},
		{name: "the end", give: `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\ndata: [DONE]\n\n"},
		{name: "completions", give: `data: {"choices":[{"text":""}]}` + "\n\n" + `data: {"choices":[{"text":"a"},{"text":"b"}]}` + "\n\n", want: 1},
		{name: "an error of null", give: `data: {"error":null,"choices":[{"text":"a"}]}` + "\n\n", want: 1},
		{name: "Anthropic", give: `event: message_start
data: {"type":"message_start","message":{"role":"assistant","content":[]}}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

`, want: 2},
		{name: "Responses", give: `event: response.created
data: {"type":"response.created","response":{"output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","item":{"type":"message","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"a"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":""}

event: response.output_text.done
data: {"type":"response.output_text.done","text":"a"}

event: response.completed
data: {"type":"response.completed","response":{}}

`, want: 1},
		{name: "SGLang", give: `data: {"text":"","meta_info":{}}` + "\n\n" + `data: {"text":"a","output_ids":[],"meta_info":{}}` + "\n\n", want: 1},
		{name: "an error of OpenAI's form", give: `data: {"error": {"message": "queue is full", "code": 503}}` + "\n\ndata: [DONE]\n\n", errors: 1},
		{name: "an error of Anthropic", give: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", errors: 1},
		{name: "an error by its name", give: "event: error\ndata: broken\n\ndata: x\n\n", want: 1, errors: 1},
		{name: "a failed response", give: `data: {"type":"response.failed","response":{}}` + "\n\n", errors: 1},
		{name: "an API that is not known", give: `data: {"progress": 1}` + "\n\ndata: text\n\n", want: 2},
		{name: "broken JSON", give: `data: {"choices":[{"delta":` + "\n\n", want: 1},
		{name: "a line without an end", give: `data: {"choices":[{"delta":{"content":"a"}}]}`},
		{name: "a long line", give: `data: {"choices":[{"delta":{"content":"` + strings.Repeat("a", maxEvent) + `"}}]}` + "\n\n", want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 2, 3, 7, 64, len(tt.give) + 1} {
				r := AnswerReader{Events: true}
				assert.Equal(t, tt.want, readBody(&r, tt.give, size), "in pieces of %d", size)
				assert.Equal(t, tt.errors, r.ErrorCount(), "in pieces of %d", size)
			}
		})
	}
}

func TestReader_ContentOfVLLM(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give []byte // a message
		want int
	}{
		{name: "nothing"},
		{name: "tokens of a chunk", give: field(1, join(number(2, 5), field(1, []byte{7, 8}))), want: 1},
		{name: "a chunk without tokens", give: field(1, join(field(1, nil), number(2, 5)))},
		{name: "a whole answer", give: field(2, field(1, []byte{7})), want: 1},
		{name: "the end of a stream", give: field(2, number(3, 5))},
		{name: "an embedding", give: join(field(1, make([]byte, 8)), number(2, 12)), want: 1},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 3, 100} {
			r := AnswerReader{Format: FormatVLLM}
			assert.False(t, r.IsComplete())
			assert.Equal(t, tt.want, readBody(&r, framed(tt.give), size), "%s, in pieces of %d", tt.name, size)
			assert.True(t, r.IsComplete())
		}
	}
}

func TestReader_Other(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"choices":[{"message":{"content":"a"}}]}`, "error: a text", "<html>", "\x1f\x8b"} {
		assert.Equal(t, 1, new(AnswerReader).ReadPiece([]byte(body)), body)
	}
}

// TestReader_Whole has bodies with the status 200 from APIs whose answers are known, and what an API that is not known may answer.
func TestReader_Whole(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	pad := strings.Repeat("a", 2*maxEvent)
	tests := []struct {
		name         string
		events       bool
		give         string
		strict, open bool // whether it is an answer
		broken       bool // whether a strict reader refuses it by its beginning
		unknown      bool // whether it is neither an answer nor an error for a strict reader
	}{
		{name: "a chat", give: `{"id":"1","choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`, strict: true, open: true},
		{name: "a message", give: `{"type":"message","content":[],"stop_reason":"end_turn"}`, strict: true, open: true},
		{name: "a response", give: `{"object":"response","error":null,"output":[],"status":"queued"}`, strict: true, open: true},
		{name: "embeddings", give: `{"object":"list","data":[{"embedding":[1]}]}`, strict: true, open: true},
		{name: "SGLang's", give: `{"text":"","output_ids":[],"meta_info":{"finish_reason":{"type":"length"}}}`, strict: true, open: true},
		{name: "a list of SGLang's", give: ` [{"text":"a"},{"text":"b"}]`, strict: true, open: true},
		{name: "a large object", give: `{"instructions":"` + pad + `","output":[]}`, strict: true, open: true},
		{name: "an object whose members come late", give: `{"id":"` + pad + `","error":{}}`, strict: true, open: true},
		{name: "NaN", give: `{"choices":[{"logprobs":NaN}]}`, strict: true, open: true},

		{name: "nothing"},
		{name: "blanks", give: " \n"},
		{name: "half an object", give: `{"choices":[{"message":`},
		{name: "most of a large object", give: `{"choices":[{"message":{"content":"` + pad + `"}}]`},
		{name: "most of a large unknown object", give: `{"segments":[{"text":"` + pad + `"}]`, unknown: true},
		{name: "half a list", give: `[1,`, open: true, unknown: true},
		{name: "an error", give: `{"error":"full"}`, broken: true},
		{name: "a large error", give: `{"error":{"message":"` + pad + `"}}`, broken: true},
		{name: "a large error of vLLM", give: `{"object":"error","message":"` + pad + `"}`, broken: true},
		{name: "an error of vLLM 0.8", give: `{"object":"error","message":"full","code":500}`, broken: true},
		{name: "an error of Anthropic", give: `{"type":"error","error":{}}`, broken: true},
		{name: "an aborted answer", give: `{"choices":[{"message":{"content":"a"},"finish_reason":"abort"}]}`, broken: true},
		{name: "an aborted answer of SGLang", give: `{"text":"","meta_info":{"finish_reason":{"type":"abort","status_code":503}}}`, broken: true},
		{name: "no error", give: `{"error":false,"code":0,"data":[1]}`, strict: true, open: true},
		{name: "a number of errors", give: `{"error":2,"data":[1]}`, broken: true},
		{name: "a wrong request", give: `{"error":{"message":"too long","code":400}}`, unknown: true},
		{name: "a large answer to a wrong request", give: `{"error":{"code":"400","message":"` + pad + `"}}`, unknown: true},
		{name: "a wrong request, of vLLM 0.8", give: `{"object":"error","message":"too long","code":404}`, unknown: true},
		{name: "a wrong request, of SGLang", give: `{"text":"","meta_info":{"finish_reason":{"type":"abort","status_code":400}}}`, unknown: true},
		{name: "a wrong request, of Anthropic", give: `{"type":"error","error":{"type":"invalid_request_error"}}`, unknown: true},
		{name: "too many requests", give: `{"error":{"code":429}}`, broken: true},
		{name: "lines of objects", give: `{"text":["a"]}` + "\n" + `{"text":["a b"]}` + "\n", strict: true, open: true},
		{name: "lines of another API", give: `{"response":"a"}` + "\n" + `{"response":""}` + "\n", open: true, unknown: true},
		{name: "an object, and text", give: `{"text":"a"} }`, open: true},
		{name: "an empty object", give: `{}`},
		{name: "no choice", give: `{"choices":[]}`, open: true, unknown: true},
		{name: "an empty error", give: `{"error":{}}`, open: true, unknown: true},
		{name: "errors", give: `{"errors":[{"message":"full"}]}`, open: true, unknown: true},
		{name: "a detail", give: `{"detail":"Not Found"}`, open: true, unknown: true},
		{name: "a job", give: `{"status":"queued"}`, open: true, unknown: true},
		{name: "null", give: `null`, open: true, unknown: true},
		{name: "a string", give: `"error"`, open: true, unknown: true},
		{name: "an empty list", give: `[]`},
		{name: "a list of numbers", give: `[[0.5]]`, open: true, unknown: true},
		{name: "text", give: `Service starting`, open: true, unknown: true},
		{name: "HTML without its type", give: `<html>`, open: true, broken: true},
		{name: "bytes", give: "\x00\x01", open: true, unknown: true},
		{name: "JSON that ends by chance", give: `{"choices":[{"message":{"content":"a"}`, open: true},

		{name: "events", events: true, give: text + `data: {"choices":[{"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n", strict: true, open: true},
		{name: "events without their type", give: text + "data: [DONE]\n\n", strict: true, open: true},
		{name: "no token", events: true, give: `data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}` + "\n\n", strict: true, open: true},
		{name: "a large last event", events: true, give: "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n" +
			"event: response.completed\ndata: {\"response\":{\"output\":\"" + pad + "\"},\"type\":\"response.completed\"}\n\n", strict: true, open: true},
		{name: "the end of Anthropic's", events: true, give: `data: {"type":"message_stop"}` + "\n\n", strict: true, open: true},
		{name: "the end of Responses", events: true, give: `data: {"type":"response.completed","response":{}}` + "\n\n", strict: true, open: true},
		{name: "no event", events: true},
		{name: "comments only", events: true, give: ": keep-alive\n\n"},
		{name: "half of the text", events: true, give: text},
		{name: "half of Anthropic's", events: true, give: `data: {"type":"content_block_delta","delta":{"text":"a"}}` + "\n\n"},
		{name: "half of Responses", events: true, give: `data: {"type":"response.output_text.delta","delta":"a"}` + "\n\n"},
		{name: "an error after text", events: true, give: text + `data: {"error":{"code":500}}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "events of an unknown API", events: true, give: "data: a\n\n", open: true, unknown: true},
		{name: "the end only", events: true, give: "data: [DONE]\n\n", open: true},
		{name: "a role and the end", events: true, give: `data: {"choices":[{"delta":{"role":"assistant"}}]}` + "\n\ndata: [DONE]\n\n", open: true},
		{name: "events of nothing", events: true, give: "data: null\n\ndata: {}\n\n", unknown: true},
		{name: "events of something else", events: true, give: "data: not JSON\n\ndata: {\"detail\":\"full\"}\n\ndata: [DONE]\n\n", open: true, unknown: true},
		{name: "an error event without a type", give: `data: {"error":{"code":503}}` + "\n\n", broken: true},
		{name: "an error event of vLLM 0.8", events: true, give: `data: {"object":"error","message":"full"}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "an event of the type error", events: true, give: `data: {"type":"error","code":"server_error"}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "an event with another name", events: true, give: "event: Error\ndata: full\n\n", broken: true},
		{name: "a large error event", events: true, give: `data: {"error":{"message":"` + pad + `"}}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "an aborted stream", events: true, give: text + `data: {"choices":[{"delta":{},"finish_reason":"error"}]}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "an aborted stream of SGLang", events: true, give: `data: {"text":"","meta_info":{"finish_reason":{"type":"abort"}}}` + "\n\ndata: [DONE]\n\n", broken: true},
		{name: "a comment without a type", give: ": ping\n\n" + text + "data: [DONE]\n\n", strict: true, open: true},
		{name: "a time without a type", give: "retry: 1\n\n" + text + "data: [DONE]\n\n", strict: true, open: true},
		{name: "llama.cpp's own events", events: true, give: `data: {"content":"a","stop":false}` + "\n\n" + `data: {"content":"","stop":true}` + "\n\n", strict: true, open: true},
		{name: "half of llama.cpp's own events", events: true, give: `data: {"content":"a","stop":false}` + "\n\n"},
		{name: "an event for a wrong request", events: true, give: `data: {"error":{"message":"too long","code":400}}` + "\n\ndata: [DONE]\n\n", unknown: true},
		{name: "an error event of Anthropic for a wrong request", events: true, give: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n", unknown: true},
		{name: "an event of TGI for a wrong request", events: true, give: `data:{"error":"too long","error_type":"validation"}` + "\n\n", unknown: true},
		{name: "a wrong request after text", events: true, give: text + `data: {"error":{"code":400}}` + "\n\ndata: [DONE]\n\n", unknown: true},
		{name: "an error of TGI", events: true, give: "event:error\ndata:{\"error\":\"overloaded\"}\n\n", broken: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{7, 64, len(tt.give) + 1} {
				r := bodyOf(AnswerReader{Events: tt.events, Strict: true}, tt.give, size)
				assert.Equal(t, tt.broken, r.IsBroken(), "in pieces of %d", size)
				assert.Equal(t, tt.strict, r.IsComplete(), "in pieces of %d", size)
				assert.Equal(t, tt.unknown, r.IsUnknownFormat(), "in pieces of %d", size)
				assert.Equal(t, tt.open, bodyOf(AnswerReader{Events: tt.events}, tt.give, size).IsComplete(), "open, in pieces of %d", size)
			}
		})
	}
}

// TestReader_Lists has bodies with the status 200 from APIs whose answers are lists of numbers or images.
func TestReader_Lists(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("1,", maxEvent)
	tests := []struct {
		give                   string
		whole, broken, unknown bool
	}{
		{give: `{"object":"list","data":[{"embedding":"AAAA"}]}`, whole: true},
		{give: `{"object":"list","data":[{"embedding":[` + pad + `1]}]}`, whole: true},
		{give: `{"data":[]}`, whole: true},
		{give: `{"scores":[0.5]}`, whole: true},
		{give: `[{"index":0,"score":0.5}]`, whole: true},
		{give: `[[0.5]]`, whole: true},
		{give: `{"data":[{"embedding":[1`},
		{give: `{"error":{"message":"full"},"data":[]}`, broken: true},
		{give: `<html>`, broken: true},
		{give: `{"detail":"Not authenticated"}`, unknown: true},
		{give: `{"detail":[{"msg":"field required"}]}`, unknown: true},
		{give: `{"message":"no healthy upstream","code":503}`, unknown: true},
		{give: `null`, unknown: true},
		{give: `Service starting`, unknown: true},
	}
	for _, tt := range tests {
		for _, size := range []int{7, len(tt.give) + 1} {
			r := bodyOf(AnswerReader{Format: FormatLists}, tt.give, size)
			assert.Equal(t, tt.whole, r.IsComplete(), tt.give)
			assert.Equal(t, tt.broken, r.IsBroken(), tt.give)
			assert.Equal(t, tt.unknown, r.IsUnknownFormat(), tt.give)
		}
	}
}

// TestReader_FirstContent has events before the first content, of known APIs and others.
func TestReader_FirstContent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give   string
		strict bool // of APIs that are known only
	}{
		{give: `data: {"text_output":""}`},
		{give: `data: {"model_name":"ensemble","sequence_id":0,"text_output":""}`},
		{give: `data:{"index":1,"token":{"id":1,"text":"","logprob":null,"special":false},"generated_text":null}`},
		{give: `data:{"index":1,"token":null}`},
		{give: `data: {"content":"","stop":false}`},
		{give: `data: {"meta_info":{"id":"1"}}`},
		{give: "event: ping\ndata: {}"},
		{give: `data: {}`},
		{give: `data: ping`, strict: true},
		{give: `data: {"object":"heartbeat"}`, strict: true},
		{give: `data: {"id":"1","object":"chat.completion.chunk"}`, strict: true},
		{give: `data: {"choices":[{"delta":{"content":[{"type":"text","text":""}]}}]}`},
		{give: `data: {"choices":[{"delta":{"role":"assistant","name":"bot"}}]}`},
		{give: `data: {"type":"response.output_item.added","item":{"type":"message","content":[]}}`},
	}
	for _, tt := range tests {
		for _, strict := range []bool{true, false} {
			if r := bodyOf(AnswerReader{Events: true, Strict: strict}, tt.give+"\n\n", 1000); strict || !tt.strict {
				assert.False(t, r.hasContent, "%s, strict: %t", tt.give, strict)
			}
		}
	}
	for _, give := range []string{
		`data: {"text_output":"a"}`, `data:{"token":{"text":"a"}}`, `data: {"content":"a"}`, `data: {"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}`,
		`data: {"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`,
	} {
		assert.True(t, bodyOf(AnswerReader{Events: true, Strict: true}, give+"\n\n", 1000).hasContent, give)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", uint8(3))
	f.Add("event: error\r\ndata: x\r\n: c\r\n", uint8(1))
	f.Add("data: {\"type\":\"response.a.delta\",\"delta\":{\"a\":[]}}\n", uint8(5))
	f.Fuzz(func(t *testing.T, body string, size uint8) {
		whole, pieces := AnswerReader{Events: true}, AnswerReader{Events: true}
		assert.Equal(t, readBody(&whole, body, len(body)+1), readBody(&pieces, body, int(size)+1))
		assert.Equal(t, whole.ErrorCount(), pieces.ErrorCount())
		assert.Equal(t, whole.Usage(), pieces.Usage())
		for _, strict := range []bool{true, false} {
			assert.Equal(t, bodyOf(AnswerReader{Strict: strict}, body, len(body)+1).IsComplete(), bodyOf(AnswerReader{Strict: strict}, body,
				int(size)+8).IsComplete())
		}
	})
}

func BenchmarkReader(b *testing.B) {
	piece := []byte(`data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	r := AnswerReader{Events: true}
	b.ReportAllocs()
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if r.ReadPiece(piece) != 1 {
			b.Fatal("no content")
		}
	}
}
