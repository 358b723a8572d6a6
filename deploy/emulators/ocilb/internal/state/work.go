package state

import (
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// maxWorks is the number of work requests of a load balancer that are remembered, so that memory is bounded.
const maxWorks = 10_000

// work is a work request.
type work struct {
	lbapi.WorkRequest

	mutation Mutation
	serial   int
	before   string // state of the load balancer that it deletes
	void     bool   // it has failed, and has changed nothing
}

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
		s.takeEffect(b, w, next)
	} else {
		w.void = true
		s.revert(b, w)
	}
	s.advance(b)
}

// takeEffect makes the result of a work request the current version.
func (s *State) takeEffect(b *balancer, w *work, next *lbapi.LoadBalancer) {
	if s.modes.EtagChange != AtAcceptance {
		b.etag++
	}
	b.changes[w.mutation.Resource] = max(b.changes[w.mutation.Resource], w.serial)
	if !w.mutation.Deletes {
		s.publish(b, next)
		return
	}
	s.publish(b, nil)
	time.AfterFunc(time.Duration(s.modes.Stale), func() { s.forget(b) })
}

// revert gives a load balancer whose creation or deletion has failed another state.
func (s *State) revert(b *balancer, w *work) {
	switch {
	case w.mutation.Deletes:
		s.publish(b, b.current().InState(w.before))
	case b.current().LifecycleState == lbapi.Creating:
		s.publish(b, b.current().InState(lbapi.Failed))
	}
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
	b, err := s.find(id)
	if err != nil {
		return nil, err
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

// Idle reports whether no work request is in progress at load balancers; without names, at any.
func (s *State) Idle(ids ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, b := range s.balancers {
		if len(b.pending) > 0 && (len(ids) == 0 || slices.Contains(ids, id)) {
			return false
		}
	}
	return true
}
