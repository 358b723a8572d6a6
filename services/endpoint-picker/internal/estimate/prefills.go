package estimate

import (
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// prefillQueue are the sequences of a server without a first token, in the order in which the engine computes them: that of their
// placement. It is a list through the sequences: another replica of the picker may place tens of thousands, and end them in any order.
type prefillQueue struct {
	next atomic.Int64 // work for the first of them; it keeps its value when there is none

	mu          sync.Mutex
	first, last *sequence
}

// queued is the place of a sequence in a prefillQueue.
type queued struct{ before, after *sequence }

func (l *prefillQueue) addSequence(q *sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.queued.before = l.last
	if l.last == nil {
		l.first = q
	} else {
		l.last.queued.after = q
	}
	l.last = q
	l.next.Store(l.first.work)
}

// removeSequence removes a sequence that was added.
func (l *prefillQueue) removeSequence(q *sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, after := q.queued.before, q.queued.after
	q.queued = queued{}
	if before == nil {
		l.first = after
	} else {
		before.queued.after = after
	}
	if after == nil {
		l.last = before
	} else {
		after.queued.before = before
	}
	if l.first != nil {
		l.next.Store(l.first.work)
	}
}

// prefillShare is the recent share of its time that a server spends on prompts, 0 to 1, as far as its requests are known: an average whose
// memory is prefillShareSeconds. Readers take no lock; between two stores of a writer they may see a share of another time, which does not
// matter.
type prefillShare struct {
	mu    sync.Mutex // serializes writers
	share atomicFloat
	at    endpoint.AtomicMonotonic
}

// addPrompt counts the seconds for one prompt.
func (s *prefillShare) addPrompt(now endpoint.Monotonic, seconds float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.shareAt(now) + seconds/prefillShareSeconds
	s.at.Store(now)
	s.share.Store(share)
}

// shareAt returns the share at a time.
func (s *prefillShare) shareAt(now endpoint.Monotonic) float64 {
	return s.share.Load() / s.decayAt(now)
}

// decayAt returns what the stored share is divided by at a time. Each pick asks for that of each server, so the exponential function is
// the start of its series.
func (s *prefillShare) decayAt(now endpoint.Monotonic) float64 {
	x := float64(max(now.Sub(s.at.Load()), 0)) * (1 / float64(prefillShareSeconds*time.Second))
	return 1 + x*(1+x*(1./2+x/6))
}

// delayFactor returns by how much longer an answer takes because of prompts, as a multiple of its time without them: p/(1-p) for the part p
// of the share that counts.
func (s *prefillShare) delayFactor(now endpoint.Monotonic, counts float64) float64 {
	decay := s.decayAt(now)
	share := counts * min(s.share.Load(), maxPrefillShare*decay)
	return share / (decay - share)
}
