package extproc

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// sweepInterval is how often it is looked for bodies that take too long.
const sweepInterval = time.Second

// waiting are the streams that wait for the end of a body, the oldest first. It is what keeps a gateway that goes silent
// from holding memory for ever.
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

// remove takes one out, if it is still there.
func (w *waiting) remove(e *list.Element) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since.Remove(e)
}

// expire ends the wait of all that have waited since before the given time.
func (w *waiting) expire(before time.Time) {
	for {
		m := w.oldest(before)
		if m == nil {
			return
		}
		m.Expire()
	}
}

// oldest takes out the one that has waited longest, if that is long enough.
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

// Run gives up on bodies that take too long, until ctx ends.
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
