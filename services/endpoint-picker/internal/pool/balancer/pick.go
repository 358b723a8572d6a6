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

// placeRequest picks the endpoint of the request and counts the request there.
func (p *pickState) placeRequest(ctx context.Context) error {
	if err := p.readRequest(); err != nil {
		return err
	}
	if err := p.waitForEndpoint(ctx); err != nil {
		return err
	}
	if err := p.checkAdmission(); err != nil {
		return err
	}
	return p.scheduleRequest()
}

// checkAdmission refuses the request if there is no endpoint, or if it has a negative priority and the pool is saturated.
func (p *pickState) checkAdmission() error {
	if len(p.snapshot.Endpoints) == 0 {
		return scheduling.ErrNoEndpoints
	}
	return p.shedIfSaturated()
}

// shedIfSaturated refuses a request with a negative priority while the pool is saturated.
func (p *pickState) shedIfSaturated() error {
	if p.result.Priority >= 0 {
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

func (p *pickState) scheduleRequest() error {
	b, result, config, endpoints := p.balancer, &p.result, p.config, p.snapshot.Endpoints
	p.lookupPrompt(b.estimator, endpoints)
	chosen, err := p.chooseEndpoint(endpoints, b.eligibleOf(p.snapshot, config.Profile))
	if err != nil {
		return err
	}
	result.Endpoint, result.MatchedTokens, result.PoolSize = endpoints[chosen.Index], chosen.Matched, len(endpoints)
	result.Placements[exchange.Decode] = p.acquireLease(result.Endpoint)
	p.lacks.MarkPlaced(result.Endpoint, p.request.Now)
	result.Destination = p.destinationHeader(endpoints)
	result.Conformance = config.TestHeader != "" && p.input.Incoming.Headers.ValueOf(config.TestHeader) != ""
	p.rewriteModel()
	if p.incoming.API.Stores {
		p.captureResponseID()
	}
	p.notifyBinders()
	p.recordScores(endpoints)
	return nil
}

// chooseEndpoint lets the profile choose among the working endpoints. If none of these has room, it may choose one that seems to have stopped.
func (p *pickState) chooseEndpoint(endpoints []*endpoint.Endpoint, indexes []int) (*scheduling.Candidate, error) {
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
func (p *pickState) hasSuspects(endpoints []*endpoint.Endpoint, indexes []int) bool {
	now := endpoint.ToMonotonic(p.request.Now)
	return slices.ContainsFunc(indexes, func(i int) bool { return p.usabilityOf(endpoints[i], now) == suspect })
}

// CommitPick records the endpoint of the request.
func (p *pickState) CommitPick(r *exchange.Record) exchange.ResponseObserver {
	b, result := p.balancer, &p.result
	o := &responseObserver{balancer: b, record: r, lease: result.Placements.AnsweringLease(), subject: p.subject, prompt: p.firstHalf(),
		inference: result.Inference, estimated: p.estimated, stored: p.incoming.Stored != 0, claimed: p.claimed}
	if p.estimated && len(p.chain.Hashes) > 0 {
		o.placement = b.estimator.RecordPlacement(&p.prompt, result.Endpoint, &o.expectation)
	}
	b.observer.RequestPlaced(r)
	p.DiscardPick()
	return o
}

// firstHalf returns a hash of the first half of the prompt. Requests of one conversation, or with one long beginning, have the same.
func (p *pickState) firstHalf() uint64 {
	if n := len(p.chain.Hashes); n > 0 {
		return p.chain.Hashes[n/2]
	}
	return p.random
}

// DiscardPick makes the buffers available to other picks.
func (p *pickState) DiscardPick() {
	b := p.balancer
	p.reset()
	b.pickPool.Put(p)
}
