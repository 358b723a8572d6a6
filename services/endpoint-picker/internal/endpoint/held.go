package endpoint

import "time"

// heldLease is the lease of a failed request that counts for some time.
type heldLease struct {
	Span

	lease *Lease
	began bool // its answer would have begun
}

// hold keeps a lease. It returns false if there are too many.
func (e *Endpoint) hold(l heldLease) bool {
	e.leases.Lock()
	defer e.leases.Unlock()
	if len(e.held) >= maxHeld {
		return false
	}
	e.held = append(e.held, l)
	e.heldCount.Store(int64(len(e.held)))
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
	var over, begun []heldLease
	e.leases.Lock()
	kept := e.held[:0]
	for _, l := range e.held {
		if !l.Until.After(now) {
			over = append(over, l)
			continue
		}
		if !l.began && first > 0 && now.Sub(l.Arrived) >= first {
			l.began = true
			begun = append(begun, l)
		}
		kept = append(kept, l)
	}
	clear(e.held[len(kept):])
	e.held = kept
	e.heldCount.Store(int64(len(kept)))
	e.leases.Unlock()
	for _, l := range begun {
		l.lease.heldFirst(now)
	}
	for _, l := range over {
		l.lease.endHold()
	}
}
