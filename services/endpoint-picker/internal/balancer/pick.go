package balancer

import (
	"context"
	"fmt"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Admit refuses requests with a negative priority while the pool is saturated. It does not wait.
func (m *memory) Admit(context.Context) *exchange.Refusal {
	if err := m.admit(); err != nil {
		return refusal(err)
	}
	return nil
}

func (m *memory) admit() error {
	m.snapshot = m.balancer.snapshots.Snapshot()
	if m.snapshot.Err != nil {
		return fmt.Errorf("%w: %w", scheduling.ErrNoEndpoints, m.snapshot.Err)
	}
	if len(m.snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	if m.exchange.Priority < 0 && m.config.Saturation.Saturation(&m.request, m.loads()) >= 1 {
		return scheduling.ErrSaturated
	}
	return nil
}

// loads returns the loads of the whole pool, whatever the gateway allows for this request.
func (m *memory) loads() []scheduling.Candidate {
	m.candidates = m.candidates[:0]
	for i, e := range m.snapshot.Endpoints {
		m.candidates = append(m.candidates, scheduling.Candidate{Index: i, Server: e.Server(), Load: e.Load()})
	}
	return m.candidates
}

// Place picks the endpoint of the request and counts the request there.
func (m *memory) Place() *exchange.Refusal {
	if err := m.schedule(); err != nil {
		return refusal(err)
	}
	return nil
}

func (m *memory) schedule() error {
	b, x, config, endpoints := m.balancer, m.exchange, m.config, m.snapshot.Endpoints
	m.match(b.prefixes)
	b.reuse.see(m.known(), m.turns.History*prefix.BlockTokens, x.PromptTokens)
	m.home, m.ours = nil, false
	if others := b.traffic.Others(); others > leastOthers {
		m.ours = b.recent.placed(&m.chain, m.turns.Asked)
		m.expect(endpoints, others, &b.reuse)
	}
	if m.collect(endpoints, b.learner.Speed()); len(m.candidates) == 0 {
		return scheduling.ErrNoneInSubset
	}
	chosen, err := config.Profile.Schedule(&m.request, m.candidates, &m.scheduling)
	if err != nil {
		return err //nolint:wrapcheck // it says all
	}
	x.Endpoint, x.MatchedTokens = endpoints[chosen.Index], chosen.Matched
	x.Lease = m.place(x)
	x.Destination = m.destination(endpoints)
	x.Conformance = in(config.Headers, api.HeaderSelection) && x.Incoming.Headers.Get(api.HeaderSelection) != ""
	m.rewrite(x)
	bindSession(config.Session, b.sessions, x, m.session)
	b.tell(x, m, endpoints)
	return nil
}

// Sent records the endpoint of the request.
func (m *memory) Sent() {
	if cache := m.exchange.Endpoint.Cache(); cache >= 0 {
		m.balancer.prefixes.Use(cache, m.chain.Hashes)
	}
	m.balancer.recent.add(&m.chain)
	m.Discard()
}

// Discard makes the memory available to other picks.
func (m *memory) Discard() {
	b := m.balancer
	m.forget()
	b.memories.Put(m)
}
