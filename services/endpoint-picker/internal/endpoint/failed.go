package endpoint

import "time"

// maxFailed is the number of failed requests that count on an endpoint.
const maxFailed = 32

// A LoadSpan is the time for which a failed request counts as load: from its arrival until an answer would have ended.
type LoadSpan struct{ Arrived, Until time.Time }

// failedLease is the lease of a failed request that counts for some time.
type failedLease struct {
	LoadSpan

	lease       *Lease
	firstMarked bool // its answer would have begun
}

// FailUntil ends the lease of a failed request, which counts as load for the rest of its time.
func (l *Lease) FailUntil(s LoadSpan, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isEnded {
		return
	}
	l.endpoint.countReleased(l.remote)
	if l.tracker != nil {
		l.tracker.OnFailure()
	}
	if !s.Until.After(now) || !l.endpoint.addFailed(failedLease{lease: l, LoadSpan: s}) {
		l.endOnce(Finished)
		return
	}
	l.isEnded = true
	l.endProbe()
}

// addFailed adds the lease of a failed request. It returns false if there are too many.
func (e *Endpoint) addFailed(l failedLease) bool {
	e.leases.Lock()
	defer e.leases.Unlock()
	if len(e.failedLeases) >= maxFailed {
		return false
	}
	e.failedLeases = append(e.failedLeases, l)
	e.failedCount.Store(int64(len(e.failedLeases)))
	return true
}

// ExpireFailed ends the load of failed requests whose time is over. Of the others, those that arrived longer ago than the usual time to the
// first token count like answers that have begun; 0 if that time is unknown.
func (e *Endpoint) ExpireFailed(now time.Time, first time.Duration) {
	if e.failedCount.Load() > 0 {
		e.expireFailedLeases(now, first)
	}
}

func (e *Endpoint) expireFailedLeases(now time.Time, first time.Duration) {
	var over, begun []*Lease
	e.leases.Lock()
	remaining := e.failedLeases[:0]
	for _, l := range e.failedLeases {
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
	clear(e.failedLeases[len(remaining):])
	e.failedLeases = remaining
	e.failedCount.Store(int64(len(remaining)))
	e.leases.Unlock()
	for _, l := range begun {
		l.markMissedFirst(now)
	}
	for _, l := range over {
		l.endFailed()
	}
}

// markMissedFirst records that the answer to a failed request would have begun.
func (l *Lease) markMissedFirst(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.tracker != nil { // another pick may have ended it
		l.tracker.OnMissedFirst(now)
	}
}

// endFailed ends the load of a failed request.
func (l *Lease) endFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.tracker != nil {
		l.tracker.OnEnd(Finished)
	}
}
