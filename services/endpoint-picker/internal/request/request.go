// Package request reads inference requests: the requested model and the prompt.
//
// Parse reads a body once and returns the positions of the values that a picker needs; it decodes and copies nothing. A
// prompt is a list of parts, in the order in which model servers join them, so two bodies that begin with the same parts
// begin with the same tokens.
package request

import (
	"errors"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

// Reasons why a request cannot be parsed.
var (
	// ErrMalformed means that the body does not have the format of its API.
	ErrMalformed = errors.New("parse request body")
	errNoModel   = errors.New("model not found in request body")
	errNotObject = errors.New("it is not an object")
)

// Incoming is a request from a gateway.
type Incoming struct {
	Path    string  // including the query; empty if the gateway did not send it
	Headers Headers // the requested ones
	Body    []byte  // empty if there is none, or if the gateway did not send it
}

// A Header is one header field. Its name is in lower case.
type Header struct {
	Name, Value string
}

// Headers are header fields in their original order.
type Headers []Header

// Get returns the first value of a name in lower case; empty if there is none.
func (h Headers) Get(name string) string {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value
		}
	}
	return ""
}

const (
	bytesPerToken = 4   // of text, approximately
	mediaTokens   = 576 // of an image or a sound, approximately
)

// A Part is a piece of a prompt.
type Part struct {
	Span  jsonscan.Span // in the JSON body; text without its quotes
	Media bool          // an image or a sound: its length does not show its number of tokens
	IDs   int           // number of ids in a list of token ids
	// Packed ids are in protobuf's format, others in JSON.
	Packed bool
}

// Turns contains the positions of a conversation's turns, in parts of the prompt. All are 0 before the model's first answer.
type Turns struct {
	Opening int // up to the model's first answer: the first prompt of the conversation
	Asked   int // up to its last answer: the last prompt
	History int // up to the end of its last answer
}

// answered records the parts of an answer.
func (t *Turns) answered(from, to int) {
	if t.History == 0 {
		t.Opening = from
	}
	t.Asked, t.History = from, to
}

// A Request is the content of a body. It can be reused for other bodies.
type Request struct {
	Body []byte // the text of the spans
	API  *API

	Model     jsonscan.Span // between the quotes; empty if there is none
	CacheSalt jsonscan.Span // between the quotes; empty if there is none
	Stream    bool
	MaxTokens int    // of the answer, 0 if missing
	Prompt    []Part // the first of several prompts
	Others    int    // bytes of the prompts after the first
	Turns     Turns

	scanner jsonscan.Scanner
	head    []Part // the parts that come first in the prompt, wherever they are in the body
	main    []Part
}

// Reset discards everything and sets another body.
func (r *Request) Reset(body []byte) {
	*r = Request{Body: body, scanner: r.scanner, head: r.head[:0], main: r.main[:0]}
}

// Tokens estimates the number of tokens in the prompts.
func (r *Request) Tokens() int {
	bytes, tokens := r.Others, 0
	for _, p := range r.Prompt {
		switch {
		case p.Media:
			tokens += mediaTokens
		case p.IDs > 0:
			tokens += p.IDs
		default:
			bytes += p.Span.To - p.Span.From
		}
	}
	return tokens + bytes/bytesPerToken
}

// Text returns the text of a span.
func (r *Request) Text(s jsonscan.Span) []byte { return r.Body[s.From:s.To] }
