package balancer

import (
	"context"
	"errors"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/monotonic"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Admit waits while there is no endpoint, and refuses requests with a negative priority while the pool is saturated.
func (m *pick) Admit(ctx context.Context) *exchange.Refusal {
	err := m.waitForEndpoint(ctx)
	if err == nil {
		err = m.checkAdmission()
	}
	if err != nil {
		return refusalFor(err)
	}
	return nil
}

func (m *pick) checkAdmission() error {
	if len(m.snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	return m.shedIfSaturated()
}

// shedIfSaturated refuses a request with a negative priority while the pool is saturated.
func (m *pick) shedIfSaturated() error {
	if m.requestContext.Priority >= 0 {
		return nil
	}
	m.candidates = appendLoads(m.candidates[:0], m.snapshot.Endpoints, m.config)
	if m.config.Saturation.Saturation(m.request.Now, m.candidates) >= 1 {
		return scheduling.ErrSaturated
	}
	return nil
}

// PoolSaturation returns the saturation of the whole pool, by the detector that sheds requests.
func (b *Balancer) PoolSaturation() float64 {
	config := b.configs.Current()
	return config.Saturation.Saturation(b.clock.Now(), appendLoads(nil, b.snapshots.Snapshot().Endpoints, config))
}

// appendLoads appends the loads of endpoints, without estimates for a request.
func appendLoads(to []scheduling.Candidate, endpoints []*endpoint.Endpoint, config *pluginconfig.Config) []scheduling.Candidate {
	to = slices.Grow(to, len(endpoints))
	for i, e := range endpoints {
		load := e.Load()
		to = appendCandidate(to, i, e, &load)
		if !config.Profile.WithoutEstimates {
			to[len(to)-1].Load.Tokens = float64(estimate.ServerOf(e).Backlog())
		}
	}
	return to
}

// PlaceRequest picks the endpoint of the request and counts the request there.
func (m *pick) PlaceRequest() *exchange.Refusal {
	err := m.scheduleRequest()
	m.clearDispatched()
	if err != nil {
		return refusalFor(err)
	}
	return nil
}

func (m *pick) scheduleRequest() error {
	b, x, config, endpoints := m.balancer, m.requestContext, m.config, m.snapshot.Endpoints
	m.lookupPrompt(b.estimator, endpoints)
	chosen, err := m.chooseEndpoint(endpoints, b.eligibleOf(m.snapshot, config.Profile))
	if err != nil {
		return err
	}
	x.Endpoint, x.MatchedTokens, x.PoolSize = endpoints[chosen.Index], chosen.Matched, len(endpoints)
	x.Placements[exchange.Decode] = m.acquireLease(x)
	m.lacks.MarkPlaced(x.Endpoint, m.request.Now)
	x.Destination = m.destinationHeader(endpoints)
	x.Conformance = config.TestHeader != "" && x.Incoming.Headers.Get(config.TestHeader) != ""
	m.rewriteModel(x)
	if m.incoming.API.Stores {
		b.captureResponseID(x)
	}
	m.notifyBinders(config.Profile)
	b.recordScores(x, m, endpoints)
	return nil
}

// chooseEndpoint lets the profile choose among the working endpoints. If none of these has room, it may choose one that seems to have stopped.
func (m *pick) chooseEndpoint(endpoints []*endpoint.Endpoint, indexes []int) (*scheduling.Candidate, error) {
	if err := m.collectCandidates(endpoints, indexes); err != nil {
		return nil, err
	}
	m.restrictToStoringServer(endpoints)
	chosen, err := m.config.Profile.Schedule(&m.request, m.candidates, &m.scheduling)
	if errors.Is(err, scheduling.ErrNoCapacity) && m.hasSuspects(endpoints, indexes) {
		m.addCandidates(endpoints, indexes, suspect)
		chosen, err = m.config.Profile.Schedule(&m.request, m.candidates, &m.scheduling)
	}
	return chosen, err //nolint:wrapcheck // it says all
}

// hasSuspects reports whether some endpoints seem to have stopped.
func (m *pick) hasSuspects(endpoints []*endpoint.Endpoint, indexes []int) bool {
	now := monotonic.FromTime(m.request.Now)
	return slices.ContainsFunc(indexes, func(i int) bool { return m.usabilityOf(endpoints[i], now) == suspect })
}

// MarkSent records the endpoint of the request.
func (m *pick) MarkSent() exchange.ResponseObserver {
	f := &responseObserver{balancer: m.balancer, requestContext: m.requestContext, estimated: m.estimated, stored: m.incoming.Stored != 0, prompt: m.firstHalf()}
	if m.estimated && len(m.chain.Hashes) > 0 {
		f.placement = m.balancer.estimator.RecordPlacement(&m.prompt, m.requestContext.Endpoint, &f.expectation)
	}
	m.Discard()
	return f
}

// firstHalf returns a hash of the first half of the prompt. Requests of one conversation, or with one long beginning, have the same.
func (m *pick) firstHalf() uint64 {
	if n := len(m.chain.Hashes); n > 0 {
		return m.chain.Hashes[n/2]
	}
	return m.random
}

// Discard makes the memory available to other picks.
func (m *pick) Discard() {
	m.clearDispatched()
	b := m.balancer
	m.reset()
	b.pickPool.Put(m)
}
