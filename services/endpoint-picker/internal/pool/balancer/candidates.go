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

// pickState is the state of one pick, from PlaceRequest until its sender has the endpoint. It implements exchange.PendingPick. Its buffers
// are reused by later picks.
type pickState struct {
	balancer   *Balancer
	input      *exchange.PickInput // nil after PlaceRequest
	result     exchange.PickResult
	config     *pluginconfig.Config // in force when the pick began
	random     uint64
	snapshot   *datastore.Snapshot
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
	lacks      outlier.Lacks // endpoints that have others than the requested model only
	paces      estimate.Paces
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
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

// parseRequest parses the request and a number of blocks of its prompt. A request of an unknown API has no prompt.
func (p *pickState) parseRequest(blocks int) error {
	r, result := &p.incoming, &p.result
	if err := r.ParseIncoming(p.config.Parsers, p.input.Incoming, blocks*prefixindex.BlockTokens); err != nil {
		return err
	}
	result.Model, result.Streaming, result.UsageFormat = r.Model, r.Stream, r.API.Usage
	result.Generates, result.Inference = r.API.Generates, r.IsInference()
	return nil
}

// countTokens estimates the tokens of the prompt for the target model.
func (p *pickState) countTokens() {
	r, result := &p.incoming, &p.result
	if !r.API.Generates {
		p.prompt.Size = estimate.PromptSize{}
		return
	}
	if p.claimed = p.input.Blind; p.claimed {
		r.Tokens = p.balancer.promptClaims.limitTokens(r.Tokens, len(p.input.Incoming.Body))
	}
	p.prompt.Size = estimate.PromptSize{Model: result.Target, Text: r.Text, Other: r.Tokens - r.Text}
	p.subject = prefixindex.Seed(result.Target, r.PathHash)
	result.PromptTokens, result.FixedTokens = p.balancer.estimator.Measure(&p.prompt.Size), r.Tokens
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
func (p *pickState) hashPrompt(maxTokens int) {
	r, in, target, blocks := &p.incoming, &p.input.Incoming, p.result.Target, p.balancer.promptBlocks(maxTokens)
	if p.result.PromptTokens == 0 {
		blocks = 0
	}
	p.turns = api.Turns{}
	if d := in.Digest; d != nil {
		p.chain.Reset(d.ChainSeed(target), blocks)
		p.turns = d.HashBlocks(&p.chain)
		p.truncateBlocks(r.Tokens / prefixindex.BlockTokens)
		return
	}
	blocks = min(blocks, max(prefixindex.BlocksOf(len(in.Body)), mediaBlocks))
	p.chain.Reset(prefixindex.Seed(target, r.Salt), blocks)
	if blocks == 0 {
		return
	}
	for _, part := range r.Head {
		p.writePart(in.Body, part)
	}
	p.markTurn(0, r.Turns)
	for i, part := range r.Prompt {
		p.writePart(in.Body, part)
		p.markTurn(i+1, r.Turns)
	}
	if p.balancer.options.Prefixes {
		p.result.Prefixes = appendPrefixes(nil, &p.chain, p.result.FixedTokens)
		p.truncateBlocks(lookupBlocks(maxTokens))
	}
	p.prompt.Size.ChainComplete = r.OnePrompt() && len(p.chain.Hashes) < lookupBlocks(maxTokens)
}

// truncateBlocks discards all blocks after a number of blocks.
func (p *pickState) truncateBlocks(blocks int) {
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
func (p *pickState) writePart(body []byte, part api.Part) {
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
func (p *pickState) writeShort(text []byte) {
	for piece := range jsonscan.Short(text, p.textBuffer[:0]) {
		p.chain.Write(piece)
	}
}

// markTurn records the length of the chain after a number of parts of the prompt.
func (p *pickState) markTurn(parts int, t api.Turns) {
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
func (p *pickState) reset() {
	p.incoming.DropLarge()
	p.chain.DropLarge()
	p.balancer, p.config, p.snapshot, p.lacks = nil, nil, nil, nil
	p.result, p.request, p.prompt.Size = exchange.PickResult{}, scheduling.Request{}, estimate.PromptSize{}
	p.claimed, p.subject = false, 0
}

// describeRequest provides the properties of the request to the scheduler.
func (p *pickState) describeRequest() {
	p.request = scheduling.Request{
		Now: p.input.ArrivalTime, Random: p.random, Subset: p.input.Subset, Headers: p.input.Incoming.Headers,
		Model: p.result.Target, Tokens: p.result.PromptTokens,
	}
	if n := min(len(p.chain.Hashes), beginningBlocks); n > 0 {
		p.request.Prefix = p.chain.Hashes[n-1]
	}
}

// lookupPrompt provides the prompt to the estimator.
func (p *pickState) lookupPrompt(x *estimate.Estimator, endpoints []*endpoint.Endpoint) {
	p.prompt.Chain, p.prompt.Tokens = &p.chain, p.request.Tokens
	if !p.estimated {
		p.prompt.SkipLookup()
		return
	}
	p.prompt.Conversation = estimate.Conversation{Opening: p.turns.Opening, Asked: p.turns.Asked, History: p.turns.History}
	x.Lookup(&p.prompt, endpoints, p.request.Now)
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
func (p *pickState) collectCandidates(endpoints []*endpoint.Endpoint, indexes []int) error {
	p.lacks, p.paces = p.balancer.outliers.EndpointsLacking(p.subject), p.balancer.estimator.Paces()
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
func (p *pickState) addCandidates(endpoints []*endpoint.Endpoint, indexes []int, least usability) {
	p.candidates = slices.Grow(p.candidates[:0], len(indexes))
	now := endpoint.ToMonotonic(p.request.Now)
	for _, i := range indexes {
		if e := endpoints[i]; p.usabilityOf(e, now) >= least {
			p.addCandidate(i, e)
		}
	}
}

func (p *pickState) usabilityOf(e *endpoint.Endpoint, now endpoint.Monotonic) usability {
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
func (p *pickState) addCandidate(i int, e *endpoint.Endpoint) {
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
