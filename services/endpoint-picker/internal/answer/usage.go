// Package answer reads the bodies of responses as they pass: the number of tokens that the model server reports, and the
// name of its model.
//
// Bodies come in pieces with arbitrary boundaries. Both readers rely on one fact about JSON: quotes inside a string are
// escaped, so an unescaped "usage" followed by a colon is always a key. So they search the body, and need not know whether
// it is one object or a stream of events.
package answer

import (
	"bytes"
	"slices"
	"strconv"

	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// Usage is the token usage that a model server reported. Known is false if the response reported none.
type Usage struct {
	Known  bool
	Prompt int // tokens
	Output int // tokens
	Cached int // tokens of the prompt that were in the cache

	CachedKnown bool // the server reported the number of cached tokens
}

// Form is the format of the usage in a body.
type Form uint8

// The forms.
const (
	FormObject   Form = iota // an object "usage": OpenAI's and Anthropic's APIs
	FormMetaInfo             // an object "meta_info": SGLang's own
	FormVLLM                 // messages of vLLM's gRPC service
	FormOpen                 // an object "usage", or a body in another format
)

// keys are the keys in front of usage objects.
var keys = [...][]byte{FormObject: []byte(`"usage"`), FormMetaInfo: []byte(`"meta_info"`), FormOpen: []byte(`"usage"`)}

const (
	usualUsage = 256     // bytes of a usage object
	maxUsage   = 4 << 10 // the maximum
)

// UsageReader finds the usage in a body. The zero value is ready.
type UsageReader struct {
	Form Form

	frames frames
	usage  Usage
	extra  extra
	tail   []byte // the last bytes of the previous pieces, shorter than the key
	object []byte // begun, not complete
	inside bool   // in an object
	depth  int
	quoted bool
	escape bool
}

// extra are prompt tokens that Anthropic's API counts beside the others.
type extra struct{ read, written int } // from the cache, and to it

// Usage returns the usage found so far. If there are several, the last one counts, field by field: Anthropic's API sends two
// halves.
func (r *UsageReader) Usage() Usage {
	u := r.usage
	u.Prompt += r.extra.read + r.extra.written
	return u
}

// Read processes the next piece of the body.
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
		r.inside, r.object, r.depth, r.quoted, r.escape = true, slices.Grow(r.object[:0], usualUsage), 0, false, false
		piece = rest
	}
}

// search looks for the key. It returns the text after the key.
func (r *UsageReader) search(piece []byte) ([]byte, bool) {
	key := keys[r.Form]
	if len(r.tail) > 0 { // the key may begin in the previous pieces
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

// keep stores the end of a piece if the key could begin there.
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

// collect continues after the key: with a colon and an object. It returns the text after the object, or reports that the
// object continues in the next piece. Any value other than an object is not usage.
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

// closes consumes one byte of the object and reports whether it is the last one.
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

// read reads the numbers in the object.
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
		case "cache_read_input_tokens":
			found.Cached, found.CachedKnown = count(&s), true
			extra.read = found.Cached
		case "cache_creation_input_tokens":
			extra.written = count(&s)
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

// count reads a number of tokens. It returns 0 if the value is not a number.
func count(s *jsonscan.Scanner) int {
	n, err := strconv.Atoi(string(s.Text(s.Value())))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
