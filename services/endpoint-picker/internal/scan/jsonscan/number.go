package jsonscan

import "bytes"

// number reads a number.
func (s *Scanner) number() {
	if s.err != nil {
		return
	}
	s.accept('-')
	if s.NonFinite && s.nonFinite() {
		return
	}
	if !s.accept('0') && !s.digits() {
		return
	}
	if s.accept('.') && !s.digits() {
		return
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		s.digits()
	}
}

// nonFinite skips the rest of a number that is not finite, after its sign.
func (s *Scanner) nonFinite() bool {
	for _, word := range [...]string{"NaN", "Infinity"} {
		signed := s.at > 0 && s.text[s.at-1] == '-' // Python has no -NaN
		if bytes.HasPrefix(s.text[s.at:], []byte(word)) && (!signed || word != "NaN") {
			s.at += len(word)
			return true
		}
	}
	return false
}

// accept skips the next byte if it is this one.
func (s *Scanner) accept(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// digits reads one or more digits.
func (s *Scanner) digits() bool {
	from, at := s.at, s.at
	for at < len(s.text) && '0' <= s.text[at] && s.text[at] <= '9' {
		at++
	}
	if s.at = at; at == from {
		s.unexpected()
		return false
	}
	return true
}
