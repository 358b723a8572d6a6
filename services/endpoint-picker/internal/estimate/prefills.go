package estimate

import (
	"sync"
	"sync/atomic"
)

// prefillQueue are the sequences of a server without a first token, in the order in which the engine computes them: that of their
// placement.
type prefillQueue struct {
	next atomic.Int64 // work for the first of them; it keeps its value when there is none

	mu          sync.Mutex
	first, last *sequence
}

func (l *prefillQueue) addSequence(q *sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.before = l.last
	if l.last == nil {
		l.first = q
		l.next.Store(q.work)
	} else {
		l.last.after = q
	}
	l.last = q
}

func (l *prefillQueue) removeSequence(q *sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.before == nil {
		l.first = q.after
	} else {
		q.before.after = q.after
	}
	if q.after == nil {
		l.last = q.before
	} else {
		q.after.before = q.before
	}
	q.before, q.after = nil, nil
	if l.first != nil {
		l.next.Store(l.first.work)
	}
}
