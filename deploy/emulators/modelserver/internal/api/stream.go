package api

import (
	"net/http"
	"time"
)

// comment is an event that keeps a stream open.
const comment = ": keep-alive\n\n"

// streamWriter writes the stream of a generation.
type streamWriter struct {
	events

	generation *generation
	server     *Server
	w          http.ResponseWriter
	text       []byte        // of one event
	comments   time.Duration // their number
}

// add adds events for new tokens of a choice.
func (s *streamWriter) add(c *choice, from, to int) {
	habits := &s.server.Habits
	if c.sent = from; from == 0 && !habits.RoleFirst {
		s.opening(c.index, s.running())
	}
	step := 1
	if habits.CoalesceEvents {
		step = to - from
	}
	for ; from < to; from += step {
		c.sent = from + step // for the usage of this event
		ids := c.request.Output[from:c.sent]
		s.text = s.text[:0]
		for _, id := range ids {
			s.text = s.server.Tokenizer.AppendBytes(s.text, id)
		}
		s.tokens(c.index, s.text, s.generation.tokenIDs(ids), c.finishReason(c.sent), s.running())
	}
}

// running returns the usage for the next event, nil if the client has not requested it.
func (s *streamWriter) running() *usage {
	if o := s.generation.options.StreamOptions; o != nil && o.ContinuousUsageStats {
		return s.generation.usage()
	}
	return nil
}

// flush sends the events, and a comment if it is due.
func (s *streamWriter) flush() error {
	g := s.generation
	buf := s.buffer()
	if quiet := s.server.Habits.KeepAliveInterval; quiet > 0 && g.emitted == 0 && time.Since(g.created) >= (s.comments+1)*quiet {
		s.comments++
		*buf = append(*buf, comment...)
	}
	if len(*buf) > 0 {
		if _, err := s.w.Write(*buf); err != nil {
			return err
		}
		*buf = (*buf)[:0]
	}
	return http.NewResponseController(s.w).Flush()
}
