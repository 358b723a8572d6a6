package endpoint

import (
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
)

// A Lease is one request on an endpoint. It ends once, by Release or Abandon; later calls do nothing.
type Lease struct {
	endpoint *Endpoint
	acquired int64 // its place in the order of acquisition
	ended    atomic.Bool
	probe    bool // the endpoint is ejected, and this request probes it
	request  predict.Request
}

// Address returns the endpoint's "ip:port".
func (l *Lease) Address() string { return l.endpoint.address }

// Endpoint returns the endpoint that the lease is on.
func (l *Lease) Endpoint() *Endpoint { return l.endpoint }

// First records that the answer has begun.
func (l *Lease) First(now time.Time) {
	if !l.ended.Load() {
		l.request.First(now)
	}
}

// Release ends the lease together with its request.
func (l *Lease) Release() {
	if !l.ended.Swap(true) {
		l.end()
		l.endpoint.finish()
	}
}

// end is the common part of Release and Abandon.
func (l *Lease) end() {
	l.request.End()
	if l.probe {
		l.endpoint.health.Unknown() // without effect if the result is known
	}
}

// Abandon ends the lease while the request may continue.
func (l *Lease) Abandon(now time.Time) {
	if l.ended.Swap(true) {
		return
	}
	l.end()
	e := l.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sample.Load().acquired >= l.acquired {
		e.open.Add(-1) // the last sample contains the request
		return
	}
	e.abandoned = append(e.abandoned, abandoned{acquired: l.acquired, at: now})
}
