package answer

import "bytes"

const (
	keyModel = `"model"`
	// maxBlanks is how much space may be around the colon behind a key. What has more is left as it is.
	maxBlanks = 16
)

// Renamer gives the model of a response the name that the client used. It changes the value of every key "model" that
// has the other name, at any depth: the events of some APIs have it inside an object.
type Renamer struct {
	from, to []byte // JSON strings, with their quotes
	held     []byte // what may be the beginning of a key with its value
}

// NewRenamer returns a Renamer of one body. The names are JSON strings, quotes and all.
func NewRenamer(from, to []byte) *Renamer { return &Renamer{from: from, to: to} }

// Append appends the next piece to out as it should go on. What could be the beginning of a name is held back until
// that is known.
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

// Flush appends what is held back to out: the body has ended.
func (r *Renamer) Flush(out []byte) []byte {
	out = append(out, r.held...)
	r.held = nil
	return out
}

// verdict says what the value of a key is.
type verdict uint8

const (
	other verdict = iota
	same
	undecided // the piece ends too early
)

// value looks at what follows a key. It returns where the value begins.
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

// overlap is how many bytes at the end of the text could be the beginning of the key.
func overlap(text []byte, key string) int {
	for n := min(len(key)-1, len(text)); n > 0; n-- {
		if string(text[len(text)-n:]) == key[:n] {
			return n
		}
	}
	return 0
}
