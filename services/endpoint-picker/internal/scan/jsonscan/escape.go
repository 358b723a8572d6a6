package jsonscan

import (
	"bytes"
	"strconv"
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

// unescapeRune returns the character of the escape at the start of a text, and the length of the escape.
func unescapeRune(raw []byte) (rune, int) {
	if escapeLen(raw) == 0 {
		return '\\', 1
	}
	switch raw[1] {
	case 'b':
		return '\b', shortEscape
	case 'f':
		return '\f', shortEscape
	case 'n':
		return '\n', shortEscape
	case 'r':
		return '\r', shortEscape
	case 't':
		return '\t', shortEscape
	case 'u':
	default: // quote, slash, backslash
		return rune(raw[1]), shortEscape
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

// codeUnit returns the number in a \u escape.
func codeUnit(escape []byte) rune {
	n, _ := strconv.ParseUint(string(escape[shortEscape:longEscape]), 16, 16) // they are hexadecimal digits
	return rune(n)
}

// escapeLen returns the length of the escape at the start of a text, 0 if it is invalid.
func escapeLen(b []byte) int {
	if len(b) < shortEscape {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return shortEscape
	case 'u':
		if len(b) < longEscape {
			return 0
		}
		for _, c := range b[shortEscape:longEscape] {
			if !isHex(c) {
				return 0
			}
		}
		return longEscape
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
