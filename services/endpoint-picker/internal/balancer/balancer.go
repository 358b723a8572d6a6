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
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/rules"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/session"
)

// ErrSaturated means that the pool is saturated and that the request has a negative priority.
var ErrSaturated = errors.New("the pool is saturated, and the request has a negative priority")

// snapshots provides the endpoints.
type snapshots interface {
	Snapshot() *datastore.Snapshot
}

// configs provides the configuration of the plugins, which may change between picks.
type configs interface {
	Current() *pickerconfig.Config
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
	estimator *estimate.Estimator
	sessions  *session.Table
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
	Estimator *estimate.Estimator
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
		estimator: p.Estimator,
		sessions:  session.NewTable(),
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
	if m.estimated && len(m.chain.Hashes) > 0 {
		x.Memory = b.estimator.Placed(&m.prompt, x.Endpoint)
	}
	b.memories.Put(m)
}

// Responded records the status of the response. If another endpoint than the picked one responded, the picked one failed
// before, and the request belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (b *Balancer) Responded(x *exchange.Exchange) {
	if !x.Moved() {
		b.outliers.Responded(x.Endpoint, x.Status)
		b.served(x, x.Endpoint)
		return
	}
	b.outliers.Responded(x.Endpoint, statusFailed)
	served := b.endpointAt(x.Served)
	if served == nil { // it has left the pool: what is known of the request stays with the picked endpoint
		b.served(x, x.Endpoint)
		return
	}
	b.outliers.Responded(served, x.Status)
	x.Lease.MoveTo(served, b.clock.Now())
	b.served(x, served)
}

// served records which endpoint has the prompt in its cache now.
func (b *Balancer) served(x *exchange.Exchange, by *endpoint.Endpoint) {
	if placed, ok := x.Memory.(*estimate.Placement); ok {
		x.Memory = nil
		b.estimator.Served(placed, by)
	}
}

// endpointAt returns the endpoint with an address, or nil.
func (b *Balancer) endpointAt(address string) *endpoint.Endpoint {
	for _, e := range b.snapshots.Snapshot().Endpoints {
		if e.Address() == address {
			return e
		}
	}
	return nil
}

// statusFailed is the status that a gateway would have returned for an endpoint after its last attempt.
const statusFailed = 503

// Ended records the length of the answer, which is now in the cache of the server that served it.
func (b *Balancer) Ended(x *exchange.Exchange) {
	tokens := x.Usage.Output
	if !x.Usage.Known && x.Streaming {
		tokens = x.Pieces // each is about one token
	}
	if !b.configs.Current().Profile.WithoutEstimates {
		b.estimator.Answered(x.Lease.Endpoint(), tokens)
	}
}

func (b *Balancer) pick(x *exchange.Exchange, m *memory) error {
	config, random := b.configs.Current(), b.random()
	if err := m.read(x, config.Parsers); err != nil {
		return err
	}
	b.rule(x, random)
	m.estimated = !config.Profile.WithoutEstimates
	m.hash(x, hashedTokens(config))
	snapshot := b.snapshots.Snapshot()
	if snapshot.Err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, snapshot.Err)
	}
	if len(snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	server, id := findSession(config.Session, b.sessions, x)
	m.describe(x, random, server)
	m.lookup(b.estimator, snapshot.Endpoints)
	if m.collect(snapshot.Endpoints); len(m.candidates) == 0 {
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
	x.Conformance = in(config.Headers, request.HeaderSelection) && x.Incoming.Headers.Get(request.HeaderSelection) != ""
	m.rewrite(x)
	bindSession(config.Session, b.sessions, x, id)
	b.tell(x, m, snapshot.Endpoints)
	return nil
}

// hashedTokens returns the number of prompt tokens to hash; 0 is the default. Without estimates only the beginning counts.
func hashedTokens(c *pickerconfig.Config) int {
	if c.Profile.WithoutEstimates {
		return beginningBlocks * prefixindex.BlockTokens
	}
	return c.Prefix.MaxTokens
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
