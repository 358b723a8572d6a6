package endpoint

import "time"

// heldLease is the lease of a failed request that counts until a time.
type heldLease struct {
	lease *Lease
	until time.Time
}

// hold keeps a lease. It returns false if there are too many.
func (e *Endpoint) hold(l heldLease) bool {
	e.leases.Lock()
	defer e.leases.Unlock()
	if len(e.held) >= maxHeld {
		return false
	}
	e.held = append(e.held, l)
	e.heldCount.Store(int32(len(e.held)))
	return true
}

// ExpireHeld ends the load of failed requests whose time is over.
func (e *Endpoint) ExpireHeld(now time.Time) {
	if e.heldCount.Load() == 0 {
		return
	}
	var over []heldLease
	e.leases.Lock()
	kept := e.held[:0]
	for _, l := range e.held {
		if l.until.After(now) {
			kept = append(kept, l)
		} else {
			over = append(over, l)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
	e.heldCount.Store(int32(len(kept)))
	e.leases.Unlock()
	for _, l := range over {
		l.lease.endHold()
	}
}
