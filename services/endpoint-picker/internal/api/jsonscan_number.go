package api

import "bytes"

// readNumber reads a number.
func (s *Scanner) readNumber() {
	if s.err != nil {
		return
	}
	s.skipByte('-')
	if s.NonFinite && s.nonFinite() {
		return
	}
	if !s.skipByte('0') && !s.readDigits() {
		return
	}
	if s.skipByte('.') && !s.readDigits() {
		return
	}
	if s.skipByte('e') || s.skipByte('E') {
		if !s.skipByte('+') {
			s.skipByte('-')
		}
		s.readDigits()
	}
}

// nonFinite skips the rest of a number that is not finite, after its sign.
func (s *Scanner) nonFinite() bool {
	for _, word := range [...]string{"NaN", "Infinity"} {
		signed := s.offset > 0 && s.text[s.offset-1] == '-' // Python has no -NaN
		if bytes.HasPrefix(s.text[s.offset:], []byte(word)) && (!signed || word != "NaN") {
			s.offset += len(word)
			return true
		}
	}
	return false
}

// skipByte skips the next byte if it is this one.
func (s *Scanner) skipByte(c byte) bool {
	if s.offset < len(s.text) && s.text[s.offset] == c {
		s.offset++
		return true
	}
	return false
}

// readDigits reads one or more digits.
func (s *Scanner) readDigits() bool {
	from, at := s.offset, s.offset
	for at < len(s.text) && '0' <= s.text[at] && s.text[at] <= '9' {
		at++
	}
	if s.offset = at; at == from {
		s.failUnexpected()
		return false
	}
	return true
}
