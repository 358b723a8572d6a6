package extproc

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// sweepInterval is the interval of checks for bodies that take too long.
const sweepInterval = time.Second

// waiting contains the streams that wait for the rest of a request, oldest first.
type waiting struct {
	mu    sync.Mutex
	since list.List // of waiter
}

type waiter struct {
	stream *stream
	since  time.Time
}

// add adds a stream, unless it waits already.
func (w *waiting) add(s *stream, now time.Time) {
	if s.waiting != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.waiting = w.since.PushBack(waiter{s, now})
}

// remove removes a stream, if it waits.
func (w *waiting) remove(s *stream) {
	if s.waiting == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since.Remove(s.waiting)
	s.waiting = nil
}

// expire expires all streams that began to wait before the given time.
func (w *waiting) expire(before time.Time) {
	for {
		s := w.oldest(before)
		if s == nil {
			return
		}
		s.expire()
	}
}

// oldest takes the oldest stream out of the list, if it began to wait before the given time.
func (w *waiting) oldest(before time.Time) *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.since.Front()
	if e == nil {
		return nil
	}
	oldest, _ := e.Value.(waiter)
	if !oldest.since.Before(before) {
		return nil
	}
	w.since.Remove(e)
	return oldest.stream
}

// Run expires bodies that take too long, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	ticker := s.clock.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.waiting.expire(s.clock.Now().Add(-s.bodyTimeout))
		}
	}
}
