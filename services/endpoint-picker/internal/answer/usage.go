// Package answer looks at the bodies of responses as they pass: how many tokens the model server says it used, and what
// it calls its model.
//
// Bodies come in pieces that are cut anywhere. Both readers know JSON by one fact: inside a string a quote is escaped, so
// that an unescaped "usage" with a colon behind it is a key, whatever surrounds it. So they need not know whether a
// body is one object or a stream of events, and go through it by searching.
package answer

import (
	"bytes"
	"strconv"

	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
)

// Usage is what a model server said it did. Of a response that did not say, Known is false.
type Usage struct {
	Known  bool
	Prompt int // tokens
	Output int // tokens
	Cached int // tokens of the prompt that were in the cache

	CachedKnown bool // it said how many were cached
}

// Form is how bodies say their usage.
type Form uint8

// The forms.
const (
	FormObject   Form = iota // an object "usage": OpenAI's and Anthropic's APIs
	FormMetaInfo             // an object "meta_info": SGLang's own
	FormVLLM                 // messages of vLLM's gRPC service
)

// keys are how objects of usage begin.
var keys = [...][]byte{FormObject: []byte(`"usage"`), FormMetaInfo: []byte(`"meta_info"`)}

// maxUsage is how long an object of usage may be, in bytes.
const maxUsage = 4 << 10

// UsageReader finds the usage in a body. The zero value is ready.
type UsageReader struct {
	Form Form

	frames frames
	usage  Usage
	extra  int    // prompt tokens that are counted apart from the prompt's
	tail   []byte // the last bytes of the pieces before, shorter than the key
	object []byte // begun and not ended
	inside bool   // in an object
	depth  int
	quoted bool
	escape bool
}

// Usage returns what was found so far. Of several the last counts, field by field: Anthropic's come in two halves.
func (r *UsageReader) Usage() Usage {
	u := r.usage
	u.Prompt += r.extra
	return u
}

// Read looks at the next piece of the body.
func (r *UsageReader) Read(piece []byte) {
	if r.Form == FormVLLM {
		r.frames.read(piece, r.message)
		return
	}
	for {
		if r.inside {
			rest, done := r.collect(piece)
			if !done {
				return
			}
			piece = rest
		}
		rest, found := r.search(piece)
		if !found {
			return
		}
		r.inside, r.object, r.depth, r.quoted, r.escape = true, r.object[:0], 0, false, false
		piece = rest
	}
}

// search looks for the key. It returns what follows it.
func (r *UsageReader) search(piece []byte) ([]byte, bool) {
	key := keys[r.Form]
	if len(r.tail) > 0 { // the key may begin in the pieces before
		joined := append(r.tail, piece[:min(len(piece), len(key)-1)]...)
		if i := bytes.Index(joined, key); i >= 0 && i < len(r.tail) {
			rest := piece[i+len(key)-len(r.tail):]
			r.tail = r.tail[:0]
			return rest, true
		}
	}
	if i := bytes.Index(piece, key); i >= 0 {
		r.tail = r.tail[:0]
		return piece[i+len(key):], true
	}
	r.keep(piece, key)
	return nil, false
}

// keep keeps the end of a piece, if the key could begin there.
func (r *UsageReader) keep(piece, key []byte) {
	room := len(key) - 1
	if len(piece) >= room {
		piece = piece[len(piece)-room:]
		r.tail = r.tail[:0]
	}
	r.tail = append(r.tail, piece...)
	if len(r.tail) > room {
		r.tail = r.tail[:copy(r.tail, r.tail[len(r.tail)-room:])]
	}
	if i := bytes.IndexByte(r.tail, key[0]); i < 0 {
		r.tail = r.tail[:0]
	}
}

// collect goes on with what follows the key: a colon and an object. It returns what follows that, or that it is to go on
// in the next piece. Anything else than an object is not usage.
func (r *UsageReader) collect(piece []byte) ([]byte, bool) {
	for i, c := range piece {
		switch {
		case r.depth == 0 && (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ':' && len(r.object) == 0):
			continue
		case r.depth == 0 && c != '{', len(r.object) == maxUsage:
			r.inside = false
			return piece[i:], true
		}
		r.object = append(r.object, c)
		if r.closes(c) {
			r.inside = false
			r.read()
			return piece[i+1:], true
		}
	}
	return nil, false
}

// closes takes one byte of the object and reports whether it is the last.
func (r *UsageReader) closes(c byte) bool {
	switch {
	case r.escape:
		r.escape = false
	case r.quoted:
		r.escape = c == '\\'
		r.quoted = c != '"'
	case c == '"':
		r.quoted = true
	case c == '{':
		r.depth++
	case c == '}':
		r.depth--
	}
	return r.depth == 0
}

// read takes the figures of the object.
func (r *UsageReader) read() {
	var s jsonscan.Scanner
	s.Reset(r.object)
	found := r.usage
	extra := r.extra
	s.Open()
	for key, ok := s.Key(); ok; key, ok = s.Key() {
		switch string(key) {
		case "prompt_tokens":
			found.Prompt, found.Known = count(&s), true
		case "input_tokens":
			found.Prompt, found.Known = count(&s), true
		case "completion_tokens", "output_tokens":
			found.Output, found.Known = count(&s), true
		case "cached_tokens":
			found.Cached, found.CachedKnown = count(&s), true
		case "cache_read_input_tokens": // Anthropic's input tokens are those that were not cached
			found.Cached, found.CachedKnown = count(&s), true
			extra = found.Cached
		case "prompt_tokens_details", "input_tokens_details":
			if cached, ok := details(&s); ok {
				found.Cached, found.CachedKnown = cached, true
			}
		default:
			s.Value()
		}
	}
	if s.End() == nil {
		r.usage, r.extra = found, extra
	}
}

// details reads the cached tokens of a prompt's details, which may be null.
func details(s *jsonscan.Scanner) (cached int, ok bool) {
	if s.Next() != jsonscan.Object {
		s.Value()
		return 0, false
	}
	s.Open()
	for key, more := s.Key(); more; key, more = s.Key() {
		if string(key) == "cached_tokens" {
			cached, ok = count(s), true
			continue
		}
		s.Value()
	}
	return cached, ok
}

// count reads a number of tokens, 0 if it is not one.
func count(s *jsonscan.Scanner) int {
	n, err := strconv.Atoi(string(s.Text(s.Value())))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
