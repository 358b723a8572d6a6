package extproc

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// sweepInterval is the interval of checks for bodies that take too long.
const sweepInterval = time.Second

// waiting contains the streams that wait for the end of a body, oldest first. It prevents a silent gateway from holding
// memory forever.
type waiting struct {
	mu    sync.Mutex
	since list.List // of waiter
}

type waiter struct {
	machine *Machine
	since   time.Time
}

func (w *waiting) add(m *Machine, now time.Time) *list.Element {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since.PushBack(waiter{m, now})
}

// remove removes a stream, if it is still in the list.
func (w *waiting) remove(e *list.Element) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since.Remove(e)
}

// expire expires all streams that began to wait before the given time.
func (w *waiting) expire(before time.Time) {
	for {
		m := w.oldest(before)
		if m == nil {
			return
		}
		m.Expire()
	}
}

// oldest removes and returns the oldest stream, if it began to wait before the given time.
func (w *waiting) oldest(before time.Time) *Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.since.Front()
	if e == nil || !e.Value.(waiter).since.Before(before) {
		return nil
	}
	w.since.Remove(e)
	return e.Value.(waiter).machine
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
