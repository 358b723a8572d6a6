// Package balancer picks the endpoint of a request: it turns the datastore's snapshot into candidates, has a
// scheduling profile choose among them and counts the request on the one that is chosen.
//
// A pick reads the request's body for its prompt, asks the index who has how much of it, and estimates for each endpoint
// when the first token would come. It reads atomics and takes no lock; the index is told of the choice when the gateway
// has been told. Picks that overlap may not see each other's leases; they err by one request for each other core.
package balancer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// snapshots is where the endpoints come from.
type snapshots interface {
	Snapshot() *datastore.Snapshot
}

// observer takes the measurements of every pick.
type observer interface {
	ObservePick(d time.Duration, err error)
}

// outliers learns how endpoints respond.
type outliers interface {
	Responded(e *endpoint.Endpoint, status int)
}

// Balancer picks endpoints.
type Balancer struct {
	snapshots snapshots
	learner   *predict.Learner
	prefixes  *prefix.Index
	parsers   *request.Parsers
	profile   *scheduling.Profile
	outliers  outliers
	observer  observer
	clock     clock.PassiveClock
	random    func() uint64
	memories  sync.Pool
}

// Params is what a Balancer is made of.
type Params struct {
	Snapshots snapshots
	Learner   *predict.Learner
	Prefixes  *prefix.Index
	Parsers   *request.Parsers
	Profile   *scheduling.Profile
	Outliers  outliers
	Observer  observer
	Clock     clock.PassiveClock
	Random    func() uint64 // safe for concurrent use
}

// New returns a Balancer.
func New(p Params) *Balancer {
	return &Balancer{
		snapshots: p.Snapshots,
		learner:   p.Learner,
		prefixes:  p.Prefixes,
		parsers:   p.Parsers,
		profile:   p.Profile,
		outliers:  p.Outliers,
		observer:  p.Observer,
		clock:     p.Clock,
		random:    p.Random,
		memories:  sync.Pool{New: func() any { return &memory{} }},
	}
}

// Pick places the request of an exchange, or says why it cannot.
func (b *Balancer) Pick(x *exchange.Exchange) *exchange.Refusal {
	m := b.memories.Get().(*memory)
	err := b.pick(x, m)
	x.PickTook = b.clock.Since(x.Arrived)
	b.observer.ObservePick(x.PickTook, err)
	if err != nil {
		b.memories.Put(m)
		return refusal(err)
	}
	x.Memory = m
	return nil
}

// Placed remembers where the request has gone.
func (b *Balancer) Placed(x *exchange.Exchange) {
	m, ok := x.Memory.(*memory)
	if !ok {
		return
	}
	x.Memory = nil
	if cache := x.Endpoint.Cache(); cache >= 0 {
		b.prefixes.Use(cache, m.chain.Hashes)
	}
	b.memories.Put(m)
}

// Responded learns from the status of the response. If another endpoint than the picked one gave it, the picked one has
// failed before.
func (b *Balancer) Responded(x *exchange.Exchange) {
	if !x.Moved() {
		b.outliers.Responded(x.Endpoint, x.Status)
		return
	}
	b.outliers.Responded(x.Endpoint, statusFailed)
	for _, e := range b.snapshots.Snapshot().Endpoints {
		if e.Address() == x.Served {
			b.outliers.Responded(e, x.Status)
			return
		}
	}
}

// statusFailed is what a gateway would have answered for an endpoint that it gave up.
const statusFailed = 503

func (b *Balancer) pick(x *exchange.Exchange, m *memory) error {
	if err := m.read(x, b.parsers); err != nil {
		return err
	}
	snapshot := b.snapshots.Snapshot()
	if snapshot.Err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, snapshot.Err)
	}
	if len(snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	m.request.Now, m.request.Random, m.request.Subset = x.Arrived, b.random(), x.Subset
	m.match(b.prefixes)
	if m.collect(snapshot.Endpoints, b.learner.Speed()); len(m.candidates) == 0 {
		return scheduling.ErrNoneInSubset
	}
	chosen, err := b.profile.Schedule(&m.request, m.candidates, &m.scheduling)
	if err != nil {
		return err //nolint:wrapcheck // it says all
	}
	e := snapshot.Endpoints[chosen.Index]
	m.rewrite(x)
	x.Endpoint, x.Destination, x.MatchedTokens = e, e.Address(), chosen.Matched
	x.Lease = m.place(x, e)
	return nil
}

// refusal says to the client why its request goes nowhere.
func refusal(err error) *exchange.Refusal {
	if errors.Is(err, request.ErrMalformed) {
		return exchange.BadRequest(err.Error())
	}
	return exchange.Unavailable(err)
}
