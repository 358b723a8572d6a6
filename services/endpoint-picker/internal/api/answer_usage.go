// The answer_ files read the bodies of responses as they pass: their content and the usage that the model server reports (AnswerReader),
// the name of its model (ModelRenamer), and the identifier of a response that it stores (ResponseIDReader).
//
// Bodies come in pieces with arbitrary boundaries. Usage and the name of the model are found by one fact about JSON: quotes inside a string
// are escaped, so an unescaped "usage" followed by a colon is always a key. So the body is searched for it, and need not be known to be
// one object or a stream of events.

package api

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Usage is the token usage that a model server reported. Known is false if the response reported none.
type Usage struct {
	Known  bool
	Prompt int // tokens
	Output int // tokens
	Cached int // tokens of the prompt that were in the cache

	CachedKnown bool // the server reported the number of cached tokens
}

// AnswerFormat is the format of a body, by its usage.
type AnswerFormat uint8

// The forms.
const (
	FormatObject   AnswerFormat = iota // an object "usage": OpenAI's and Anthropic's APIs
	FormatMetaInfo                     // an object "meta_info": SGLang's own
	FormatVLLM                         // messages of vLLM's gRPC service
	FormatOpen                         // an object "usage", or a body in another format
	FormatLists                        // an object "usage", in a body that is a list, or has one: embeddings, scores, images
)

// keys are the keys in front of usage objects.
var keys = [...][]byte{FormatObject: []byte(`"usage"`), FormatMetaInfo: []byte(`"meta_info"`), FormatOpen: []byte(`"usage"`),
	FormatLists: []byte(`"usage"`)}

const (
	usualUsage = 256     // bytes of a usage object
	maxUsage   = 4 << 10 // the maximum
)

// usageReader finds the usage in a JSON body.
type usageReader struct {
	usage   Usage
	extra   extra
	object  []byte // begun, not complete
	depth   int
	matched uint8 // bytes of the key at the end of the previous pieces
	inside  bool  // behind a key, or in its object
	quoted  bool
	escape  bool
}

// extra are prompt tokens that Anthropic's API counts beside the others.
type extra struct{ read, written int } // from the cache, and to it

// Usage returns the usage found so far. If there are several, the last one counts, field by field: Anthropic's API sends two
// halves.
func (r *AnswerReader) Usage() Usage {
	u := r.usage.usage
	u.Prompt += r.usage.extra.read + r.usage.extra.written
	return u
}

// readPiece processes the next piece of the body, in which usage objects follow a key.
func (r *usageReader) readPiece(piece, key []byte) {
	for {
		if r.inside {
			rest, done := r.collectObject(piece)
			if !done {
				return
			}
			piece = rest
		}
		rest, found := r.searchKey(piece, key)
		if !found {
			return
		}
		r.inside, r.object, r.depth, r.quoted, r.escape = true, r.object[:0], 0, false, false
		piece = rest
	}
}

// searchKey looks for the key. It returns the text after the key.
func (r *usageReader) searchKey(piece, key []byte) ([]byte, bool) {
	if r.matched > 0 {
		piece = slices.Concat(key[:r.matched], piece)
	}
	if _, rest, found := bytes.Cut(piece, key); found {
		r.matched = 0
		return rest, true
	}
	r.matched = uint8(overlapLength(piece, key))
	return nil, false
}

// collectObject continues after the key: with a colon and an object. It returns the text after the object, or reports that the
// object continues in the next piece. Any value other than an object is not usage.
func (r *usageReader) collectObject(piece []byte) ([]byte, bool) {
	for i, c := range piece {
		switch {
		case r.depth == 0 && (c == ':' || strings.IndexByte(jsonBlanks, c) >= 0):
			continue
		case r.depth == 0 && c != '{', len(r.object) == maxUsage:
			r.inside = false
			return piece[i:], true
		}
		if len(r.object) == 0 {
			r.object = slices.Grow(r.object, usualUsage)
		}
		r.object = append(r.object, c)
		if r.closesObject(c) {
			r.inside = false
			r.parseUsage()
			return piece[i+1:], true
		}
	}
	return nil, false
}

// closesObject consumes one byte of the object and reports whether it is the last one.
func (r *usageReader) closesObject(c byte) bool {
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

// parseUsage reads the numbers in the object.
func (r *usageReader) parseUsage() {
	var s Scanner
	s.Reset(r.object)
	found, extra := r.usage, r.extra
	s.EnterValue()
	for key, ok := s.NextKey(); ok; key, ok = s.NextKey() {
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			found.Prompt, found.Known = readCount(&s), true
		case "completion_tokens", "output_tokens":
			found.Output, found.Known = readCount(&s), true
		case "cached_tokens":
			found.Cached, found.CachedKnown = readCount(&s), true
		case "cache_read_input_tokens":
			found.Cached, found.CachedKnown = readCount(&s), true
			extra.read = found.Cached
		case "cache_creation_input_tokens":
			extra.written = readCount(&s)
		case "prompt_tokens_details", "input_tokens_details":
			if cached, ok := readDetails(&s); ok {
				found.Cached, found.CachedKnown = cached, true
			}
		default:
			s.SkipValue()
		}
	}
	if s.CheckEnd() == nil {
		r.usage, r.extra = found, extra
	}
}

// readDetails reads the cached tokens of a prompt's details, which may be null.
func readDetails(s *Scanner) (cached int, ok bool) {
	s.EachMember(func(key []byte) {
		if string(key) == "cached_tokens" {
			cached, ok = readCount(s), true
		} else {
			s.SkipValue()
		}
	})
	return cached, ok
}

// readCount reads a number of tokens. It returns 0 if the value is not a number.
func readCount(s *Scanner) int {
	n, err := strconv.Atoi(string(s.TextOf(s.SkipValue())))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
