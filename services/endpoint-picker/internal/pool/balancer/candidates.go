package balancer

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool/datastore"
	"fairlead.dev/services/endpoint-picker/internal/pool/outlier"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// maxBlocks is the default limit on the part of a prompt to look up in caches.
	maxBlocks = prefixindex.DefaultMatchTokens / prefixindex.BlockTokens
	// mediaBlocks is the part of a prompt to look up even if its body has less text than that, because an image of a few bytes counts as
	// hundreds of tokens (guarded): 64 KiB of hashes.
	mediaBlocks = (128 << 10) / prefixindex.BlockTokens
	// beginningBlocks is the part of a prompt that identifies its kind: 128 tokens. Later tokens may differ between requests
	// of the same kind.
	beginningBlocks = 8
)

// pick picks the endpoint of one request. It implements exchange.Pick. Its buffers are reused by later picks.
type pick struct {
	balancer       *Balancer
	requestContext *exchange.RequestContext
	config         *pluginconfig.Config // in force when the pick began
	random         uint64
	snapshot       *datastore.Snapshot
	dispatched     bool // see dispatchedCount

	incoming   api.Request
	chain      prefixindex.Chain
	turns      api.Turns       // in blocks
	prompt     estimate.Prompt // the same for the estimator
	estimated  bool            // the profile reads estimates
	textBuffer [512]byte       // buffer for texts that are not in their shortest spelling
	request    scheduling.Request
	lacks      outlier.Lacks // endpoints that have others than the requested model only
	paces      estimate.Paces
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

// parseRequest parses the request and a number of blocks of its prompt. A request of an unknown API has no prompt.
func (p *pick) parseRequest(rc *exchange.RequestContext, blocks int) error {
	r := &p.incoming
	if err := r.ParseIncoming(p.config.Parsers, rc.Incoming, blocks*prefixindex.BlockTokens); err != nil {
		return err
	}
	rc.Model = r.Model
	rc.Streaming, rc.UsageFormat, rc.PromptTokens, rc.FixedTokens = r.Stream, r.API.Usage, 0, 0
	rc.Generates, rc.Inference = r.API.Generates, r.IsInference()
	return nil
}

// countTokens estimates the tokens of the prompt for the target model.
func (p *pick) countTokens(rc *exchange.RequestContext) {
	r := &p.incoming
	if !r.API.Generates {
		p.prompt.Size = estimate.PromptSize{}
		return
	}
	if rc.Blind {
		r.Tokens = p.balancer.promptClaims.limitTokens(r.Tokens, len(rc.Incoming.Body))
	}
	p.prompt.Size = estimate.PromptSize{Model: rc.Target, Text: r.Text, Other: r.Tokens - r.Text}
	rc.Subject = prefixindex.Seed(rc.Target, r.PathHash)
	rc.PromptTokens, rc.FixedTokens = p.balancer.estimator.Measure(&p.prompt.Size), r.Tokens
}

// lookupBlocks returns the maximum number of blocks of a prompt to look up in caches. 0 tokens mean the default.
func lookupBlocks(maxTokens int) int {
	if maxTokens > 0 {
		return maxTokens / prefixindex.BlockTokens
	}
	return maxBlocks
}

// promptBlocks returns the maximum number of blocks of a prompt to read. A record has as many as the default, whatever is looked up.
func (b *Balancer) promptBlocks(maxTokens int) int {
	if b.options.Prefixes {
		return max(lookupBlocks(maxTokens), maxBlocks)
	}
	return lookupBlocks(maxTokens)
}

// hashPrompt divides the prompt into blocks and hashes them.
func (p *pick) hashPrompt(rc *exchange.RequestContext, maxTokens int) {
	r, body, blocks := &p.incoming, rc.Incoming.Body, p.balancer.promptBlocks(maxTokens)
	if rc.PromptTokens == 0 {
		blocks = 0
	}
	p.turns = api.Turns{}
	if d := rc.Incoming.Digest; d != nil {
		p.chain.Reset(d.ChainSeed(rc.Target), blocks)
		p.turns = d.HashBlocks(&p.chain)
		p.truncateBlocks(r.Tokens / prefixindex.BlockTokens)
		return
	}
	blocks = min(blocks, max(prefixindex.BlocksOf(len(body)), mediaBlocks))
	p.chain.Reset(prefixindex.Seed(rc.Target, r.Salt), blocks)
	if blocks == 0 {
		return
	}
	for _, part := range r.Head {
		p.writePart(body, part)
	}
	p.markTurn(0, r.Turns)
	for i, part := range r.Prompt {
		p.writePart(body, part)
		p.markTurn(i+1, r.Turns)
	}
	if p.balancer.options.Prefixes {
		rc.Prefixes = appendPrefixes(nil, &p.chain, rc.FixedTokens)
		p.truncateBlocks(lookupBlocks(maxTokens))
	}
	p.prompt.Size.ChainComplete = r.OnePrompt() && len(p.chain.Hashes) < lookupBlocks(maxTokens)
}

// truncateBlocks discards all blocks after a number of blocks.
func (p *pick) truncateBlocks(blocks int) {
	p.chain.Truncate(blocks)
	p.turns = api.Turns{Opening: min(p.turns.Opening, blocks), Asked: min(p.turns.Asked, blocks), History: min(p.turns.History, blocks)}
}

// prefixBlocks is the number of blocks of one prefix in a record.
const prefixBlocks = exchange.PrefixTokens / prefixindex.BlockTokens

// appendPrefixes appends the hashes of a prompt's prefixes: at most 1025, or eight kilobytes.
func appendPrefixes(to []uint64, c *prefixindex.Chain, tokens int) []uint64 {
	count := min(len(c.Hashes), maxBlocks, tokens/prefixindex.BlockTokens) / prefixBlocks
	to = slices.Grow(to, count+1)
	for i := range count {
		to = append(to, c.Hashes[(i+1)*prefixBlocks-1])
	}
	if sum, covered := c.Sum(); covered >= tokens && exchange.PrefixCount(tokens) == count+1 {
		to = append(to, sum)
	}
	return to
}

// writePart appends a part of the prompt to the chain.
func (p *pick) writePart(body []byte, part api.Part) {
	content := body[part.From:part.To]
	switch part.Kind {
	case api.Text:
		if part.IsShortest() {
			p.chain.Write(content)
		} else {
			p.writeShort(content)
		}
	case api.Value:
		p.chain.WriteValue(part.Hash, int(part.Size))
	case api.IDs:
		p.chain.WriteIDs(content)
	case api.PackedIDs:
		p.chain.WritePacked(content)
	case api.Media:
		p.chain.WriteValue(part.Hash, int(part.Size)*prefixindex.BytesPerToken)
	}
}

// writeShort appends a text to the chain, in its shortest spelling.
func (p *pick) writeShort(text []byte) {
	for piece := range jsonscan.Short(text, p.textBuffer[:0]) {
		p.chain.Write(piece)
	}
}

// markTurn records the length of the chain after a number of parts of the prompt.
func (p *pick) markTurn(parts int, t api.Turns) {
	if t.History == 0 {
		return
	}
	blocks := len(p.chain.Hashes)
	if parts == t.Opening {
		p.turns.Opening = blocks
	}
	if parts == t.Asked {
		p.turns.Asked = blocks
	}
	if parts == t.History {
		p.turns.History = blocks
	}
}

// reset discards what a pool must not keep: the values of the request, which are as long as its client likes, and large
// buffers. The other buffers have the size of the pool of endpoints.
func (p *pick) reset() {
	p.incoming.DropLarge()
	p.chain.DropLarge()
	p.balancer, p.requestContext, p.config, p.snapshot, p.lacks = nil, nil, nil, nil, nil
	p.request, p.prompt.Size = scheduling.Request{}, estimate.PromptSize{}
}

// describeRequest provides the properties of the request to the scheduler.
func (p *pick) describeRequest(rc *exchange.RequestContext, random uint64) {
	p.request = scheduling.Request{
		Now: rc.ArrivalTime, Random: random, Subset: rc.Subset, Model: rc.Target, Tokens: rc.PromptTokens, Headers: rc.Incoming.Headers,
	}
	if n := min(len(p.chain.Hashes), beginningBlocks); n > 0 {
		p.request.Prefix = p.chain.Hashes[n-1]
	}
}

// lookupPrompt provides the prompt to the estimator.
func (p *pick) lookupPrompt(x *estimate.Estimator, endpoints []*endpoint.Endpoint) {
	p.prompt.Chain, p.prompt.Tokens = &p.chain, p.request.Tokens
	if !p.estimated {
		p.prompt.SkipLookup()
		return
	}
	p.prompt.Conversation = estimate.Conversation{Opening: p.turns.Opening, Asked: p.turns.Asked, History: p.turns.History}
	x.Lookup(&p.prompt, endpoints, p.request.Now)
}

// acquireLease counts the request on its endpoint.
func (p *pick) acquireLease(rc *exchange.RequestContext) *endpoint.Lease {
	switch {
	case !p.incoming.API.Generates:
		return rc.Endpoint.Acquire()
	case p.incoming.Stream && rc.LateFirst:
		return p.prompt.PlaceOn(rc.Endpoint, p.request.Now, estimate.Late)
	case p.incoming.Stream:
		return p.prompt.PlaceOn(rc.Endpoint, p.request.Now, estimate.Streamed)
	default:
		return p.prompt.PlaceOn(rc.Endpoint, p.request.Now, estimate.Whole)
	}
}

// A usability says how good a reason there is to choose an endpoint.
type usability uint8

const (
	excluded usability = iota // by the gateway
	unusable                  // ejected, or without the model
	suspect                   // seems to have stopped
	working
)

// collectCandidates fills the list of candidates with the working endpoints that the gateway allows, among those that the profile may
// choose. Those that seem to have stopped are candidates only if all others are ejected or lack the model. If none works for the requested
// model, all of them are candidates.
func (p *pick) collectCandidates(endpoints []*endpoint.Endpoint, indexes []int) error {
	p.lacks, p.paces = p.balancer.outliers.EndpointsLacking(p.requestContext.Subject), p.balancer.estimator.Paces()
	for least := working; least > excluded; least-- {
		if p.addCandidates(endpoints, indexes, least); len(p.candidates) > 0 {
			return nil
		}
	}
	if slices.ContainsFunc(endpoints, func(e *endpoint.Endpoint) bool { return p.request.Subset.Contains(e.Identity().Address) }) {
		return scheduling.ErrFiltered
	}
	return scheduling.ErrNoneInSubset
}

// addCandidates fills the list of candidates with the endpoints of at least a standing.
func (p *pick) addCandidates(endpoints []*endpoint.Endpoint, indexes []int, least usability) {
	p.candidates = slices.Grow(p.candidates[:0], len(indexes))
	now := endpoint.ToMonotonic(p.request.Now)
	for _, i := range indexes {
		if e := endpoints[i]; p.usabilityOf(e, now) >= least {
			p.addCandidate(i, e)
		}
	}
}

func (p *pick) usabilityOf(e *endpoint.Endpoint, now endpoint.Monotonic) usability {
	switch {
	case !p.request.Subset.Contains(e.Identity().Address):
		return excluded
	case !e.Health().IsUsable(p.request.Now) || p.lacks != nil && !p.lacks.CanUse(e, p.request.Now):
		return unusable
	case p.incoming.Stored == 0 && estimate.ServerOf(e).IsSuspect(now, &p.paces): // otherwise perhaps only this server can answer
		return suspect
	}
	return working
}

// eligibleEndpoints are the endpoints of a snapshot that a profile may choose.
type eligibleEndpoints struct {
	snapshot *datastore.Snapshot
	profile  *scheduling.Profile
	indexes  []int
}

// eligibleOf returns the indexes of the endpoints that a profile may choose. It computes them once for each snapshot.
func (b *Balancer) eligibleOf(s *datastore.Snapshot, p *scheduling.Profile) []int {
	if last := b.lastEligible.Load(); last != nil && last.snapshot == s && last.profile == p {
		return last.indexes
	}
	indexes := make([]int, 0, len(s.Endpoints))
	for i, e := range s.Endpoints {
		if p.Eligible(e.Server()) {
			indexes = append(indexes, i)
		}
	}
	b.lastEligible.Store(&eligibleEndpoints{snapshot: s, profile: p, indexes: indexes})
	return indexes
}

// addCandidate adds an endpoint to the list, described from one reading of its load.
func (p *pick) addCandidate(i int, e *endpoint.Endpoint) {
	e.ExpireHeld(p.request.Now, p.paces.First)
	load := e.Load()
	p.candidates = appendCandidate(p.candidates, i, e, &load)
	if p.estimated {
		estimated, c := p.prompt.Estimate(e, &load), &p.candidates[len(p.candidates)-1]
		c.Matched, c.Load.Tokens = estimated.Cached, estimated.Backlog
		c.Load.Wait, c.Load.Delay = estimated.TTFT, estimated.Delay
	}
}

// appendCandidate appends an endpoint without estimates for a request. A candidate is large: it is written where it stays.
func appendCandidate(to []scheduling.Candidate, i int, e *endpoint.Endpoint, load *endpoint.Load) []scheduling.Candidate {
	to = slices.Grow(to, 1)[:len(to)+1]
	c := &to[len(to)-1]
	*c = scheduling.Candidate{Index: i, Server: e.Server()}
	l := &c.Load
	l.Requests, l.Open, l.Held = load.Requests, load.Open, load.Held
	l.Waiting, l.Running, l.KVUsage = load.Waiting, load.Running, load.KVUsage
	l.Sampled, l.Failing, l.Page = load.At, load.Failing, load.Page
	return to
}
