package endpoint

import (
	"context"
	"time"
)

// abandonedLease is a lease whose request continues unobserved.
type abandonedLease struct {
	acquired int64 // its place in the order of acquisition
	at       time.Time
	remote   int64 // see Lease
}

// addAbandoned keeps a lease until a sample has its request, or its time is over.
func (e *Endpoint) addAbandoned(l abandonedLease) {
	e.leases.Lock()
	defer e.leases.Unlock()
	if e.sample.Load().Acquired >= l.acquired {
		e.closeLease(l.remote) // the last sample contains the request
		return
	}
	e.abandoned = append(e.abandoned, l)
}

// replaceSample stores the sample, and ends the abandoned leases that were acquired before its scrape.
func (e *Endpoint) replaceSample(next *Sample, acquired int64) {
	e.leases.Lock()
	defer e.leases.Unlock()
	e.sample.Store(next)
	remaining := e.abandoned[:0]
	for _, l := range e.abandoned {
		if l.acquired <= acquired {
			e.closeLease(l.remote)
		} else {
			remaining = append(remaining, l)
		}
	}
	e.abandoned = remaining
}

// ExpireAbandoned releases leases that were abandoned before the given time and that no sample has replaced.
func (e *Endpoint) ExpireAbandoned(before time.Time) {
	e.leases.Lock()
	defer e.leases.Unlock()
	remaining := e.abandoned[:0]
	for _, l := range e.abandoned {
		if l.at.Before(before) {
			e.countReleased(l.remote)
		} else {
			remaining = append(remaining, l)
		}
	}
	e.abandoned = remaining
}

// expiryInterval is the time between two looks at the abandoned leases, so a lease may outlive its time limit by as much. The limit is a
// minute unless configured.
const expiryInterval = time.Second

// ExpireLeases ends the abandoned leases of a pool that no sample replaces within the limit, and leases of failed requests that no pick
// ends, until ctx ends. It does not depend on scrapes: without them, leases of gateways that close streams early would be load forever.
func ExpireLeases(ctx context.Context, limit time.Duration, endpoints func() []*Endpoint) {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, e := range endpoints() {
				e.ExpireAbandoned(now.Add(-limit))
				e.ExpireFailed(now, 0)
			}
		}
	}
}
