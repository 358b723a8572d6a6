package api

import (
	"bytes"
)

const (
	keyModel = `"model"`
	// maxBlanks limits the white space around the colon after a key. A key with more white space is not renamed.
	maxBlanks = 16
)

// ModelRenamer replaces the model name in a response with the name that the client used. It changes the value of every key
// "model" that has the other name, at any depth: the events of some APIs have it inside an object. Servers escape names in
// different ways (&, /, other scripts), so it compares them without escapes.
type ModelRenamer struct {
	from     []byte // without escapes
	to       []byte // a JSON string, with its quotes
	heldBack []byte // a possible beginning of a key with its value
	name     []byte // the last name with escapes, without them
}

// NewModelRenamer returns a Renamer for one body. from is the name that the server uses; to is a JSON string, including the quotes.
func NewModelRenamer(from string, to []byte) *ModelRenamer {
	return &ModelRenamer{from: []byte(from), to: to}
}

// Append appends the next piece, renamed, to out. It holds back a possible beginning of a name until the rest arrives.
func (r *ModelRenamer) Append(out, piece []byte) []byte {
	if len(r.heldBack) > 0 {
		piece = append(r.heldBack, piece...)
		r.heldBack = nil
	}
	for {
		at := bytes.Index(piece, []byte(keyModel))
		if at < 0 {
			at = len(piece) - overlapLength(piece, []byte(keyModel))
			r.heldBack = append(r.heldBack, piece[at:]...)
			return append(out, piece[:at]...)
		}
		key := at + len(keyModel)
		value, end, found := r.matchValue(piece[key:])
		switch found {
		case undecided:
			r.heldBack = append(r.heldBack, piece[at:]...)
			return append(out, piece[:at]...)
		case otherName:
			out, piece = append(out, piece[:key]...), piece[key:]
		case sameName:
			out = append(append(out, piece[:key+value]...), r.to...)
			piece = piece[key+end:]
		}
	}
}

// Flush appends the rest that was held back to out, at the end of the body.
func (r *ModelRenamer) Flush(out []byte) []byte {
	out = append(out, r.heldBack...)
	r.heldBack = nil
	return out
}

// match is the result of checking the value of a key.
type match uint8

const (
	otherName match = iota
	sameName
	undecided // the piece ends too early
)

// matchValue checks the text after a key. It returns the position of the value, if it is the name.
func (r *ModelRenamer) matchValue(rest []byte) (from, to int, v match) {
	at, colon := 0, false
	for ; at < len(rest) && at <= maxBlanks; at++ {
		switch c := rest[at]; {
		case c == ':' && !colon:
			colon = true
		case c == ' ', c == '\t', c == '\r', c == '\n':
		case c == '"' && colon:
			size, v := r.compareName(rest[at+1:])
			return at, at + 1 + size, v
		default:
			return 0, 0, otherName
		}
	}
	if at > maxBlanks {
		return 0, 0, otherName
	}
	return 0, 0, undecided
}

// compareName compares the string after a quote with the name. It returns the length up to and including the closing quote.
func (r *ModelRenamer) compareName(rest []byte) (int, match) {
	longest := MaxEscape * len(r.from) // as a server may write it
	escaped := false
	for at := 0; at < len(rest); at++ {
		switch {
		case at > longest:
			return 0, otherName
		case rest[at] == '\\':
			escaped = true
			at++ // an escaped quote is not the end
		case rest[at] == '"':
			name := rest[:at]
			if escaped {
				r.name = Unescape(r.name[:0], name)
				name = r.name
			}
			if bytes.Equal(name, r.from) {
				return at + 1, sameName
			}
			return 0, otherName
		}
	}
	return 0, undecided
}

// overlapLength returns the number of bytes at the end of the text that could be the beginning of the key.
func overlapLength(text, key []byte) int {
	for n := min(len(key)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, key[:n]) {
			return n
		}
	}
	return 0
}
