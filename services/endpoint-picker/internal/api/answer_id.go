package api

import "bytes"

const (
	// maxID is the maximum length of an identifier, in bytes. OpenAI's have 53, vLLM's and SGLang's 37, UUIDs 36.
	maxID = 128
	// maxBeforeID is the part of a body that is searched, in bytes. The identifier comes first in a response, and in its first event; of
	// sorted keys a few short ones come before.
	maxBeforeID = 4 << 10
)

// ResponseIDReader finds the identifier of a response of OpenAI's responses API: the member id of an object, or of the member response of
// an event. The identifier may have any form. The reader scans the beginning of the body again with each piece, which costs less than the
// message that brings a piece. It stores the beginning only if the first piece has no identifier.
type ResponseIDReader struct {
	OnFound func(id []byte) // is called once, if there is one

	begun []byte   // the pieces so far
	room  [16]byte // for the stack of a Scanner
	done  bool
}

// ReadPiece processes the next piece of the body.
func (r *ResponseIDReader) ReadPiece(piece []byte) {
	if r.done {
		return
	}
	text := piece[:min(len(piece), maxBeforeID-len(r.begun))]
	if len(r.begun) > 0 {
		text = append(r.begun, text...)
	}
	if r.done = r.scanBody(text) || len(text) == maxBeforeID; r.done {
		r.begun = nil
	} else {
		r.begun = append(r.begun[:0], text...)
	}
}

// scanBody looks for the identifier in the beginning of a body. It returns true if it was found, or if nothing that follows has it.
func (r *ResponseIDReader) scanBody(text []byte) bool {
	s := Scanner{NonFinite: true, Terse: true, stack: r.room[:0]}
	if s.Reset(text); s.NextKind() == Object {
		r.scanResponse(&s)
		return r.done || s.Err() == nil
	}
	if r.scanEvents(&s, text) {
		return true
	}
	joined := bytes.ReplaceAll(text, []byte("\ndata:"), []byte("\n")) // an object may have several lines
	return len(joined) < len(text) && r.scanEvents(&s, joined)
}

// scanEvents looks for the identifier in events, each an object behind other text.
func (r *ResponseIDReader) scanEvents(s *Scanner, text []byte) bool {
	for {
		at := bytes.IndexByte(text, '{')
		if at < 0 {
			return false
		}
		text = text[at:]
		s.Reset(text)
		s.EachMember(func(key []byte) {
			if string(key) == "response" {
				r.scanResponse(s)
			} else {
				s.SkipValue()
			}
		})
		if r.done || s.Err() != nil {
			return r.done
		}
		text = text[s.Offset():]
	}
}

// scanResponse looks for the identifier in a response, which is the next value.
func (r *ResponseIDReader) scanResponse(s *Scanner) {
	s.EachMember(func(key []byte) {
		if r.done || string(key) != "id" || s.NextKind() != String {
			s.SkipValue()
			return
		}
		span, escaped := s.ReadString()
		if id := s.TextOf(span); s.Err() == nil && !escaped && 0 < len(id) && len(id) <= maxID {
			r.done = true
			r.OnFound(id)
		}
	})
}
