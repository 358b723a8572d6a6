package balancer

import (
	"context"
	"errors"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Admit waits while there is no endpoint, and refuses requests with a negative priority while the pool is saturated.
func (p *pick) Admit(ctx context.Context) *exchange.Refusal {
	err := p.waitForEndpoint(ctx)
	if err == nil {
		err = p.checkAdmission()
	}
	if err != nil {
		return refusalFor(err)
	}
	return nil
}

func (p *pick) checkAdmission() error {
	if len(p.snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	return p.shedIfSaturated()
}

// shedIfSaturated refuses a request with a negative priority while the pool is saturated.
func (p *pick) shedIfSaturated() error {
	if p.requestContext.Priority >= 0 {
		return nil
	}
	p.candidates = appendLoads(p.candidates[:0], p.snapshot.Endpoints, p.config)
	if p.config.Saturation.Saturation(p.request.Now, p.candidates) >= 1 {
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
func (p *pick) PlaceRequest() *exchange.Refusal {
	err := p.scheduleRequest()
	p.clearDispatched()
	if err != nil {
		return refusalFor(err)
	}
	return nil
}

func (p *pick) scheduleRequest() error {
	b, rc, config, endpoints := p.balancer, p.requestContext, p.config, p.snapshot.Endpoints
	p.lookupPrompt(b.estimator, endpoints)
	chosen, err := p.chooseEndpoint(endpoints, b.eligibleOf(p.snapshot, config.Profile))
	if err != nil {
		return err
	}
	rc.Endpoint, rc.MatchedTokens, rc.PoolSize = endpoints[chosen.Index], chosen.Matched, len(endpoints)
	rc.Placements[exchange.Decode] = p.acquireLease(rc)
	p.lacks.MarkPlaced(rc.Endpoint, p.request.Now)
	rc.Destination = p.destinationHeader(endpoints)
	rc.Conformance = config.TestHeader != "" && rc.Incoming.Headers.ValueOf(config.TestHeader) != ""
	p.rewriteModel(rc)
	if p.incoming.API.Stores {
		b.captureResponseID(rc)
	}
	p.notifyBinders(config.Profile)
	b.recordScores(rc, p, endpoints)
	return nil
}

// chooseEndpoint lets the profile choose among the working endpoints. If none of these has room, it may choose one that seems to have stopped.
func (p *pick) chooseEndpoint(endpoints []*endpoint.Endpoint, indexes []int) (*scheduling.Candidate, error) {
	if err := p.collectCandidates(endpoints, indexes); err != nil {
		return nil, err
	}
	p.restrictToStoringServer(endpoints)
	chosen, err := p.config.Profile.Schedule(&p.request, p.candidates, &p.scheduling)
	if errors.Is(err, scheduling.ErrNoCapacity) && p.hasSuspects(endpoints, indexes) {
		p.addCandidates(endpoints, indexes, suspect)
		chosen, err = p.config.Profile.Schedule(&p.request, p.candidates, &p.scheduling)
	}
	return chosen, err
}

// hasSuspects reports whether some endpoints seem to have stopped.
func (p *pick) hasSuspects(endpoints []*endpoint.Endpoint, indexes []int) bool {
	now := endpoint.ToMonotonic(p.request.Now)
	return slices.ContainsFunc(indexes, func(i int) bool { return p.usabilityOf(endpoints[i], now) == suspect })
}

// MarkSent records the endpoint of the request.
func (p *pick) MarkSent() exchange.ResponseObserver {
	o := &responseObserver{balancer: p.balancer, requestContext: p.requestContext, estimated: p.estimated, stored: p.incoming.Stored != 0,
		prompt: p.firstHalf()}
	if p.estimated && len(p.chain.Hashes) > 0 {
		o.placement = p.balancer.estimator.RecordPlacement(&p.prompt, p.requestContext.Endpoint, &o.expectation)
	}
	p.Discard()
	return o
}

// firstHalf returns a hash of the first half of the prompt. Requests of one conversation, or with one long beginning, have the same.
func (p *pick) firstHalf() uint64 {
	if n := len(p.chain.Hashes); n > 0 {
		return p.chain.Hashes[n/2]
	}
	return p.random
}

// Discard makes the buffers available to other picks.
func (p *pick) Discard() {
	p.clearDispatched()
	b := p.balancer
	p.reset()
	b.pickPool.Put(p)
}
