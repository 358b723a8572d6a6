// A Scanner reads a few fields of a JSON text without decoding it. It reads the text once, from start to end. Callers open objects and
// arrays, check the keys, read the values that they need and skip the others. The Scanner validates every byte like encoding/json: a text
// that was read to its end is valid JSON. It allocates nothing but the stack of open objects and arrays, and a buffer for keys with
// escapes; both have fixed limits. A Scanner can also accept the numbers that Python's json module writes and reads beyond JSON.
//
// After the first error all methods do nothing, and Err returns it.

package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

const (
	// maxDepth is the maximum nesting depth, as in encoding/json.
	maxDepth = 10000
	// maxEscapedKey is the maximum length of a key to unescape, in bytes as written. An escape is at most MaxEscape times as
	// long as its character, so this allows names of at least 42 bytes; the longest that a caller knows has 14. Twice as much
	// would allow longer names, half as much names of 21 bytes.
	maxEscapedKey = 256
)

var (
	errInvalid = errors.New("invalid JSON")
	errEnd     = errors.New("unexpected end")
	errRest    = errors.New("text after the value")
	errDepth   = errors.New("nested too deep")
	errControl = errors.New("control character in a string")
	errEscape  = errors.New("invalid escape in a string")
)

// jsonBlanks is the white space between the tokens of a JSON text.
const jsonBlanks = " \t\r\n"

// ValueKind is the kind of a value.
type ValueKind uint8

