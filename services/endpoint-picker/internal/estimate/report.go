package estimate

import (
	"math"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// A PromptSize is the size of a prompt before it is converted to the tokens of a model.
type PromptSize struct {
	Model    string  // that the server is asked for
	Text     int     // tokens of texts, at prefixindex.BytesPerToken
	Other    int     // tokens of other parts
	Whole    bool    // the chain is the whole prompt
	PerBlock float64 // tokens of a block of the chain; 0 is prefixindex.BlockTokens
}

// Measure converts the size of a prompt, and returns its tokens.
func (x *Estimator) Measure(s *PromptSize) (tokens int) {
	ratio := x.tokenizers.of(s.Model)
	all := ratio*float64(s.Text) + float64(s.Other)
	s.PerBlock = prefixindex.BlockTokens * all / float64(max(s.Text+s.Other, 1))
	return max(int(all), min(s.Text+s.Other, 1))
}

// blocks converts tokens that belong to no request to blocks of the index.
func (x *Estimator) blocks(tokens float64) float64 {
	return tokens / (prefixindex.BlockTokens * x.tokenizers.pool())
}

func (p *Prompt) perBlock() float64 {
	if p.Size.PerBlock > 0 {
		return p.Size.PerBlock
	}
	return prefixindex.BlockTokens
}

// tokensOf converts blocks of the prompt to tokens.
func (p *Prompt) tokensOf(blocks int) int { return int(float64(blocks) * p.perBlock()) }

// cachedTokens returns the tokens of the prompt that a server is expected to have cached: whole blocks of its engine, and never
// the last token, which it computes in any case. What two prompts have in common ends anywhere in a block, so half a block is
// added.
func (p *Prompt) cachedTokens(s *Server) int {
	blocks := p.cachedBlocks(s)
	if blocks == 0 {
		return 0
	}
	if alignment := s.alignment.Load(); blocks != p.last.blocks || alignment != p.last.alignment {
		tokens := uint32(max(min(int((float64(blocks)+0.5)*p.perBlock()), p.Tokens-1), 0))
		p.last = lastCached{blocks: blocks, alignment: alignment, tokens: int(tokens - tokens%alignment)}
	}
	return p.last.tokens
}

// lastCached is the last result of cachedTokens: servers that have a prompt usually have as much of it.
type lastCached struct {
	blocks, tokens int
	alignment      uint32
}

// fill sets what was expected of a placed prompt, except for the part that the index had.
func (e *Expectation) fill(p *Prompt, placed *Placement) {
	s := ServerOf(placed.endpoint)
	cached := p.cachedTokens(s)
	uncached := s.estimator.learner.Costs().Uncached(p.prefill(placed.endpoint, cached))
	e.server, e.used, e.model, e.text, e.other = s, placed.used, p.Size.Model, bounded(p.Size.Text), bounded(p.Size.Other)
	e.tokens, e.cached = bounded(p.Tokens), bounded(cached)
	e.expected, e.history = bounded(max(p.Tokens-int(uncached), cached)), bounded(p.tokensOf(p.History))
	e.whole, e.perBlock = p.Size.Whole, p.perBlock()
	s.fit.placed(e, placed.chain)
}

// Moved records that another server serves the prompt, so nothing of the expectation can be compared.
func (e *Expectation) Moved() { e.server = nil }

// bounded converts a number of tokens, which may be larger than the range if a client sends many media.
func bounded(tokens int) int32 { return int32(min(tokens, math.MaxInt32)) }

// Began records that the answer to a placed prompt has begun, so the prompt is computed.
func (x *Estimator) Began(e *Expectation) {
	if e.server != nil {
		e.server.fit.began(e.used)
	}
}

// Reported compares an expectation with the usage of the answer: the tokens of the prompt, and how many of them were cached, -1
// if the server does not report that.
func (x *Estimator) Reported(e *Expectation, prompt, cached int) {
	if prompt <= 0 || prompt > maxPrompt {
		return
	}
	if e.text >= mostlyText*e.other {
		x.tokenizers.observe(e.model, int(e.text), prompt-int(e.other))
	}
	s := e.server
	if s == nil {
		return
	}
	s.fit.counted()
	if cached < 0 {
		return
	}
	if lost := s.fit.report(e, prompt, cached, s.pool()); lost > 0 {
		x.index.Expire(s.cache, lost)
	}
	s.resize(0)
}

// SampleCounted sets what a model's tokens are before its first answer, from the tokens that a server counted in a text of prompts, of
// which the length is given as written in JSON. It returns false, and changes nothing, if no tokenizer makes so few or so many of it.
func (x *Estimator) SampleCounted(model string, bytes, tokens int) bool {
	ratio := float64(tokens) * prefixindex.BytesPerToken / float64(bytes)
	if !(ratio >= 1/maxRatio && ratio <= maxRatio) { // also true for NaN
		return false
	}
	x.tokenizers.sample(model, ratio)
	return true
}

// pool returns what the fit of the server needs to know.
func (s *Server) pool() pool {
	return pool{claimed: s.claimedSize(), alone: s.estimator.share.placedByOthers() <= minOthers}
}

// observeCache learns from what a page shows of the cache.
func (s *Server) observeCache(next *endpoint.Sample) {
	x := s.estimator
	if next.Alignment > 0 {
		s.alignment.Store(uint32(min(next.Alignment, maxAlignment)))
	}
	r := s.fit.page(next, s.pool())
	if r.restarted {
		x.index.Expire(s.cache, ^prefixindex.Stamp(0))
	}
	if r.text > 0 {
		x.tokenizers.observeMany(r.text, r.textCount)
	}
	s.resize(next.Blocks)
}
