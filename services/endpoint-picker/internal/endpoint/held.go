package endpoint

import "time"

// maxHeld is the number of failed requests that count on an endpoint.
const maxHeld = 32

// A LoadSpan is the time for which a failed request counts as load: from its arrival until an answer would have ended.
type LoadSpan struct{ Arrived, Until time.Time }

// heldLease is the lease of a failed request that counts for some time.
type heldLease struct {
	LoadSpan

	lease       *Lease
	firstMarked bool // its answer would have begun
}

// HoldUntil ends the lease of a failed request, which counts as load for the rest of its time.
func (l *Lease) HoldUntil(s LoadSpan, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isEnded {
		return
	}
	l.endpoint.countReleased(l.from)
	if l.tracker != nil {
		l.tracker.OnFailure()
	}
	if !s.Until.After(now) || !l.endpoint.addHeld(heldLease{lease: l, LoadSpan: s}) {
		l.endOnce(Finished)
		return
	}
	l.isEnded = true
	l.endProbe()
}

// addHeld keeps a lease. It returns false if there are too many.
func (e *Endpoint) addHeld(l heldLease) bool {
	e.leases.Lock()
	defer e.leases.Unlock()
	if len(e.heldLeases) >= maxHeld {
		return false
	}
	e.heldLeases = append(e.heldLeases, l)
	e.heldCount.Store(int64(len(e.heldLeases)))
	return true
}

// ExpireHeld ends the load of failed requests whose time is over. Of the others, those that arrived longer ago than the usual time to the
// first token count like answers that have begun; 0 if that time is unknown.
func (e *Endpoint) ExpireHeld(now time.Time, first time.Duration) {
	if e.heldCount.Load() > 0 {
		e.expireHeld(now, first)
	}
}

func (e *Endpoint) expireHeld(now time.Time, first time.Duration) {
	var over, begun []*Lease
	e.leases.Lock()
	remaining := e.heldLeases[:0]
	for _, l := range e.heldLeases {
		if !l.Until.After(now) {
			over = append(over, l.lease)
			continue
		}
		if !l.firstMarked && first > 0 && now.Sub(l.Arrived) >= first {
			l.firstMarked = true
			begun = append(begun, l.lease)
		}
		remaining = append(remaining, l)
	}
	clear(e.heldLeases[len(remaining):])
	e.heldLeases = remaining
	e.heldCount.Store(int64(len(remaining)))
	e.leases.Unlock()
	for _, l := range begun {
		l.markHeldFirst(now)
	}
	for _, l := range over {
		l.endHold()
	}
}

// markHeldFirst records that the answer to a held request would have begun.
func (l *Lease) markHeldFirst(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.tracker != nil { // another pick may have ended it
		l.tracker.OnHeldFirst(now)
	}
}

// endHold ends the load of a held lease.
func (l *Lease) endHold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.tracker != nil {
		l.tracker.OnEnd(Finished)
	}
}
