// Package pick picks the endpoint of a request: from a request.PickInput to a request.PickResult. A Balancer converts the snapshot of the
// pool to candidates, lets a scheduling profile choose one, and counts the request on that endpoint.
//
// A pick parses the prompt in the request's body, looks it up in the index of prefixes, and estimates the time to first
// token for each endpoint. It reads atomics and takes no lock, except for sessions by name. The index learns the choice
// after the gateway has received it. Concurrent picks may not see each other's leases; the error is at most one request per
// additional core.
package pick

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// observer receives the measurements of every request.
type observer interface {
	StreamStarted()
	ObservePick(d time.Duration, err error)
	// RequestPlaced is called after a pick, with the information known then.
	RequestPlaced(r *request.Record)
	// ObserveRequest is called at the end of each request.
	ObserveRequest(r *request.Record)
}

// outliers receives the health signals of responses.
type outliers interface {
	ObserveResponse(e *endpoint.Endpoint, r pool.Response)
	// EndpointsLacking returns the endpoints that refuse the requests of a subject (pickState.subject), while others answer them.
	EndpointsLacking(subject uint64) pool.Lacks
}

// Balancer picks endpoints.
type Balancer struct {
	params       Params
	pickPool     sync.Pool
	lastEligible atomic.Pointer[eligibleEndpoints]
	meanDuration averageDuration
	responses    storedResponses
	promptClaims promptClaims
	queue        *pool.Queue
	dispatched   dispatchedCount
}

// Options enables details of picks.
type Options struct {
	Scores   bool // scores of the candidates, in the request's record
	Explain  bool // reason of the pick, in a header for the client
	Prefixes bool // hashes of the prompt, in the request's record
}

// Params are the parameters of New.
type Params struct {
	Options   Options
	Snapshot  func() *pool.Snapshot
	Config    func() *pluginconfig.Config // of the plugins, which may change between picks
	Rules     *pool.Rules
	Estimator *estimate.Estimator
	Outliers  outliers
	Observer  observer
	Clock     clock.PassiveClock
	Random    func() uint64 // safe for concurrent use
}

// New returns a Balancer.
func New(p Params) *Balancer {
	return &Balancer{params: p, pickPool: sync.Pool{New: func() any { return &pickState{} }}, queue: pool.NewQueue(p.Clock)}
}

// OnRequestStart counts a request.
func (b *Balancer) OnRequestStart() { b.params.Observer.StreamStarted() }

// PlaceRequest picks the endpoint of a request and counts the request there. It may wait for an endpoint until ctx ends.
func (b *Balancer) PlaceRequest(ctx context.Context, in *request.PickInput) (request.PickResult, *request.Refusal) {
	p, _ := b.pickPool.Get().(*pickState)
	p.balancer, p.input, p.config, p.random = b, in, b.params.Config(), b.params.Random()
	err := p.placeRequest(ctx)
	p.clearDispatched()
	p.input = nil
	p.result.PickDuration = b.params.Clock.Now().Sub(in.ArrivalTime.Add(p.result.QueueTime))
	b.params.Observer.ObservePick(p.result.PickDuration, err)
	result := p.result
	if err != nil {
		p.DiscardPick()
		return result, refusalFor(err)
	}
	result.Pending = p
	return result, nil
}

// OnRequestEnd records a finished request, and lets waiting requests take its place.
func (b *Balancer) OnRequestEnd(r *request.Record) {
	b.params.Observer.ObserveRequest(r)
	b.dispatchWaiting()
}

// Queue returns the requests that wait for an endpoint.
func (b *Balancer) Queue() *pool.Queue { return b.queue }

// refusalFor returns the answer for a client whose request is not placed.
func refusalFor(err error) *request.Refusal {
	switch {
	case errors.Is(err, api.ErrEncoded):
		return request.UnsupportedFormat(err)
	case errors.Is(err, api.ErrMalformed):
		return request.BadRequest(err)
	case errors.Is(err, scheduling.ErrSaturated), errors.Is(err, scheduling.ErrNoCapacity), errors.Is(err, limits.ErrTooManyBytes):
		return request.Exhausted(err)
	}
	return request.Unavailable(err)
}
