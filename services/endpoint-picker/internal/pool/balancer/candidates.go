package balancer

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/monotonic"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool/datastore"
	"fairlead.dev/services/endpoint-picker/internal/pool/outlier"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/recording"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// maxBlocks is the default limit on the part of a prompt to look up in caches.
	maxBlocks = prefixindex.DefaultMatchTokens / prefixindex.BlockTokens
	// mediaBlocks is the part of a prompt to look up even if its body has less text than that, because an image of a few bytes counts
	// as hundreds of tokens (guarded): 64 KiB of hashes. At half, long chats with images match less of their caches; at double, a
	// body of 64 KiB takes nine times its size in a pick.
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
	dispatched     bool // see leaving

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
func (m *pick) parseRequest(x *exchange.RequestContext, blocks int) error {
	r := &m.incoming
	if err := r.Parse(m.config.Parsers, x.Incoming, blocks*prefixindex.BlockTokens); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	x.Model = r.Model
	x.Streaming, x.UsageFormat, x.PromptTokens, x.FixedTokens = r.Stream, r.API.Usage, 0, 0
	x.Generates, x.Inference = r.API.Generates, r.IsInference()
	return nil
}

// countTokens estimates the tokens of the prompt for the target model.
func (m *pick) countTokens(x *exchange.RequestContext) {
	r := &m.incoming
	if !r.API.Generates {
		m.prompt.Size = estimate.PromptSize{}
		return
	}
	if x.Blind {
		r.Tokens = m.balancer.promptClaims.limitTokens(r.Tokens, len(x.Incoming.Body))
	}
	m.prompt.Size = estimate.PromptSize{Model: x.Target, Text: r.Text, Other: r.Tokens - r.Text}
	x.Subject = prefixindex.Seed(x.Target, r.PathHash)
	x.PromptTokens, x.FixedTokens = m.balancer.estimator.Measure(&m.prompt.Size), r.Tokens
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
func (m *pick) hashPrompt(x *exchange.RequestContext, maxTokens int) {
	r, body, blocks := &m.incoming, x.Incoming.Body, m.balancer.promptBlocks(maxTokens)
	if x.PromptTokens == 0 {
		blocks = 0
	}
	m.turns = api.Turns{}
	if d := x.Incoming.Digest; d != nil {
		m.chain.Reset(d.ChainSeed(x.Target), blocks)
		m.turns = d.HashBlocks(&m.chain)
		m.truncateBlocks(r.Tokens / prefixindex.BlockTokens)
		return
	}
	blocks = min(blocks, max(prefixindex.BlocksOf(len(body)), mediaBlocks))
	m.chain.Reset(prefixindex.Seed(x.Target, r.Salt), blocks)
	if blocks == 0 {
		return
	}
	for _, p := range r.Head {
		m.writePart(body, p)
	}
	m.markTurn(0, r.Turns)
	for i, p := range r.Prompt {
		m.writePart(body, p)
		m.markTurn(i+1, r.Turns)
	}
	if m.balancer.options.Prefixes {
		x.Prefixes = appendPrefixes(nil, &m.chain, x.FixedTokens)
		m.truncateBlocks(lookupBlocks(maxTokens))
	}
	m.prompt.Size.Whole = r.OnePrompt() && len(m.chain.Hashes) < lookupBlocks(maxTokens)
}

// truncateBlocks discards all blocks after a number of blocks.
func (m *pick) truncateBlocks(blocks int) {
	m.chain.Truncate(blocks)
	m.turns = api.Turns{Opening: min(m.turns.Opening, blocks), Asked: min(m.turns.Asked, blocks), History: min(m.turns.History, blocks)}
}

// prefixBlocks is the number of blocks of one prefix in a record.
const prefixBlocks = recording.BlockTokens / prefixindex.BlockTokens

// appendPrefixes appends the hashes of a prompt's prefixes: at most 1025, or eight kilobytes.
func appendPrefixes(to []uint64, c *prefixindex.Chain, tokens int) []uint64 {
	whole := min(len(c.Hashes), maxBlocks, tokens/prefixindex.BlockTokens) / prefixBlocks
	to = slices.Grow(to, whole+1)
	for i := range whole {
		to = append(to, c.Hashes[(i+1)*prefixBlocks-1])
	}
	if sum, covered := c.Sum(); covered >= tokens && recording.BlockCount(tokens) == whole+1 {
		to = append(to, sum)
	}
	return to
}

// writePart appends a part of the prompt to the chain.
func (m *pick) writePart(body []byte, p api.Part) {
	content := body[p.From:p.To]
	switch p.Kind {
	case api.Text:
		if p.IsShortest() {
			m.chain.Write(content)
		} else {
			m.writeShort(content)
		}
	case api.Value:
		m.chain.WriteValue(p.Hash, int(p.Size))
	case api.IDs:
		m.chain.WriteIDs(content)
	case api.PackedIDs:
		m.chain.WritePacked(content)
	case api.Media:
		m.chain.WriteValue(p.Hash, int(p.Size)*prefixindex.BytesPerToken)
	}
}

// writeShort appends a text to the chain, in its shortest spelling.
func (m *pick) writeShort(text []byte) {
	for piece := range jsonscan.Short(text, m.textBuffer[:0]) {
		m.chain.Write(piece)
	}
}

// markTurn records the length of the chain after a number of parts of the prompt.
func (m *pick) markTurn(parts int, t api.Turns) {
	if t.History == 0 {
		return
	}
	blocks := len(m.chain.Hashes)
	if parts == t.Opening {
		m.turns.Opening = blocks
	}
	if parts == t.Asked {
		m.turns.Asked = blocks
	}
	if parts == t.History {
		m.turns.History = blocks
	}
}

// reset discards what a pool must not keep: the values of the request, which are as long as its client likes, and large
// buffers. The other buffers have the size of the pool of endpoints.
func (m *pick) reset() {
	m.incoming.DropLarge()
	m.chain.DropLarge()
	m.balancer, m.requestContext, m.config, m.snapshot, m.lacks = nil, nil, nil, nil, nil
	m.request, m.prompt.Size = scheduling.Request{}, estimate.PromptSize{}
}

// describeRequest provides the properties of the request to the scheduler.
func (m *pick) describeRequest(x *exchange.RequestContext, random uint64) {
	m.request = scheduling.Request{
		Now: x.ArrivalTime, Random: random, Subset: x.Subset, Model: x.Target, Tokens: x.PromptTokens, Headers: x.Incoming.Headers,
	}
	if n := min(len(m.chain.Hashes), beginningBlocks); n > 0 {
		m.request.Prefix = m.chain.Hashes[n-1]
	}
}

// lookupPrompt provides the prompt to the estimator.
func (m *pick) lookupPrompt(x *estimate.Estimator, endpoints []*endpoint.Endpoint) {
	m.prompt.Chain, m.prompt.Tokens = &m.chain, m.request.Tokens
	if !m.estimated {
		m.prompt.SkipLookup()
		return
	}
	m.prompt.Conversation = estimate.Conversation{Opening: m.turns.Opening, Asked: m.turns.Asked, History: m.turns.History}
	x.Lookup(&m.prompt, endpoints, m.request.Now)
}

// acquireLease counts the request on its endpoint.
func (m *pick) acquireLease(x *exchange.RequestContext) *endpoint.Lease {
	switch {
	case !m.incoming.API.Generates:
		return x.Endpoint.Acquire()
	case m.incoming.Stream && x.LateFirst:
		return m.prompt.PlaceOn(x.Endpoint, m.request.Now, estimate.Late)
	case m.incoming.Stream:
		return m.prompt.PlaceOn(x.Endpoint, m.request.Now, estimate.Streamed)
	default:
		return m.prompt.PlaceOn(x.Endpoint, m.request.Now, estimate.Whole)
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
func (m *pick) collectCandidates(endpoints []*endpoint.Endpoint, indexes []int) error {
	m.lacks, m.paces = m.balancer.outliers.EndpointsLacking(m.requestContext.Subject), m.balancer.estimator.Paces()
	for least := working; least > excluded; least-- {
		if m.addCandidates(endpoints, indexes, least); len(m.candidates) > 0 {
			return nil
		}
	}
	if slices.ContainsFunc(endpoints, func(e *endpoint.Endpoint) bool { return m.request.Subset.Contains(e.Identity().Address) }) {
		return scheduling.ErrFiltered
	}
	return scheduling.ErrNoneInSubset
}

// addCandidates fills the list of candidates with the endpoints of at least a standing.
func (m *pick) addCandidates(endpoints []*endpoint.Endpoint, indexes []int, least usability) {
	m.candidates = slices.Grow(m.candidates[:0], len(indexes))
	now := monotonic.FromTime(m.request.Now)
	for _, i := range indexes {
		if e := endpoints[i]; m.usabilityOf(e, now) >= least {
			m.addCandidate(i, e)
		}
	}
}

func (m *pick) usabilityOf(e *endpoint.Endpoint, now monotonic.Time) usability {
	switch {
	case !m.request.Subset.Contains(e.Identity().Address):
		return excluded
	case !e.Health().IsUsable(m.request.Now) || m.lacks != nil && !m.lacks.CanUse(e, m.request.Now):
		return unusable
	case m.incoming.Stored == 0 && estimate.ServerOf(e).IsSuspect(now, &m.paces): // otherwise perhaps only this server can answer
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
func (m *pick) addCandidate(i int, e *endpoint.Endpoint) {
	e.ExpireHeld(m.request.Now, m.paces.First)
	load := e.Load()
	m.candidates = appendCandidate(m.candidates, i, e, &load)
	if m.estimated {
		estimated, c := m.prompt.Estimate(e, &load), &m.candidates[len(m.candidates)-1]
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