// Kinds of values.
const (
	Invalid ValueKind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// A Span is a range of the text.
type Span struct{ From, To int }

// byteOrderMark is the byte order mark of a text in UTF-8.
const byteOrderMark = "\uFEFF"

// Scanner scans one text.
type Scanner struct {
	// NonFinite accepts NaN, Infinity and -Infinity, which are numbers for Python, but not in JSON.
	NonFinite bool
	// Terse makes an error say that the text is invalid, and nothing else, so that it takes no memory: for callers that try many texts.
	Terse bool

	text    []byte
	offset  int
	stack   []byte // closing brackets of open objects and arrays
	key     []byte // the last key with escapes, without them
	fresh   bool   // the innermost one has just been opened
	surplus int    // of the last string or key
	err     error
}

// Reset starts a scan of a text. The Scanner keeps a reference to it.
func (s *Scanner) Reset(text []byte) {
	*s = Scanner{NonFinite: s.NonFinite, Terse: s.Terse, text: text, stack: s.stack[:0], key: s.key[:0]}
}

// SkipBOM skips a byte order mark at the start of the text. RFC 8259 lets a parser ignore it.
func (s *Scanner) SkipBOM() {
	if s.offset == 0 && bytes.HasPrefix(s.text, []byte(byteOrderMark)) {
		s.offset = len(byteOrderMark)
	}
}

// Err returns the first error so far.
func (s *Scanner) Err() error { return s.err }

// Offset returns the offset in the text.
func (s *Scanner) Offset() int { return s.offset }

// TextOf returns a range of the text.
func (s *Scanner) TextOf(p Span) []byte { return s.text[p.From:p.To] }

// CheckEnd checks that only white space follows.
func (s *Scanner) CheckEnd() error {
	if s.peek(); s.err == nil && s.offset < len(s.text) {
		s.setError(errRest)
	}
	return s.err
}

// NextKind returns the kind of the next value.
func (s *Scanner) NextKind() ValueKind {
	switch c := s.peek(); {
	case s.err != nil:
		return Invalid
	case c == '"':
		return String
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == 't', c == 'f':
		return Bool
	case c == 'n':
		return Null
	case c == '-', '0' <= c && c <= '9', s.NonFinite && (c == 'N' || c == 'I'):
		return Number
	}
	s.failUnexpected()
	return Invalid
}

// EnterValue enters the next value, which must be an object or an array. It returns false for other values.
func (s *Scanner) EnterValue() bool {
	switch s.peek() {
	case '{':
		s.pushBracket('}')
	case '[':
		s.pushBracket(']')
	default:
		s.failUnexpected()
	}
	return s.err == nil
}

// NextElement advances to the next element of the innermost array. At the end it leaves the array and returns false.
func (s *Scanner) NextElement() bool { return s.nextSeparator() }

// NextKey advances to the next member of the innermost object and returns its key, which is valid until the next call. At the
// end it leaves the object and returns false. Very long keys with escapes, which no caller can know, are returned as written.
func (s *Scanner) NextKey() ([]byte, bool) {
	span, escaped, ok := s.nextMember()
	if !ok {
		return nil, false
	}
	key := s.TextOf(span)
	if escaped && len(key) <= maxEscapedKey {
		s.key = Unescape(s.key[:0], key)
		key = s.key
	}
	return key, true
}

// EachMember calls f for each key of the next value if it is an object, and skips it if not. f must read or skip the key's value.
func (s *Scanner) EachMember(f func(key []byte)) {
	if s.NextKind() != Object {
		s.SkipValue()
		return
	}
	s.EnterValue()
	for key, ok := s.NextKey(); ok; key, ok = s.NextKey() {
		f(key)
	}
}

// ReadString reads a string. It returns the range between its quotes, unconverted, and whether it contains escapes.
func (s *Scanner) ReadString() (span Span, escaped bool) {
	s.peek()
	return s.scanString()
}

// Surplus returns by how many bytes the last string is longer than in its shortest spelling (Short). At 0 it is its shortest spelling.
func (s *Scanner) Surplus() int { return s.surplus }

// SkipValue skips the next value and returns its range.
func (s *Scanner) SkipValue() Span {
	s.peek()
	from, depth := s.offset, len(s.stack)
	for s.readToken(); s.err == nil && len(s.stack) > depth; {
		if s.nextItem() {
			s.readToken()
		}
	}
	return Span{from, s.offset}
}

// nextItem advances to the next value of the innermost object or array, or leaves it.
func (s *Scanner) nextItem() bool {
	if s.stack[len(s.stack)-1] == '}' {
		_, _, ok := s.nextMember()
		return ok
	}
	return s.nextSeparator()
}

// nextMember advances to the value of the next member. It returns the range of its key, and whether the key contains escapes.
func (s *Scanner) nextMember() (key Span, escaped, ok bool) {
	if !s.nextSeparator() {
		return Span{}, false, false
	}
	key, escaped = s.scanString()
	if s.err == nil && s.peek() != ':' {
		s.failUnexpected()
	}
	if s.err != nil {
		return Span{}, false, false
	}
	s.offset++
	return key, escaped, true
}

// readToken reads a value, or the opening of one.
func (s *Scanner) readToken() {
	switch s.peek() {
	case '"':
		s.scanString()
	case '{':
		s.pushBracket('}')
	case '[':
		s.pushBracket(']')
	case 't':
		s.skipLiteral("true")
	case 'f':
		s.skipLiteral("false")
	case 'n':
		s.skipLiteral("null")
	default:
		s.readNumber()
	}
}

// nextSeparator advances past a comma to the next item of the innermost object or array, or leaves it.
func (s *Scanner) nextSeparator() bool {
	c := s.peek()
	if s.err != nil {
		return false
	}
	fresh := s.fresh
	s.fresh = false
	switch {
	case c == s.stack[len(s.stack)-1]:
		s.offset++
		s.stack = s.stack[:len(s.stack)-1]
		return false
	case fresh:
		return true
	case c != ',':
		s.failUnexpected()
		return false
	}
	s.offset++
	s.peek()
	return s.err == nil
}

func (s *Scanner) pushBracket(closing byte) {
	if len(s.stack) == maxDepth {
		s.setError(errDepth)
		return
	}
	s.offset++
	s.stack = append(s.stack, closing)
	s.fresh = true
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) peek() byte {
	for s.err == nil && s.offset < len(s.text) {
		switch c := s.text[s.offset]; c {
		case ' ', '\t', '\n', '\r':
			s.offset++
		default:
			return c
		}
	}
	return 0
}

// scanString reads a string.
func (s *Scanner) scanString() (span Span, escaped bool) {
	if s.err != nil || s.offset == len(s.text) || s.text[s.offset] != '"' {
		s.failUnexpected()
		return Span{}, false
	}
	from := s.offset + 1
	s.surplus = 0
	for s.offset = from; ; {
		s.offset = findSpecial(s.text, s.offset)
		switch {
		case s.offset == len(s.text):
			s.setError(errEnd)
			return Span{}, false
		case s.text[s.offset] == '"':
			s.offset++
			return Span{from, s.offset - 1}, escaped
		case s.text[s.offset] != '\\':
			s.setError(errControl)
			return Span{}, false
		}
		n, surplus := scanEscape(s.text[s.offset:])
		if n == 0 {
			s.setError(errEscape)
			return Span{}, false
		}
		s.offset, s.surplus, escaped = s.offset+n, s.surplus+surplus, true
	}
}

// findSpecial returns the offset of the next quote, backslash or control character, or the end.
//
// It checks eight bytes at a time. A byte is zero if subtracting 1 borrows from a high bit that was not set, and a control
// character if subtracting 0x20 does. The borrow may cause false matches after a match, so only the first match counts. One
// pass is faster than three searches: escaped text contains one of these bytes every few words.
func findSpecial(text []byte, at int) int {
	const (
		ones   = 0x0101010101010101
		highs  = 0x8080808080808080
		spaces = ' ' * ones
		quotes = '"' * ones
		slant  = '\\' * ones
	)
	for ; len(text)-at >= 8; at += 8 {
		x := binary.LittleEndian.Uint64(text[at:])
		q, b := x^quotes, x^slant
		if found := ((x-spaces)&^x | (q-ones)&^q | (b-ones)&^b) & highs; found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for ; at < len(text); at++ {
		if c := text[at]; c == '"' || c == '\\' || c < ' ' {
			return at
		}
	}
	return at
}

func (s *Scanner) skipLiteral(word string) {
	if s.err != nil {
		return
	}
	if len(s.text)-s.offset < len(word) || string(s.text[s.offset:s.offset+len(word)]) != word {
		s.failUnexpected()
		return
	}
	s.offset += len(word)
}

// failUnexpected fails at the next byte.
func (s *Scanner) failUnexpected() {
	switch {
	case s.Terse:
		s.setError(errInvalid)
		return
	case s.offset >= len(s.text):
		s.setError(errEnd)
		return
	}
	s.setError(fmt.Errorf("unexpected %q", s.text[s.offset]))
}

// setError stores the first error.
func (s *Scanner) setError(err error) {
	switch {
	case s.err != nil:
	case s.Terse:
		s.err = errInvalid
	default:
		s.err = fmt.Errorf("at byte %d: %w", s.offset, err)
	}
}
