package api

import (
	"encoding/json"
	"fmt"
)

// responsesDialect is /v1/responses. Its streams have the events of OpenAI's API, except those of output items and content parts.
type responsesDialect struct{}

func (responsesDialect) idPrefix() string { return "resp_" }
func (responsesDialect) object() string   { return "response" }

func (responsesDialect) whole(g *generation, _ string, texts []string) any {
	return newResponse(g, "completed", texts...)
}

func (responsesDialect) events(g *generation, _ string) events { return &responseWriter{generation: g} }

// newResponse returns an answer with a status, and with usage if it has a text.
func newResponse(g *generation, status string, texts ...string) response {
	r := response{
		ID: g.id, Object: g.dialect.object(), CreatedAt: g.created.Unix(), Status: status, Model: g.model, Output: []outputMessage{},
	}
	for _, text := range texts {
		u := g.usage()
		r.Usage = &responseUsage{
			InputTokens: u.PromptTokens, Details: u.Details, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
		}
		r.Output = append(r.Output, outputMessage{
			ID: "msg_" + g.id, Type: "message", Status: status, Role: "assistant", Content: []outputText{{Type: "output_text", Text: text}},
		})
	}
	return r
}

// responseWriter writes the events of one stream.
type responseWriter struct {
	generation *generation
	buf        []byte
	text       []byte // so far
	number     int    // of the next event
}

func (r *responseWriter) buffer() *[]byte { return &r.buf }

func (r *responseWriter) begin() {
	r.response("created", newResponse(r.generation, "in_progress"))
	r.response("in_progress", newResponse(r.generation, "in_progress"))
}

func (*responseWriter) opening(int, *usage) {}

func (r *responseWriter) tokens(index int, text []byte, _ []uint32, _ string, _ *usage) {
	r.text = append(r.text, text...)
	r.event("output_text.delta", fmt.Sprintf(`"item_id":"msg_%s","output_index":%d,"content_index":0,"delta":"%s"`, r.generation.id, index, text))
}

func (r *responseWriter) end(*usage, *streamOptions) {
	r.response("completed", newResponse(r.generation, "completed", string(r.text)))
}

// response writes an event with the whole response.
func (r *responseWriter) response(kind string, v response) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: strings and numbers always encode
	}
	r.event(kind, `"response":`+string(text))
}

func (r *responseWriter) event(kind, members string) {
	r.buf = fmt.Appendf(r.buf, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d,%s}\n\n", kind, kind, r.number,
		members)
	r.number++
}
