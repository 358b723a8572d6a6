// Package balancer picks the endpoint of a request: it turns the datastore's snapshot into candidates, has a
// scheduling profile choose among them and counts the request on the one that is chosen.
//
// A pick reads atomics and takes no lock. Picks that overlap may not see each other's leases; they err by one
// request for each other core.
package balancer

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
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

// Balancer picks endpoints.
type Balancer struct {
	snapshots snapshots
	profile   *scheduling.Profile
	observer  observer
	clock     clock.PassiveClock
	random    func() uint64
	scratch   sync.Pool
}

// Params is what a Balancer is made of.
type Params struct {
	Snapshots snapshots
	Profile   *scheduling.Profile
	Observer  observer
	Clock     clock.PassiveClock
	Random    func() uint64 // safe for concurrent use
}

// scratch is the memory of one pick.
type scratch struct {
	request    scheduling.Request
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

// New returns a Balancer.
func New(p Params) *Balancer {
	return &Balancer{
		snapshots: p.Snapshots,
		profile:   p.Profile,
		observer:  p.Observer,
		clock:     p.Clock,
		random:    p.Random,
		scratch:   sync.Pool{New: func() any { return &scratch{} }},
	}
}

// Pick returns a lease on the endpoint that takes the request, or one of scheduling's reasons why none does.
func (b *Balancer) Pick(subset *scheduling.Subset) (*endpoint.Lease, error) {
	began := b.clock.Now()
	lease, err := b.pick(began, subset)
	b.observer.ObservePick(b.clock.Since(began), err)
	return lease, err
}

func (b *Balancer) pick(now time.Time, subset *scheduling.Subset) (*endpoint.Lease, error) {
	snapshot := b.snapshots.Snapshot()
	if snapshot.Err != nil {
		return nil, fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, snapshot.Err)
	}
	if len(snapshot.Endpoints) == 0 {
		return nil, scheduling.ErrNoEndpoints
	}
	s := b.scratch.Get().(*scratch)
	defer b.scratch.Put(s)
	s.request = scheduling.Request{Now: now, Random: b.random(), Subset: subset}
	if s.collect(snapshot.Endpoints); len(s.candidates) == 0 {
		return nil, scheduling.ErrNoneInSubset
	}
	chosen, err := b.profile.Schedule(&s.request, s.candidates, &s.scheduling)
	if err != nil {
		return nil, err
	}
	return snapshot.Endpoints[chosen.Index].Acquire(), nil
}

// collect fills the list of candidates with the endpoints that the gateway allows.
func (s *scratch) collect(endpoints []*endpoint.Endpoint) {
	s.candidates = s.candidates[:0]
	for i, e := range endpoints {
		if address := e.Identity().Address; s.request.Subset.Contains(address) {
			s.candidates = append(s.candidates, scheduling.Candidate{Index: i, Address: address, Load: e.Load()})
		}
	}
}
