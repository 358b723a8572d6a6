package api

import (
	"bytes"
)

// maxTemplate is the maximum size of an event that is remembered, in bytes.
const maxTemplate = 1 << 10

// An eventTemplate is an event with content: most events of a stream differ in their text alone. Reading one of those takes a tenth of the
// time.
type eventTemplate struct {
	event []byte // empty until storeEvent
	text  Span   // in it, between the quotes
}

// storeEvent remembers an event with content. text is its last text; an empty one is ignored.
func (u *eventTemplate) storeEvent(event []byte, text Span) {
	if text.To > text.From && len(event) <= maxTemplate {
		u.event, u.text = append(u.event[:0], event...), text
	}
}

// matchesEvent reports whether an event has another text, which is not empty, and is the same beside that.
func (u *eventTemplate) matchesEvent(event []byte, s *Scanner) bool {
	before, after := u.event[:u.text.From], u.event[u.text.To:]
	if len(before) == 0 || len(event) <= len(before)+len(after) || !bytes.HasPrefix(event, before) || !bytes.HasSuffix(event, after) {
		return false
	}
	s.Reset(event[len(before)-1 : len(event)-len(after)+1])
	s.ReadString()
	return s.Err() == nil && s.CheckEnd() == nil
}
