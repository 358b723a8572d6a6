package state

import (
	"slices"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// finish ends a work request: its mutation takes effect, or it fails.
func (s *State) finish(b *balancer, w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.pending = slices.DeleteFunc(b.pending, func(other *work) bool { return other == w })
	w.TimeFinished = now()
	next := b.current().Clone()
	err := w.mutation.Apply(next, s.modes.Limits)
	broken := s.breaks()
	switch {
	case err != nil:
		w.fail("BAD_INPUT", err.Message)
	case broken:
		w.fail("INTERNAL_ERROR", "An internal error occurred")
	default:
		w.LifecycleState = lbapi.Succeeded
	}
	if err == nil && (!broken || s.modes.Partial) {
		if s.modes.EtagChange != AtAcceptance {
			b.etag++
		}
		b.changes[w.mutation.Resource]++
		s.publish(b, next)
	}
	s.advance(b)
}

// breaks reports whether the next work request fails.
func (s *State) breaks() bool {
	return s.modes.FailEvery > 0 && s.random.IntN(s.modes.FailEvery) == 0
}

func (w *work) fail(code, message string) {
	w.LifecycleState, w.Message = lbapi.Failed, message
	w.ErrorDetails = []lbapi.WorkRequestError{{ErrorCode: code, Message: message}}
}

// WorkRequest returns a work request.
func (s *State) WorkRequest(id string) (lbapi.WorkRequest, *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.works[id]
	if w == nil {
		return lbapi.WorkRequest{}, lbapi.NotFound("work request", id)
	}
	return w.WorkRequest, nil
}

// WorkRequests returns the work requests of a load balancer, finished ones too.
func (s *State) WorkRequests(id string) ([]lbapi.WorkRequest, *lbapi.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[id]
	if b == nil {
		return nil, lbapi.NotFound("load balancer", id)
	}
	all := make([]lbapi.WorkRequest, 0, len(b.works))
	for _, w := range b.works {
		all = append(all, w.WorkRequest)
	}
	if s.modes.NewestFirst {
		slices.Reverse(all)
	}
	return all, nil
}

// Idle reports whether no work request is in progress.
func (s *State) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.balancers {
		if len(b.pending) > 0 {
			return false
		}
	}
	return true
}
