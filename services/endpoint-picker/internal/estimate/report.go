package estimate

import (
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// A PromptSize is the size of a prompt before it is converted to the tokens of a model.
type PromptSize struct {
	Model         string  // that the server is asked for
	Text          int     // tokens of texts, at prefixindex.BytesPerToken
	Other         int     // tokens of other parts
	ChainComplete bool    // the chain is the whole prompt
	PerBlock      float64 // tokens of a block of the chain; 0 is prefixindex.BlockTokens
}

// Measure converts the size of a prompt, and returns its tokens.
func (x *Estimator) Measure(s *PromptSize) (tokens int) {
	ratio := x.tokenizers.ratioOf(s.Model)
	all := ratio*float64(s.Text) + float64(s.Other)
	s.PerBlock = prefixindex.BlockTokens * all / float64(max(s.Text+s.Other, 1))
	return max(int(all), min(s.Text+s.Other, 1))
}

// tokensToBlocks converts tokens that belong to no request to blocks of the index.
func (x *Estimator) tokensToBlocks(tokens float64) float64 {
	return tokens / (prefixindex.BlockTokens * x.tokenizers.meanRatio())
}

func (p *Prompt) tokensPerBlock() float64 {
	if p.Size.PerBlock > 0 {
		return p.Size.PerBlock
	}
	return prefixindex.BlockTokens
}

// blocksToTokens converts blocks of the prompt to tokens.
func (p *Prompt) blocksToTokens(blocks int) int { return int(float64(blocks) * p.tokensPerBlock()) }

// cachedTokens returns the tokens of the prompt that a server is expected to have cached: whole blocks of its engine, and never
// the last token, which it computes in any case. What two prompts have in common ends anywhere in a block, so half a block is
// added.
func (p *Prompt) cachedTokens(s *Server) int { return p.toTokens(s, p.cachedBlocks(s)) }

// CachedOn returns the tokens of the prompt that an endpoint is expected to have cached.
func (p *Prompt) CachedOn(e *endpoint.Endpoint) int { return p.cachedTokens(ServerOf(e)) }

// toTokens returns the tokens of which a server saves the computation with some cached blocks of the prompt.
func (p *Prompt) toTokens(s *Server, blocks int) int {
	if blocks == 0 {
		return 0
	}
	if alignment := s.alignment.Load(); blocks != p.last.blocks || alignment != p.last.alignment {
		tokens := uint32(max(min(int((float64(blocks)+0.5)*p.tokensPerBlock()), p.Tokens-1), 0))
		p.last = lastCached{blocks: blocks, alignment: alignment, tokens: int(tokens - tokens%alignment)}
	}
	return p.last.tokens
}

// lastCached is the last result of cachedTokens: servers that have a prompt usually have as much of it.
type lastCached struct {
	blocks, tokens int
	alignment      uint32
}

// setFrom sets what was expected of a placed prompt, except for the part that the index had.
func (e *Expectation) setFrom(p *Prompt, placed *Placement) {
	s := ServerOf(placed.endpoint)
	cached := p.cachedTokens(s)
	prefill := p.prefillFor(placed.endpoint, cached)
	uncached := s.estimator.learner.currentCosts().uncachedTokens(&prefill)
	e.server, e.used, e.size, e.tokens, e.cached = s, placed.used, p.Size, p.Tokens, cached
	e.expected, e.history = max(p.Tokens-int(uncached), cached), p.blocksToTokens(p.History)
	e.size.PerBlock = p.tokensPerBlock()
	e.sent, e.ends = p.toTokens(s, e.reuse.Blocks()), p.toTokens(s, int(e.reuse.Resumable))
	s.fit.recordPlacement(e, placed.chain)
}

// Invalidate records that another server serves the prompt, so nothing of the expectation can be compared.
func (e *Expectation) Invalidate() { e.server = nil }

// RecordFirstContent records that the answer to a placed prompt has begun, so the prompt is computed.
func (x *Estimator) RecordFirstContent(e *Expectation) {
	if e.server != nil {
		e.server.fit.markComputed(e.used)
	}
}

// RecordUsage compares an expectation with the usage of the answer: the tokens of the prompt, and how many of them were cached, -1
// if the server does not report that.
func (x *Estimator) RecordUsage(e *Expectation, prompt, cached int) {
	if prompt <= 0 || prompt > maxPrompt {
		return
	}
	if e.size.Text >= mostlyText*e.size.Other {
		x.tokenizers.observePrompt(e.size.Model, e.size.Text, prompt-e.size.Other)
		x.learner.followRatio(x.tokenizers.meanRatio())
	}
	s := e.server
	if s == nil {
		return
	}
	s.fit.markUsageReported()
	if cached < 0 {
		s.fit.compareOmitted(e, prompt, s.newFitContext())
		s.countSparse()
		return
	}
	if lost := s.fit.compareUsage(e, prompt, cached, s.newFitContext()); lost > 0 {
		x.index.ExpireUntil(s.cache, lost)
	}
	s.countSparse()
	s.resizeCache(0)
}

// countSparse counts the server among those that keep only the ends of prompts, if it does. Picks look these up while there is such a
// server.
func (s *Server) countSparse() {
	endsOnly := s.fit.ends.only.Load()
	if s.isSparse.Load() == endsOnly || s.isSparse.Swap(endsOnly) == endsOnly {
		return
	}
	if endsOnly {
		s.estimator.sparse.Add(1)
	} else {
		s.estimator.sparse.Add(-1)
	}
}

// RecordSampleCount sets what a model's tokens are before its first answer, from the tokens that a server counted in a text of prompts, of
// which the length is given as written in JSON. It returns false, and changes nothing, if no tokenizer makes so few or so many of it.
func (x *Estimator) RecordSampleCount(model string, bytes, tokens int) bool {
	ratio := float64(tokens) * prefixindex.BytesPerToken / float64(bytes)
	if !(ratio >= 1/maxRatio && ratio <= maxRatio) { // also true for NaN
		return false
	}
	x.tokenizers.setSample(model, ratio)
	x.learner.followRatio(x.tokenizers.meanRatio())
	return true
}

// newFitContext returns what the fit of the server needs to know.
func (s *Server) newFitContext() fitContext {
	x := s.estimator
	return fitContext{claimed: s.claimedSize(), alone: x.share.placedByOthers() <= minOthers, sparse: x.sparse.Load() > 0}
}

// observeCache learns from what a page shows of the cache.
func (s *Server) observeCache(next *endpoint.Sample) {
	x := s.estimator
	if next.Alignment > 0 {
		s.alignment.Store(uint32(min(next.Alignment, maxAlignment)))
	}
	r := s.fit.observePage(next, s.newFitContext())
	if r.restarted {
		x.index.ExpireUntil(s.cache, ^prefixindex.Stamp(0))
	}
	if r.text > 0 {
		x.tokenizers.observePrompts(r.text, r.textCount)
		x.learner.followRatio(x.tokenizers.meanRatio())
	}
	s.countSparse()
	s.resizeCache(next.Blocks)
}
