// Package request reads inference requests: which model is asked for, and with what prompt.
//
// Parse goes through a body once and says where in it the things are that a picker wants; nothing is decoded or
// copied. A prompt is a list of parts, in the order in which model servers put them together, so that two bodies which
// begin with the same parts begin with the same tokens.
package request

import (
	"errors"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

// Reasons for which a request cannot be understood.
var (
	// ErrMalformed means that the body is not what its API takes.
	ErrMalformed = errors.New("parse request body")
	errNoModel   = errors.New("model not found in request body")
	errNotObject = errors.New("it is not an object")
)

// Incoming is a request as a gateway shows it.
type Incoming struct {
	Path    string  // with its query; empty if it was not shown
	Headers Headers // those that were wanted
	Body    []byte  // empty if there is none, or if it was not shown
}

// A Header is one header field. Its name is in lower case.
type Header struct {
	Name, Value string
}

// Headers are header fields in the order in which they came.
type Headers []Header

// Get returns the first value under a name, which must be in lower case; empty if there is none.
func (h Headers) Get(name string) string {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value
		}
	}
	return ""
}

const (
	bytesPerToken = 4   // of text, about
	mediaTokens   = 576 // of an image or a sound, about
)

// A Part is a piece of a prompt.
type Part struct {
	Span  jsonscan.Span // as it is written in JSON, text without its quotes
	Media bool          // an image or a sound: its length says nothing about its tokens
	IDs   int           // a list of so many token ids
	// Packed ids are in protobuf's format, others are in JSON.
	Packed bool
}

// Turns says how much of a prompt was said before, in its parts. All are 0 if the model has not answered yet.
type Turns struct {
	Opening int // up to the model's first answer: the first prompt of the conversation
	Asked   int // up to its last answer: the last prompt
	History int // up to the end of its last answer
}

// answered takes the parts of an answer.
func (t *Turns) answered(from, to int) {
	if t.History == 0 {
		t.Opening = from
	}
	t.Asked, t.History = from, to
}

// A Request is what a body asks for. It can be used for one body after the other.
type Request struct {
	Body []byte // what the spans are of
	API  *API

	Model     jsonscan.Span // between the quotes; empty if there is none
	CacheSalt jsonscan.Span // likewise
	Stream    bool
	MaxTokens int    // of the answer, 0 if that is not said
	Prompt    []Part // of several prompts the first
	Others    int    // bytes of the prompts after the first
	Turns     Turns

	scanner jsonscan.Scanner
	head    []Part // what comes first in the prompt, wherever it is in the body
	main    []Part
}

// Reset forgets everything and takes another body.
func (r *Request) Reset(body []byte) {
	*r = Request{Body: body, scanner: r.scanner, head: r.head[:0], main: r.main[:0]}
}

// Tokens estimates how many tokens the prompts have.
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

// Text returns what is at a place.
func (r *Request) Text(s jsonscan.Span) []byte { return r.Body[s.From:s.To] }
