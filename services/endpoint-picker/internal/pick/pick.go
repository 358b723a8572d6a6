package pick

import (
	"context"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// pickState is the state of one pick, from PlaceRequest until its sender has the endpoint. It implements request.PendingPick. Its buffers
// are reused by later picks.
type pickState struct {
	balancer   *Balancer
	input      *request.PickInput // nil after PlaceRequest
	result     request.PickResult
	config     *pluginconfig.Config // in force when the pick began
	random     uint64
	snapshot   *pool.Snapshot
	dispatched bool   // see dispatchedCount
	claimed    bool   // the prompt is a claim of a client: the carrier does not see the answer
	subject    uint64 // hash of the API and the target model

	incoming   api.Request
	chain      prefixindex.Chain
	turns      api.Turns       // in blocks
	prompt     estimate.Prompt // the same for the estimator
	estimated  bool            // the profile reads estimates
	textBuffer [512]byte       // buffer for texts that are not in their shortest spelling
	request    scheduling.Request
	lacks      pool.Lacks // endpoints that have others than the requested model only
	paces      estimate.Paces
	load       endpoint.Load // of the endpoint that is described
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

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

// readRequest reads the request: its model, its prompt, its rules and its session.
func (p *pickState) readRequest() error {
	if err := p.parseRequest(p.balancer.promptBlocks(p.config.Prefix.MaxTokens)); err != nil {
		return err
	}
	if err := p.applyRules(); err != nil {
		return err
	}
	p.countTokens()
	p.estimated = !p.config.Profile.WithoutEstimates
	p.hashPrompt(hashedTokens(p.config))
	p.describeRequest()
	return nil
}

func (p *pickState) scheduleRequest() error {
	b, result, config, endpoints := p.balancer, &p.result, p.config, p.snapshot.Endpoints
	p.lookupPrompt(b.params.Estimator, endpoints)
	chosen, err := p.chooseEndpoint(endpoints, b.eligibleOf(p.snapshot, config.Profile))
	if err != nil {
		return err
	}
	result.Endpoint, result.PoolSize = endpoints[chosen.Index], len(endpoints)
	result.MatchedTokens = p.prompt.CachedOn(result.Endpoint)
	result.Placements[request.Decode] = p.acquireLease(result.Endpoint)
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

// acquireLease counts the request on its endpoint.
func (p *pickState) acquireLease(on *endpoint.Endpoint) *endpoint.Lease {
	switch {
	case !p.incoming.API.Generates:
		return on.Acquire()
	case p.incoming.Stream && p.input.LateFirst:
		return p.prompt.PlaceOn(on, p.request.Now, estimate.Late)
	case p.incoming.Stream:
		return p.prompt.PlaceOn(on, p.request.Now, estimate.Streamed)
	default:
		return p.prompt.PlaceOn(on, p.request.Now, estimate.Whole)
	}
}

// CommitPick records the endpoint of the request.
func (p *pickState) CommitPick(r *request.Record) request.ResponseObserver {
	b, result := p.balancer, &p.result
	o := &responseObserver{balancer: b, record: r, lease: result.Placements.AnsweringLease(), subject: p.subject, prompt: p.firstHalf(),
		inference: result.Inference, estimated: p.estimated, stored: p.incoming.Stored != 0, claimed: p.claimed}
	if p.estimated && len(p.chain.Hashes) > 0 {
		o.placement = b.params.Estimator.RecordPlacement(&p.prompt, result.Endpoint, &o.expectation)
	}
	b.params.Observer.RequestPlaced(r)
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

// reset discards what a pool must not keep: the values of the request, which are as long as its client likes, and large
// buffers. The other buffers have the size of the pool of endpoints.
func (p *pickState) reset() {
	p.incoming.DropLarge()
	p.chain.DropLarge()
	p.balancer, p.config, p.snapshot, p.lacks = nil, nil, nil, nil
	p.result, p.request, p.prompt.Size = request.PickResult{}, scheduling.Request{}, estimate.PromptSize{}
	p.claimed, p.subject = false, 0
}
