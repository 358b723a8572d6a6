package endpoint

import (
	"context"
	"sync/atomic"
	"time"
)

// abandonedLease is a lease whose request continues unobserved.
type abandonedLease struct {
	acquired int64 // its place in the order of acquisition
	at       time.Time
	from     origin
}

// addAbandoned keeps a lease until a sample has its request, or its time is over.
func (e *Endpoint) addAbandoned(l abandonedLease) {
	e.leases.Lock()
	defer e.leases.Unlock()
	if e.sample.Load().Acquired >= l.acquired {
		e.closeLease(l.from) // the last sample contains the request
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
			e.closeLease(l.from)
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
			e.countReleased(l.from)
		} else {
			remaining = append(remaining, l)
		}
	}
	e.abandoned = remaining
}

// expiryInterval is the time between two looks at the abandoned leases, so a lease may outlive its time limit by as much. The limit is a
// minute unless configured.
const expiryInterval = time.Second

// An Expirer ends the abandoned leases of a pool that no sample replaces in time, and leases of failed requests that no pick ends. It
// does not depend on scrapes: without them, leases of gateways that close streams early would be load forever.
type Expirer struct {
	limit     time.Duration
	endpoints atomic.Pointer[[]*Endpoint]
}

// NewExpirer returns an Expirer without endpoints, with the time limit of an abandoned lease. Run starts it.
func NewExpirer(limit time.Duration) *Expirer { return &Expirer{limit: limit} }

// SetEndpoints sets the list of endpoints.
func (x *Expirer) SetEndpoints(endpoints []*Endpoint) { x.endpoints.Store(&endpoints) }

// Run ends leases until ctx ends.
func (x *Expirer) Run(ctx context.Context) {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if endpoints := x.endpoints.Load(); endpoints != nil {
				for _, e := range *endpoints {
					e.ExpireAbandoned(now.Add(-x.limit))
					e.ExpireFailed(now, 0)
				}
			}
		}
	}
}
