// Package balancer picks the endpoint of a request: it converts the snapshot of the datastore to candidates, lets a
// scheduling profile choose one, and counts the request on that endpoint.
//
// A pick parses the prompt in the request's body, looks it up in the index of prefixes, and estimates the time to first
// token for each endpoint. It reads atomics and takes no lock, except for sessions by name. The index learns the choice
// after the gateway has received it. Concurrent picks may not see each other's leases; the error is at most one request per
// additional core.
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
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/rules"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// leastOthers is the minimum share of the traffic that counts as other replicas. A lower share comes from slightly outdated
// pages.
const leastOthers = 0.15

// leastOurs is the minimum share of the traffic that counts as ours, so that one request does not represent too many.
const leastOurs = 0.1

// ErrSaturated means that the pool is saturated and that the request has a negative priority.
var ErrSaturated = errors.New("the pool is saturated, and the request has a negative priority")

// snapshots provides the endpoints.
type snapshots interface {
	Snapshot() *datastore.Snapshot
}

// configs provides the configuration of the plugins, which may change between picks.
type configs interface {
	Current() *pluginconfig.Config
}

// ruleset returns the rules that apply to a request.
type ruleset interface {
	Priority(objective string) (priority int, found bool)
	Rewrite(model string, random uint64) (rules.Rewrite, bool)
}

// observer receives the measurements of every pick.
type observer interface {
	ObservePick(d time.Duration, err error)
}

// outliers receives the status of responses.
type outliers interface {
	Responded(e *endpoint.Endpoint, status int)
}

// Balancer picks endpoints.
type Balancer struct {
	options   Options
	snapshots snapshots
	configs   configs
	rules     ruleset
	learner   *predict.Learner
	prefixes  *prefix.Index
	traffic   *endpoint.Traffic
	reuse     reuse
	recent    recent
	outliers  outliers
	observer  observer
	clock     clock.PassiveClock
	random    func() uint64
	memories  sync.Pool
}

// Options enables explanations of picks.
type Options struct {
	Scores  bool // scores of the candidates, in the exchange's record
	Explain bool // reason of the pick, in a header for the client
}

// Params are the parameters of New.
type Params struct {
	Options   Options
	Snapshots snapshots
	Configs   configs
	Rules     ruleset
	Learner   *predict.Learner
	Prefixes  *prefix.Index
	Traffic   *endpoint.Traffic
	Outliers  outliers
	Observer  observer
	Clock     clock.PassiveClock
	Random    func() uint64 // safe for concurrent use
}

// New returns a Balancer.
func New(p Params) *Balancer {
	return &Balancer{
		options:   p.Options,
		snapshots: p.Snapshots,
		configs:   p.Configs,
		rules:     p.Rules,
		learner:   p.Learner,
		prefixes:  p.Prefixes,
		traffic:   p.Traffic,
		outliers:  p.Outliers,
		observer:  p.Observer,
		clock:     p.Clock,
		random:    p.Random,
		memories:  sync.Pool{New: func() any { return &memory{} }},
	}
}

// Pick places the request of an exchange, or returns the reason why it cannot.
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

// Placed records the endpoint of the request.
func (b *Balancer) Placed(x *exchange.Exchange) {
	m, ok := x.Memory.(*memory)
	if !ok {
		return
	}
	x.Memory = nil
	if cache := x.Endpoint.Cache(); cache >= 0 {
		b.prefixes.Use(cache, m.chain.Hashes)
	}
	b.recent.add(&m.chain)
	b.memories.Put(m)
}

// Responded records the status of the response. If another endpoint than the picked one responded, the picked one failed
// before.
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

// statusFailed is the status that a gateway would have returned for an endpoint after its last attempt.
const statusFailed = 503

// Ended records the length of the answer, which is now in the server's cache and has evicted other blocks. Requests of other
// replicas are assumed to get answers of the same length there.
func (b *Balancer) Ended(x *exchange.Exchange) {
	tokens := x.Usage.Output
	if !x.Usage.Known && x.Streaming {
		tokens = x.Pieces // each is about one token
	}
	if cache := x.Endpoint.Cache(); cache >= 0 && tokens >= prefix.BlockTokens {
		ours := max(1-b.traffic.Others(), leastOurs)
		b.prefixes.Fill(cache, int(float64(tokens)/ours)/prefix.BlockTokens)
	}
}

func (b *Balancer) pick(x *exchange.Exchange, m *memory) error {
	config, random := b.configs.Current(), b.random()
	if err := m.read(x, config.Parsers); err != nil {
		return err
	}
	b.rule(x, random)
	m.hash(x, config.Prefix.MaxTokens)
	snapshot := b.snapshots.Snapshot()
	if snapshot.Err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, snapshot.Err)
	}
	if len(snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	m.describe(x, random)
	m.match(b.prefixes)
	b.reuse.see(m.known(), m.turns.History*prefix.BlockTokens, x.PromptTokens)
	m.home, m.ours = nil, false
	if others := b.traffic.Others(); others > leastOthers {
		m.ours = b.recent.placed(&m.chain, m.turns.Asked)
		m.expect(snapshot.Endpoints, others, &b.reuse)
	}
	if m.collect(snapshot.Endpoints, b.learner.Speed()); len(m.candidates) == 0 {
		return scheduling.ErrNoneInSubset
	}
	if x.Priority < 0 && config.Saturation.Saturation(&m.request, m.candidates) >= 1 {
		return ErrSaturated
	}
	chosen, err := config.Profile.Schedule(&m.request, m.candidates, &m.scheduling)
	if err != nil {
		return err //nolint:wrapcheck // it says all
	}
	x.Endpoint, x.MatchedTokens = snapshot.Endpoints[chosen.Index], chosen.Matched
	x.Lease = m.place(x)
	x.Destination = m.destination(snapshot.Endpoints)
	x.Conformance = config.TestHeader != "" && x.Incoming.Headers.Get(config.TestHeader) != ""
	m.rewrite(x)
	m.bind(x, config.Profile)
	b.tell(x, m, snapshot.Endpoints)
	return nil
}

// refusal returns the answer for a client whose request is not placed.
func refusal(err error) *exchange.Refusal {
	switch {
	case errors.Is(err, request.ErrMalformed):
		return exchange.BadRequest(err.Error())
	case errors.Is(err, ErrSaturated), errors.Is(err, scheduling.ErrNoCapacity):
		return exchange.Exhausted(err)
	}
	return exchange.Unavailable(err)
}
