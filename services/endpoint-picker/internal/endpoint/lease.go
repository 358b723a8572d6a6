package endpoint

import (
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
)

// A Lease is one request on an endpoint. It ends once, by Release or Abandon; what comes after that does nothing.
type Lease struct {
	endpoint *Endpoint
	acquired int64 // its place in the order of acquisition
	ended    atomic.Bool
	probe    bool // the endpoint is ejected, and this is to show whether it works again
	request  predict.Request
}

// Address returns the endpoint's "ip:port".
func (l *Lease) Address() string { return l.endpoint.address }

// Endpoint returns the endpoint that the lease is on.
func (l *Lease) Endpoint() *Endpoint { return l.endpoint }

// First says that the answer has begun.
func (l *Lease) First(now time.Time) {
	if !l.ended.Load() {
		l.request.First(now)
	}
}

// Release ends the lease: the request has ended too.
func (l *Lease) Release() {
	if !l.ended.Swap(true) {
		l.end()
		l.endpoint.finish()
	}
}

// end is what both ends have in common.
func (l *Lease) end() {
	l.request.End()
	if l.probe {
		l.endpoint.health.Unknown() // unless it is known
	}
}

// Abandon ends the lease while the request may go on.
func (l *Lease) Abandon(now time.Time) {
	if l.ended.Swap(true) {
		return
	}
	l.end()
	e := l.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sample.Load().acquired >= l.acquired {
		e.open.Add(-1) // the last sample has the request
		return
	}
	e.abandoned = append(e.abandoned, abandoned{acquired: l.acquired, at: now})
}
