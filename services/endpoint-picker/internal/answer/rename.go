package answer

import "bytes"

const (
	keyModel = `"model"`
	// maxBlanks limits the white space around the colon after a key. A key with more white space is not renamed.
	maxBlanks = 16
)

// Renamer replaces the model name in a response with the name that the client used. It changes the value of every key
// "model" that has the other name, at any depth: the events of some APIs have it inside an object.
type Renamer struct {
	from, to []byte // JSON strings, with their quotes
	held     []byte // a possible beginning of a key with its value
}

// NewRenamer returns a Renamer for one body. The names are JSON strings, including the quotes.
func NewRenamer(from, to []byte) *Renamer { return &Renamer{from: from, to: to} }

// Append appends the next piece, renamed, to out. It holds back a possible beginning of a name until the rest arrives.
func (r *Renamer) Append(out, piece []byte) []byte {
	if len(r.held) > 0 {
		piece = append(r.held, piece...)
		r.held = nil
	}
	for {
		at := bytes.Index(piece, []byte(keyModel))
		if at < 0 {
			at = len(piece) - overlap(piece, keyModel)
			r.held = append(r.held, piece[at:]...)
			return append(out, piece[:at]...)
		}
		key := at + len(keyModel)
		value, found := r.value(piece[key:])
		switch found {
		case undecided:
			r.held = append(r.held, piece[at:]...)
			return append(out, piece[:at]...)
		case other:
			out, piece = append(out, piece[:key]...), piece[key:]
		case same:
			out = append(append(out, piece[:key+value]...), r.to...)
			piece = piece[key+value+len(r.from):]
		}
	}
}

// Flush appends the rest that was held back to out, at the end of the body.
func (r *Renamer) Flush(out []byte) []byte {
	out = append(out, r.held...)
	r.held = nil
	return out
}

// verdict is the result of checking the value of a key.
type verdict uint8

const (
	other verdict = iota
	same
	undecided // the piece ends too early
)

// value checks the text after a key. It returns the position of the value.
func (r *Renamer) value(rest []byte) (int, verdict) {
	at, colon := 0, false
	for ; at < len(rest) && at <= maxBlanks; at++ {
		switch c := rest[at]; {
		case c == ':' && !colon:
			colon = true
		case c == ' ', c == '\t', c == '\r', c == '\n':
		default:
			if colon && bytes.HasPrefix(rest[at:], r.from) {
				return at, same
			}
			if colon && bytes.HasPrefix(r.from, rest[at:]) {
				return at, undecided
			}
			return at, other
		}
	}
	if at > maxBlanks {
		return at, other
	}
	return at, undecided
}

// overlap returns the number of bytes at the end of the text that could be the beginning of the key.
func overlap(text []byte, key string) int {
	for n := min(len(key)-1, len(text)); n > 0; n-- {
		if string(text[len(text)-n:]) == key[:n] {
			return n
		}
	}
	return 0
}
