package estimate

import (
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// Estimator is the estimator of one pool, and the factory of its endpoints.
type Estimator struct {
	learner    *costLearner
	index      *prefixindex.Index
	share      loadShare
	reuse      reuseStats
	recent     placedPrompts
	paces      paces
	tokenizers *tokenizers
	placements sync.Pool // of *Placement
	size       atomic.Pointer[CacheSize]
	sparse     atomic.Int32 // servers that have shown that they keep ends only

	publisher Publisher     // nil: no other replica hears of requests
	requests  atomic.Uint64 // published so far
}

// New returns an Estimator without observations, whose index of prefixes shares a memory with others until ReleaseMemory.
func New(memory *prefixindex.MemoryBudget) *Estimator {
	x := &Estimator{
		learner: newLearner(), index: memory.NewIndex(), tokenizers: newTokenizers(),
		placements: sync.Pool{New: func() any { return &Placement{} }},
	}
	x.paces.gap.Store(usualGap * usualGap)
	x.size.Store(&CacheSize{Blocks: usualBlocks, FromPage: true})
	return x
}

// NewEndpoint returns an endpoint discovered at the given time.
func (x *Estimator) NewEndpoint(d endpoint.Description, since time.Time) *endpoint.Endpoint {
	blocks := x.size.Load().blocksFor(0)
	return endpoint.New(d, since, newServer(x, x.index.AddCache(blocks), blocks))
}

// ReleaseMemory ends the use of the shared memory.
func (x *Estimator) ReleaseMemory() { x.index.ReleaseMemory() }

// ForgetEndpoint removes the prefixes of a removed endpoint. Requests that are still on it have no effect on other endpoints.
func (x *Estimator) ForgetEndpoint(e *endpoint.Endpoint) {
	s := ServerOf(e)
	x.index.RemoveCache(s.cache)
	s.fit.forgetEnds()
	s.countSparse()
}

// Costs returns the learned costs. They must not be changed.
func (x *Estimator) Costs() *Costs { return x.learner.currentCosts() }

// IndexStats returns the sizes of the index of prefixes.
func (x *Estimator) IndexStats() prefixindex.Stats { return x.index.Stats() }

// CountUses returns how often the contents of caches have changed so far.
func (x *Estimator) CountUses() uint64 { return x.index.CountUses() }

// CacheSize returns the estimated blocks in an endpoint's KV cache, and its capacity.
func (x *Estimator) CacheSize(e *endpoint.Endpoint) (blocks, capacity int) {
	return x.index.CacheSize(ServerOf(e).cache)
}

// A Placement is a prompt that was sent to an endpoint, until it is known whether it is computed.
type Placement struct {
	endpoint *endpoint.Endpoint
	chain    []uint64
	had      int // blocks in the endpoint's cache before
	used     prefixindex.Stamp
}

// RecordPlacement records that the prompt was sent to an endpoint: from now on it counts as cached there. It fills what was expected.
func (x *Estimator) RecordPlacement(p *Prompt, e *endpoint.Endpoint, expected *Expectation) *Placement {
	s := ServerOf(e)
	placed := x.placements.Get().(*Placement)
	placed.endpoint, placed.had = e, p.sentBlocks(s)
	placed.chain = append(placed.chain[:0], p.Chain.Hashes...)
	placed.used = x.index.ReuseChain(s.cache, placed.chain, &expected.reuse)
	expected.setFrom(p, placed)
	x.recent.addPrompt(placed.chain)
	x.publishFact(Event{Kind: EventCached, Endpoint: e, Chain: placed.chain, Tokens: int64(p.Size.Text + p.Size.Other)})
	return placed
}

// RecordMove records that another endpoint than intended serves a placed prompt: the prompt is in its cache instead.
func (x *Estimator) RecordMove(placed *Placement, by *endpoint.Endpoint) {
	if by == placed.endpoint {
		return
	}
	x.index.WithdrawUse(ServerOf(placed.endpoint).cache, placed.chain, placed.had, placed.used)
	placed.endpoint, placed.had = by, 0
	placed.used = x.index.UseChain(ServerOf(by).cache, placed.chain)
	x.publishFact(Event{Kind: EventCached, Endpoint: by, Chain: placed.chain})
}

// ConfirmPlacement ends a placement whose prompt is computed.
func (x *Estimator) ConfirmPlacement(placed *Placement) {
	placed.endpoint = nil
	x.placements.Put(placed)
}

// WithdrawPlacement records that no endpoint has computed a placed prompt, and ends the placement.
func (x *Estimator) WithdrawPlacement(placed *Placement) {
	x.index.WithdrawUse(ServerOf(placed.endpoint).cache, placed.chain, placed.had, placed.used)
	x.ConfirmPlacement(placed)
}

// RecordAnswer records the length of an answer, which is now in the endpoint's cache and has evicted other blocks. Requests of
// other replicas are assumed to get answers of the same length there.
func (x *Estimator) RecordAnswer(e *endpoint.Endpoint, tokens int) {
	x.learnAnswer(e, tokens)
	if tokens > 0 {
		x.publishFact(Event{Kind: EventAnswered, Endpoint: e, Tokens: int64(tokens)})
	}
}

// RecordAnswerTimes records when a complete answer of an endpoint began, had its last content, and ended. Some servers and gateways hold
// back content until the end: the pause before it is no stall, and the end shows that the server works.
func (x *Estimator) RecordAnswerTimes(e *endpoint.Endpoint, began, last, end time.Time) {
	pause := min(end.Sub(last).Seconds(), maxLonger*x.learner.times.remaining()) // a client may read slowly
	x.learner.times.observeAnswer(end.Sub(began).Seconds())
	ServerOf(e).activity.lastMore.Store(endpoint.ToMonotonic(end))
	if heldBack := last.Equal(began); heldBack || !last.IsZero() && pause*pause > x.paces.gap.Load() {
		x.paces.gap.addSample(pause*pause, gapWeight)
	}
}

func (x *Estimator) learnAnswer(e *endpoint.Endpoint, tokens int) {
	if tokens > 0 { // else its length is not known
		x.learner.answer.addSample(float64(min(tokens, maxAnswer)), usualTokensWeight)
	}
	if tokens >= prefixindex.BlockTokens {
		ownShare := max(1-x.share.placedByOthers(), minOurs)
		x.index.OccupyBlocks(ServerOf(e).cache, int(x.tokensToBlocks(float64(tokens)/ownShare)))
	}
}
