package api

import (
	"encoding/json"
	"strconv"
)

// A dialect formats the answers of an endpoint.
type dialect interface {
	idPrefix() string
	object() string
	// whole returns the answer with the texts of the choices, as JSON.
	whole(g *generation, fingerprint string, texts []string) any
	events(g *generation, fingerprint string) events
}

// events writes the events of one stream to a buffer. The text of tokens never needs escaping in JSON.
type events interface {
	buffer() *[]byte
	// begin writes the events before the prefill.
	begin()
	// opening writes the event before a choice's tokens, if the endpoint sends one.
	opening(index int, u *usage)
	// tokens writes the text of some tokens, and their ids unless these are nil.
	tokens(index int, text []byte, ids []uint32, finishReason string, u *usage)
	// end writes the last events, with the usage of the whole request, if there is one by default or by the options.
	end(u *usage, o *streamOptions)
}

// A chunkDialect is a dialect whose streams consist of chunks with choices.
type chunkDialect interface {
	dialect
	choice(index int, text, finishReason string) any
	chunkObject() string
	// appendOpening appends the choice of the chunk before a choice's tokens, if the endpoint sends one.
	appendOpening(dst []byte, index int) []byte
	// appendTokens appends the text of some tokens, and their ids unless these are nil.
	appendTokens(dst []byte, index int, text []byte, ids []uint32, finishReason string) []byte
	// noUsage returns the JSON that replaces the usage in a chunk without usage.
	noUsage() string
}

// wholeCompletion returns a whole answer.
func wholeCompletion(d chunkDialect, g *generation, fingerprint string, texts []string) completion {
	answer := completion{
		ID: g.id, Object: d.object(), Created: g.created.Unix(), Model: g.model, SystemFingerprint: fingerprint, Usage: g.usage(),
	}
	for i, c := range g.choices {
		answer.Choices = append(answer.Choices, d.choice(c.index, texts[i], c.finishReason(c.sent)))
	}
	return answer
}

// chatDialect is /v1/chat/completions.
type chatDialect struct{}

func (chatDialect) idPrefix() string    { return "chatcmpl-" }
func (chatDialect) object() string      { return "chat.completion" }
func (chatDialect) chunkObject() string { return "chat.completion.chunk" }
func (chatDialect) noUsage() string     { return "" }

func (d chatDialect) whole(g *generation, fingerprint string, texts []string) any {
	return wholeCompletion(d, g, fingerprint, texts)
}

func (d chatDialect) events(g *generation, fingerprint string) events {
	return newChunkWriter(d, g, fingerprint)
}

func (chatDialect) choice(index int, text, finishReason string) any {
	return chatChoice{Index: index, Message: chatContent{"assistant", text}, FinishReason: finishReason}
}

func (chatDialect) appendOpening(dst []byte, index int) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	return append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`...)
}

func (chatDialect) appendTokens(dst []byte, index int, text []byte, ids []uint32, finishReason string) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = append(append(dst, `,"delta":{"content":"`...), text...)
	dst = append(dst, `"},"logprobs":null,"finish_reason":`...)
	if finishReason == "" {
		return append(appendIDs(append(dst, "null"...), ids), '}')
	}
	dst = append(append(append(dst, '"'), finishReason...), `","stop_reason":null`...)
	return append(appendIDs(dst, ids), '}')
}

// textDialect is /v1/completions.
type textDialect struct{}

func (textDialect) idPrefix() string    { return "cmpl-" }
func (textDialect) object() string      { return "text_completion" }
func (textDialect) chunkObject() string { return "text_completion" }
func (textDialect) noUsage() string     { return `,"usage":null` }

func (d textDialect) whole(g *generation, fingerprint string, texts []string) any {
	return wholeCompletion(d, g, fingerprint, texts)
}

func (d textDialect) events(g *generation, fingerprint string) events {
	return newChunkWriter(d, g, fingerprint)
}

func (textDialect) choice(index int, text, finishReason string) any {
	return textChoice{Index: index, Text: text, FinishReason: finishReason}
}

func (textDialect) appendOpening([]byte, int) []byte { return nil }

func (textDialect) appendTokens(dst []byte, index int, text []byte, ids []uint32, finishReason string) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = append(append(dst, `,"text":"`...), text...)
	dst = append(dst, `","logprobs":null,"finish_reason":`...)
	if finishReason == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, '"'), finishReason...), '"')
	}
	return append(appendIDs(append(dst, `,"stop_reason":null`...), ids), '}')
}

// appendIDs appends the field with the ids of tokens. The captured chunks of vLLM 0.32 have token_ids null unless the
// client sets return_token_ids.
func appendIDs(dst []byte, ids []uint32) []byte {
	if ids == nil {
		return append(dst, `,"token_ids":null`...)
	}
	dst = append(dst, `,"token_ids":[`...)
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// chunkWriter writes the chunks of one stream as server-sent events.
type chunkWriter struct {
	dialect chunkDialect
	head    []byte // of each chunk, up to its choices
	buf     []byte
}

func newChunkWriter(d chunkDialect, g *generation, fingerprint string) *chunkWriter {
	head, err := json.Marshal(completion{
		ID: g.id, Object: d.chunkObject(), Created: g.created.Unix(), Model: g.model, SystemFingerprint: fingerprint, Choices: []any{},
	})
	if err != nil {
		panic(err) // unreachable: strings and a number always encode
	}
	return &chunkWriter{dialect: d, head: append([]byte("data: "), head[:len(head)-len("]}")]...)}
}

func (c *chunkWriter) buffer() *[]byte { return &c.buf }

func (*chunkWriter) begin() {}

func (c *chunkWriter) opening(index int, u *usage) {
	if choice := c.dialect.appendOpening(nil, index); choice != nil {
		c.buf = append(append(c.buf, c.head...), choice...)
		c.close(u)
	}
}

func (c *chunkWriter) tokens(index int, text []byte, ids []uint32, finishReason string, u *usage) {
	c.buf = append(c.buf, c.head...)
	c.buf = c.dialect.appendTokens(c.buf, index, text, ids, finishReason)
	c.close(u)
}

// end writes a chunk without choices that has the usage, if the client has requested it.
func (c *chunkWriter) end(u *usage, o *streamOptions) {
	if o != nil && o.IncludeUsage {
		c.buf = append(c.buf, c.head...)
		c.close(u)
	}
	c.buf = append(c.buf, "data: [DONE]\n\n"...)
}

// close ends a chunk.
func (c *chunkWriter) close(u *usage) {
	if u == nil {
		c.buf = append(append(append(c.buf, ']'), c.dialect.noUsage()...), "}\n\n"...)
		return
	}
	text, err := json.Marshal(u)
	if err != nil {
		panic(err) // unreachable: numbers always encode
	}
	c.buf = append(append(append(c.buf, `],"usage":`...), text...), "}\n\n"...)
}
