package api

import (
	"bytes"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxEscape is the maximum ratio of the length of a string as written to the length of its text: \u0061 is one byte.
const MaxEscape = 6

const (
	shortEscape = 2 // bytes: \n
	longEscape  = 6 // bytes: \u00e9
)

// Unescape appends the text of a string to dst. The string is given without its quotes. As in encoding/json, half a surrogate
// pair is U+FFFD. Invalid escapes stay as they are.
func Unescape(dst, raw []byte) []byte {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:at]...)
		r, n := unescapeRune(raw[at:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[at+n:]
	}
}

// Short returns the shortest spelling of a string in pieces: \u00e9 is é, \u0022 is \", \/ is /. Control characters that JSON would write
// as \u0001 are one byte. Two strings have the same text if and only if their shortest spellings are equal. The string is given without
// its quotes, and the buffer must have room for at least one character (utf8.UTFMax). A piece is valid until the next one.
func Short(raw, buffer []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(raw) > 0 {
			var piece []byte
			if piece, raw = shorten(buffer[:0], raw); !yield(piece) {
				return
			}
		}
	}
}

// cutLine returns the first line of a string, with its new line, and the rest. The string is given without its quotes. Without a new line,
// all of it is the first line.
func cutLine(raw []byte) (line, rest []byte) {
	for at := 0; ; {
		n := bytes.IndexByte(raw[at:], '\\')
		if n < 0 {
			return raw, nil
		}
		r, length := unescapeRune(raw[at+n:])
		if at += n + length; r == '\n' {
			return raw[:at], raw[at:]
		}
	}
}

// hasShortPrefix reports whether the text of a string begins with another text, which is its own shortest spelling and shorter than the
// buffer. The string is given without its quotes.
func hasShortPrefix(raw []byte, prefix string, buffer []byte) bool {
	if bytes.HasPrefix(raw, []byte(prefix)) {
		return true
	}
	short, _ := shorten(buffer[:0], raw[:min(len(raw), MaxEscape*len(prefix))])
	return bytes.HasPrefix(short, []byte(prefix))
}

// shorten appends as much of a string as fits into dst. It returns the rest of the string.
func shorten(dst, raw []byte) (short, rest []byte) {
	for len(raw) > 0 && cap(dst)-len(dst) >= utf8.UTFMax {
		plain := raw[:min(len(raw), cap(dst)-len(dst))]
		if at := bytes.IndexByte(plain, '\\'); at >= 0 {
			plain = plain[:at]
		}
		if len(plain) > 0 {
			dst, raw = append(dst, plain...), raw[len(plain):]
			continue
		}
		n, surplus := scanEscape(raw)
		if surplus > 0 {
			r, _ := unescapeRune(raw)
			dst = appendShort(dst, r)
		} else {
			n = max(n, 1) // an invalid escape stays as it is
			dst = append(dst, raw[:n]...)
		}
		raw = raw[n:]
	}
	return dst, raw
}

// appendShort appends a character in its shortest spelling.
func appendShort(dst []byte, r rune) []byte {
	if c := shortEscapeOf(r); c != 0 {
		return append(dst, '\\', c)
	}
	return utf8.AppendRune(dst, r)
}

// scanEscape returns the length of the escape at the start of a text, 0 if it is invalid, and by how much that exceeds its shortest
// spelling. The escapes of a surrogate pair are one.
func scanEscape(b []byte) (n, surplus int) {
	if len(b) < shortEscape || b[1] != 'u' {
		if n = escapeLen(b); n > 0 && b[1] == '/' {
			return n, 1
		}
		return n, 0
	}
	r, n := codeUnit(b), longEscape
	switch {
	case r < 0:
		return 0, 0
	case utf16.IsSurrogate(r):
		r, n = unescapeRune(b)
	case shortEscapeOf(r) != 0:
		return n, n - shortEscape
	}
	return n, n - utf8.RuneLen(r)
}

// escapedChars are the characters of short escapes, by the letter after the backslash.
var escapedChars = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escapeLetters are the letters of characters that need a short escape, or have one that is shorter than others.
var escapeLetters = [utf8.RuneSelf]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// shortEscapeOf returns the letter after the backslash of a character's short escape, 0 if it needs none or has none.
func shortEscapeOf(r rune) byte {
	if r >= utf8.RuneSelf {
		return 0
	}
	return escapeLetters[r]
}

// unescapeRune returns the character of the escape at the start of a text, and the length of the escape.
func unescapeRune(raw []byte) (rune, int) {
	if escapeLen(raw) == 0 {
		return '\\', 1
	}
	if c := escapedChars[raw[1]]; c != 0 {
		return rune(c), shortEscape
	}
	r := codeUnit(raw)
	if !utf16.IsSurrogate(r) {
		return r, longEscape
	}
	if rest := raw[longEscape:]; bytes.HasPrefix(rest, []byte(`\u`)) && escapeLen(rest) > 0 {
		if pair := utf16.DecodeRune(r, codeUnit(rest)); pair != utf8.RuneError {
			return pair, 2 * longEscape
		}
	}
	return utf8.RuneError, longEscape
}

// codeUnit returns the number in the \u escape at the start of a text, a negative one if it is invalid.
func codeUnit(b []byte) rune {
	if len(b) < longEscape {
		return -1
	}
	return hexDigits[b[2]]<<12 | hexDigits[b[3]]<<8 | hexDigits[b[4]]<<4 | hexDigits[b[5]] // negative if any of them is
}

// escapeLen returns the length of the escape at the start of a text, 0 if it is invalid.
func escapeLen(b []byte) int {
	switch {
	case len(b) < shortEscape:
	case escapedChars[b[1]] != 0:
		return shortEscape
	case b[1] == 'u' && codeUnit(b) >= 0:
		return longEscape
	}
	return 0
}

// hexDigits contains the values of hexadecimal digits, and -1 for other bytes.
var hexDigits = func() (values [256]rune) {
	for i := range values {
		values[i] = -1
	}
	for i := range 16 {
		values["0123456789abcdef"[i]] = rune(i)
		values["0123456789ABCDEF"[i]] = rune(i)
	}
	return values
}()
