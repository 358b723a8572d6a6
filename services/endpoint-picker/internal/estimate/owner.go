package estimate

import (
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// A Conversation contains lengths of a prompt's parts, in blocks.
type Conversation struct {
	Opening int // up to the end of its first prompt; 0 if it has one turn
	Asked   int // up to the end of the last prompt before this one
	History int // the same, and its answer; 0 if it has one turn
}

// A Prompt is the prompt of one pick in the view of the estimator. The caller sets the exported fields before Lookup. It can be
// reused.
type Prompt struct {
	Chain  *prefixindex.Chain
	Tokens int // of the prompt, approximately
	Size   PromptSize
	Conversation

	arrival    arrival
	matched    []int // blocks that were sent there before, indexed by the slot of the cache
	resumable  []int // those of them that a server can use that keeps only ends; empty if no server does
	last       lastCached
	placedHere bool               // the last prompt of the conversation was placed by this picker
	owner      *endpoint.Endpoint // where other replicas are expected to send prompts with the same beginning
	sharing    float64            // fraction of the tokens that other replicas recompute if the prompt is not on its owner
}

// Lookup finds the servers with the prompt in their caches, and the owner of the prompt.
func (x *Estimator) Lookup(p *Prompt, endpoints []*endpoint.Endpoint, now time.Time) {
	p.arrival, p.last = x.arrivalAt(endpoint.ToMonotonic(now)), lastCached{}
	p.matchCaches(x)
	x.reuse.observePrompt(p.blocksToTokens(p.longestMatch()), p.blocksToTokens(p.History), p.Tokens)
	p.owner, p.placedHere, p.sharing = nil, false, 0
	if others := 1 - p.arrival.ours; others > minOthers {
		p.placedHere = x.recent.containsPrompt(p.Chain.Hashes, p.Asked)
		p.findOwner(endpoints, others, &x.reuse, now)
	}
}

// SkipLookup replaces Lookup if nobody needs estimates: the prompt counts as uncached wherever it is placed.
func (p *Prompt) SkipLookup() {
	p.matched, p.resumable, p.owner, p.placedHere, p.sharing = p.matched[:0], p.resumable[:0], nil, false, 0
}

// matchCaches looks up the prompt in all caches. A pick whose snapshot still has a removed endpoint may, for that endpoint, see the
// blocks of the cache that got its slot since.
func (p *Prompt) matchCaches(x *Estimator) {
	n := x.index.Slots()
	p.matched, p.resumable = slices.Grow(p.matched[:0], n)[:n], p.resumable[:0]
	clear(p.matched)
	if x.sparse.Load() > 0 {
		p.resumable = slices.Grow(p.resumable, n)[:n]
		clear(p.resumable)
	}
	x.index.MatchChain(p.Chain.Hashes, p.matched, p.resumable)
}

// longestMatch returns the number of the prompt's blocks that are in any cache.
func (p *Prompt) longestMatch() int {
	blocks := 0
	for _, n := range p.matched {
		blocks = max(blocks, n)
	}
	return blocks
}

// sentBlocks returns the number of the prompt's blocks that were sent to a server before, and that have room in its cache.
func (p *Prompt) sentBlocks(s *Server) int { return blocksOf(p.matched, s) }

// cachedBlocks returns the number of the prompt's blocks that a server has cached.
func (p *Prompt) cachedBlocks(s *Server) int {
	if p.keepsEndsOnly(s) {
		return blocksOf(p.resumable, s)
	}
	return blocksOf(p.matched, s)
}

// keepsEndsOnly reports whether a server keeps only the ends of prompts. Most pools have none.
func (p *Prompt) keepsEndsOnly(s *Server) bool { return len(p.resumable) > 0 && s.fit.ends.only.Load() }

func blocksOf(list []int, s *Server) int {
	if slot := s.cache.Slot(); slot < len(list) {
		return list[slot]
	}
	return 0
}

// findOwner finds the owner of the prompt: the first endpoint in the rendezvous order of the first block that few other
// prompts share. Other replicas of the picker find the same owner, and so does this one after a restart: they agree without
// communication, and find the prefixes that another replica placed. The hit rate there is learned with the costs.
//
// The block for this order is not before the end of the first prompt if conversations are expected to continue. So a
// conversation has the same owner in all its turns, and not the owner of its system prompt. A history is probably there,
// because some replica has placed it; if this replica did, it knows the location. This hit rate is learned separately.
//
// Other replicas find a prompt only if it went to its owner. They request prompts that this replica placed, and that are in
// no cache any more, only in the next turn.
func (p *Prompt) findOwner(endpoints []*endpoint.Endpoint, others float64, r *reuseStats, now time.Time) {
	p.sharing = others * r.recomputationRate()
	if p.placedHere {
		p.sharing = others * r.continuationRate()
	}
	chain, shared := p.Chain.Hashes, p.sharedBlocks()
	if r.isConversational() {
		shared = max(shared, p.openingBlocks()-1)
	}
	if shared >= len(chain) {
		return
	}
	block, highest := chain[shared], uint64(0)
	for _, e := range endpoints {
		if rank := endpoint.RankServer(block, e.NameHash()); rank >= highest && e.Health().IsUsable(now) {
			p.owner, highest = e, rank
		}
	}
}

// openingBlocks is the length of the part that all turns of a conversation share.
func (p *Prompt) openingBlocks() int {
	if p.History == 0 {
		return len(p.Chain.Hashes) // it has one turn so far
	}
	return p.Opening
}

// sharedBlocks returns the number of blocks that are in too many caches to indicate where similar prompts went: those that a
// third endpoint has too. A conversation is in one cache, or in two if it moved.
func (p *Prompt) sharedBlocks() int {
	var first, second, third int
	for _, blocks := range p.matched {
		switch {
		case blocks > first:
			first, second, third = blocks, first, second
		case blocks > second:
			second, third = blocks, second
		case blocks > third:
			third = blocks
		}
	}
	return third
}

// An Estimate is the prediction for a prompt on one endpoint.
type Estimate struct {
	TTFT    float64 // expected seconds to first token; above 0
	Delay   float64 // seconds of delay of this request and those that are there, by each other, as far as they count
	Cached  int     // tokens of the prompt that were sent there before and have room in its KV cache
	Backlog float64 // uncached prompt tokens placed there that are not computed yet
}

// Estimate returns the prediction for an endpoint with the given load, after Lookup.
func (p *Prompt) Estimate(e *endpoint.Endpoint, l *endpoint.Load) Estimate {
	s, costs := ServerOf(e), p.arrival.costs
	cached, saved := p.cachedTokens(s), 0.0
	p.arrival.setPrefill(p.prefillFor(e, cached))
	ttft, sent := s.estimateTTFT(&p.arrival, l), cached
	if e == p.owner {
		saved = p.sharing * float64(p.arrival.prefill.Tokens)
	}
	if p.keepsEndsOnly(s) {
		// Once computed here again, it is there for the next prompt. Elsewhere it would have to be computed twice.
		sent = p.toTokens(s, p.sentBlocks(s))
		saved += float64(sent - cached)
	}
	if saved > 0 {
		ttft = max(ttft-s.slowdownFactor()*costs.PerToken*saved, costs.Base)
	}
	return Estimate{TTFT: ttft, Delay: s.mutualDelay(&p.arrival, l), Cached: sent, Backlog: float64(s.Backlog())}
}

// prefillFor describes the work for the prompt on an endpoint with a part of it in its cache.
func (p *Prompt) prefillFor(e *endpoint.Endpoint, cached int) Prefill {
	f := Prefill{Tokens: max(p.Tokens-cached, 1), Context: cached}
	switch {
	case p.answeredLast(ServerOf(e)):
		f.History = max(p.blocksToTokens(p.History)-cached, 0)
	case e != p.owner:
	case p.placedHere: // the index knows its location
	case p.History > 0:
		f.History = max(p.blocksToTokens(p.History)-cached, 0)
	default:
		f.Expected = f.Tokens
	}
	return f
}

// answeredLast reports whether a server has computed the last prompt of the conversation, so that the answer is probably in its cache, too,
// unless that keeps the ends of prompts only. The index contains prompts only.
func (p *Prompt) answeredLast(s *Server) bool {
	return p.History > 0 && p.Asked > 0 && p.cachedBlocks(s) >= p.Asked && !p.keepsEndsOnly(s)
}

// AnswerMode is how the answer to a request comes.
type AnswerMode uint8

// The forms of answers.
const (
	Streamed AnswerMode = iota // its first piece is its first token
	Whole                      // in one piece
	Late                       // streamed, but its first token becomes known after its end, if at all
)

// PlaceOn counts the request of the prompt on an endpoint, after Lookup.
func (p *Prompt) PlaceOn(e *endpoint.Endpoint, now time.Time, answer AnswerMode) *endpoint.Lease {
	s := ServerOf(e)
	return s.acquireLease(e, now, p.prefillFor(e, p.cachedTokens(s)), answer)
}
