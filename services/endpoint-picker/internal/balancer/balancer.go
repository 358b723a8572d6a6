// Package balancer picks the endpoint of a request: it turns the datastore's snapshot into candidates, has a
// scheduling profile choose among them and counts the request on the one that is chosen.
//
// A pick reads the request's body for its prompt, asks the index who has how much of it, and estimates for each endpoint
// when the first token would come. It reads atomics; the index is told of the choice under its own short lock. Picks that
// overlap may not see each other's leases; they err by one request for each other core.
package balancer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// maxBlocks is how much of a prompt is looked for in caches: 128 Ki tokens.
const maxBlocks = (128 << 10) / prefix.BlockTokens

// snapshots is where the endpoints come from.
type snapshots interface {
	Snapshot() *datastore.Snapshot
}

// configs is where the configuration of the plugins comes from, which may be another one for each pick.
type configs interface {
	Current() *pickerconfig.Config
}

// observer takes the measurements of every pick.
type observer interface {
	ObservePick(d time.Duration, err error)
}

// Balancer picks endpoints.
type Balancer struct {
	snapshots snapshots
	learner   *predict.Learner
	prefixes  *prefix.Index
	configs   configs
	observer  observer
	clock     clock.PassiveClock
	random    func() uint64
	scratch   sync.Pool
}

// Params is what a Balancer is made of.
type Params struct {
	Snapshots snapshots
	Learner   *predict.Learner
	Prefixes  *prefix.Index
	Configs   configs
	Observer  observer
	Clock     clock.PassiveClock
	Random    func() uint64 // safe for concurrent use
}

// scratch is the memory of one pick.
type scratch struct {
	incoming   request.Request
	chain      prefix.Chain
	matched    []int // blocks, by the numbers of caches
	tokens     int   // of the prompt
	request    scheduling.Request
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

// New returns a Balancer.
func New(p Params) *Balancer {
	return &Balancer{
		snapshots: p.Snapshots,
		learner:   p.Learner,
		prefixes:  p.Prefixes,
		configs:   p.Configs,
		observer:  p.Observer,
		clock:     p.Clock,
		random:    p.Random,
		scratch:   sync.Pool{New: func() any { return &scratch{} }},
	}
}

// Pick returns a lease on the endpoint that takes the request. It fails for one of scheduling's reasons, or with
// request.ErrMalformed.
func (b *Balancer) Pick(in request.Incoming, subset *scheduling.Subset) (*endpoint.Lease, error) {
	began := b.clock.Now()
	lease, err := b.pick(began, in, subset)
	b.observer.ObservePick(b.clock.Since(began), err)
	return lease, err
}

func (b *Balancer) pick(now time.Time, in request.Incoming, subset *scheduling.Subset) (*endpoint.Lease, error) {
	s := b.scratch.Get().(*scratch)
	defer b.scratch.Put(s)
	if err := s.read(in); err != nil {
		return nil, err
	}
	snapshot := b.snapshots.Snapshot()
	if snapshot.Err != nil {
		return nil, fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, snapshot.Err)
	}
	if len(snapshot.Endpoints) == 0 {
		return nil, scheduling.ErrNoEndpoints
	}
	s.request = scheduling.Request{Now: now, Random: b.random(), Subset: subset}
	s.match(b.prefixes)
	if s.collect(snapshot.Endpoints, b.learner.Speed()); len(s.candidates) == 0 {
		return nil, scheduling.ErrNoneInSubset
	}
	chosen, err := b.configs.Current().Profile.Schedule(&s.request, s.candidates, &s.scheduling)
	if err != nil {
		return nil, err
	}
	e := snapshot.Endpoints[chosen.Index]
	if cache := e.Cache(); cache >= 0 {
		b.prefixes.Use(cache, s.chain.Hashes)
	}
	if !s.incoming.Stream {
		return e.PlaceUnseen(), nil
	}
	return e.Place(now, s.uncached(e)), nil
}

// read understands the request. One of an API that is not known has no prompt.
func (s *scratch) read(in request.Incoming) error {
	known, err := s.incoming.Parse(in)
	s.incoming.Body = nil // it is the caller's
	if err != nil {
		return err
	}
	r := &s.incoming
	s.tokens = 0
	text := func(span jsonscan.Span) []byte { return in.Body[span.From:span.To] }
	s.chain.Reset(prefix.Seed(text(r.Model), text(r.CacheSalt)), maxBlocks)
	if !known {
		return nil
	}
	s.tokens = r.Tokens()
	for _, p := range r.Prompt {
		if p.IDs > 0 {
			s.chain.WriteIDs(text(p.Span))
		} else {
			s.chain.Write(text(p.Span))
		}
	}
	return nil
}

// match asks who has how much of the prompt.
func (s *scratch) match(x *prefix.Index) {
	n := x.Len()
	s.matched = slices.Grow(s.matched[:0], n)[:n]
	clear(s.matched)
	x.Match(s.chain.Hashes, s.matched)
}

// cached is how many tokens of the prompt an endpoint has.
func (s *scratch) cached(e *endpoint.Endpoint) int {
	cache := e.Cache()
	if cache < 0 || cache >= len(s.matched) {
		return 0
	}
	return s.matched[cache] * prefix.BlockTokens
}

// uncached is how many tokens of the prompt an endpoint would have to compute: the last one at least.
func (s *scratch) uncached(e *endpoint.Endpoint) int { return max(s.tokens-s.cached(e), 1) }

// collect fills the list of candidates with the endpoints that the gateway allows.
func (s *scratch) collect(endpoints []*endpoint.Endpoint, speed *predict.Speed) {
	s.candidates = s.candidates[:0]
	for i, e := range endpoints {
		address := e.Identity().Address
		if !s.request.Subset.Contains(address) {
			continue
		}
		load := e.Load()
		load.Wait = e.Wait(s.request.Now, speed, s.uncached(e))
		s.candidates = append(s.candidates, scheduling.Candidate{
			Index: i, Server: e.Server(), Load: load, Matched: s.cached(e),
		})
	}
}
