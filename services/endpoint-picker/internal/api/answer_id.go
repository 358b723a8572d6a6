package api

const (
	// maxID is the maximum length of an identifier, in bytes. OpenAI's have 53, vLLM's and SGLang's 37, UUIDs 36.
	maxID = 128
	// maxBeforeID is the part of a body that is searched, in bytes. The identifier comes first in a response, and in its first event; of
	// sorted keys a few short ones come before.
	maxBeforeID = 4 << 10
)

// ResponseIDReader finds the identifier of a response of OpenAI's responses API: the member id of an object, or of the member response of
// an event. The identifier may have any form. The reader looks at each byte once, and has a fixed size.
type ResponseIDReader struct {
	OnFound func(id []byte) // is called once, if there is one

	at     int         // bytes so far
	form   idForm      // of the body
	depth  int         // of open objects and lists
	inside bool        // of the member response of an event
	last   idKey       // the last string, as a key
	key    idKey       // whose value comes next
	text   idText      // the last string, or a part of it
	open   stringState // of that string
	done   bool
}

// idForm is the form of a body with an identifier.
type idForm uint8

const (
	idUnknown idForm = iota
	idObject
	idEvents
)

// idKey is a key on the way to the identifier.
type idKey uint8

const (
	keyOther idKey = iota
	keyID
	keyResponse
)

// idText is the beginning of a string.
type idText struct {
	bytes   [maxID]byte
	size    int  // of the string, which may be longer
	escaped bool // it has escapes, so it is no key or identifier
}

// stringState says where in a string a reader is.
type stringState uint8

const (
	outsideString stringState = iota
	insideString
	behindBackslash
)

// ReadPiece processes the next piece of the body.
func (r *ResponseIDReader) ReadPiece(piece []byte) {
	for _, c := range piece {
		if r.done {
			return
		}
		r.readByte(c)
		r.at++
		r.done = r.done || r.at == maxBeforeID
	}
}

// readByte processes one byte.
func (r *ResponseIDReader) readByte(c byte) {
	switch {
	case r.open == behindBackslash:
		r.open = insideString
	case r.open == insideString:
		r.inString(c)
	case r.depth == 0:
		r.readOutside(c)
	default:
		r.readBetween(c)
	}
}

// readOutside processes a byte outside objects.
func (r *ResponseIDReader) readOutside(c byte) {
	switch {
	case c == '{':
		r.depth = 1
		if r.form == idUnknown {
			r.form = idObject
		}
	case c > ' ' && r.form == idUnknown:
		r.form = idEvents
	}
}

// readBetween processes a byte between strings.
func (r *ResponseIDReader) readBetween(c byte) {
	switch c {
	case '"':
		r.open, r.text.size, r.text.escaped = insideString, 0, false
	case ':':
		r.key = r.last
	case ',':
		r.key, r.last = keyOther, keyOther
	case '{', '[':
		r.inside = r.inside || c == '{' && r.form == idEvents && r.depth == 1 && r.key == keyResponse
		r.depth++
		r.key, r.last = keyOther, keyOther
	case '}', ']':
		r.depth--
		r.inside = r.inside && r.depth > 1
		r.key, r.last = keyOther, keyOther
		r.done = r.depth == 0 && r.form == idObject
	}
}

// inString processes a byte of a string.
func (r *ResponseIDReader) inString(c byte) {
	switch t := &r.text; c {
	case '"':
		r.open = outsideString
		r.endString()
	case '\\':
		r.open, t.escaped = behindBackslash, true
	default:
		if t.size < maxID {
			t.bytes[t.size] = c
		}
		t.size++
	}
}

// endString processes a whole string, a key or a value.
func (r *ResponseIDReader) endString() {
	t := &r.text
	if t.escaped || t.size == 0 || t.size > maxID {
		r.last = keyOther
		return
	}
	text := t.bytes[:t.size]
	if r.key == keyID && (r.depth == 1 && r.form == idObject || r.depth == 2 && r.inside) {
		r.done = true
		r.OnFound(text)
		return
	}
	switch string(text) {
	case "id":
		r.last = keyID
	case "response":
		r.last = keyResponse
	default:
		r.last = keyOther
	}
}
