package balancer

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// maxBlocks is the default limit on the part of a prompt to look up in caches: 128 Ki tokens.
	maxBlocks = (128 << 10) / prefix.BlockTokens
	// beginningBlocks is the part of a prompt that identifies its kind: 128 tokens. Later tokens may differ between requests
	// of the same kind.
	beginningBlocks = 8
)

// memory is the working memory of one pick.
type memory struct {
	incoming   request.Request
	chain      prefix.Chain
	matched    []int              // blocks, indexed by the number of the cache
	turns      request.Turns      // in blocks
	ours       bool               // the last prompt of the conversation was placed by this picker
	home       *endpoint.Endpoint // where other replicas are expected to send prompts with the same beginning
	sharing    float64            // tokens of the prompt that other replicas would find there, and would otherwise compute
	request    scheduling.Request
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

// read parses the request. A request of an unknown API has no prompt.
func (m *memory) read(x *exchange.Exchange, parsers *request.Parsers) error {
	in, r := &x.Incoming, &m.incoming
	err := r.Parse(parsers, *in)
	r.Body = nil // the body belongs to the caller
	if err != nil {
		return err //nolint:wrapcheck // it says all
	}
	x.Model = string(in.Body[r.Model.From:r.Model.To])
	x.Streaming, x.UsageForm, x.PromptTokens = r.Stream, r.API.Usage, 0
	if r.API.Generates {
		x.PromptTokens = r.Tokens()
	}
	return nil
}

// hash divides the prompt into blocks and hashes them.
func (m *memory) hash(x *exchange.Exchange, maxTokens int) {
	r, body := &m.incoming, x.Incoming.Body
	text := func(span jsonscan.Span) []byte { return body[span.From:span.To] }
	most := maxBlocks
	if maxTokens > 0 {
		most = maxTokens / prefix.BlockTokens
	}
	if x.PromptTokens == 0 {
		most = 0
	}
	m.turns = request.Turns{}
	m.chain.Reset(prefix.Seed(x.Target, text(r.CacheSalt)), most)
	if most == 0 {
		return
	}
	for i, p := range r.Prompt {
		switch {
		case p.Packed:
			m.chain.WritePacked(text(p.Span))
		case p.IDs > 0:
			m.chain.WriteIDs(text(p.Span))
		default:
			m.chain.Write(text(p.Span))
		}
		m.mark(i+1, r.Turns)
	}
}

// mark records the length of the chain after a number of parts of the prompt.
func (m *memory) mark(parts int, t request.Turns) {
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

// opening is the length of the part that all turns of a conversation share.
func (m *memory) opening() int {
	if m.turns.History == 0 {
		return len(m.chain.Hashes) // it has one turn so far
	}
	return m.turns.Opening
}

// describe provides the properties of the request to the scheduler.
func (m *memory) describe(x *exchange.Exchange, random uint64) {
	m.request = scheduling.Request{
		Now: x.Arrived, Random: random, Subset: x.Subset, Model: x.Target, Tokens: x.PromptTokens, Headers: x.Incoming.Headers,
	}
	if n := min(len(m.chain.Hashes), beginningBlocks); n > 0 {
		m.request.Prefix = m.chain.Hashes[n-1]
	}
}

// place counts the request on its endpoint.
func (m *memory) place(x *exchange.Exchange) *endpoint.Lease {
	e := x.Endpoint
	switch {
	case !m.incoming.API.Generates:
		return e.Acquire()
	case m.incoming.Stream:
		return e.Place(x.Arrived, m.prompt(e))
	default:
		return e.PlaceUnseen(x.Arrived, m.prompt(e))
	}
}

// match looks up the prompt in the caches of all endpoints.
func (m *memory) match(x *prefix.Index) {
	n := x.Len()
	m.matched = slices.Grow(m.matched[:0], n)[:n]
	clear(m.matched)
	x.Match(m.chain.Hashes, m.matched)
}

// known returns the number of prompt tokens that are in any cache.
func (m *memory) known() int {
	blocks := 0
	for _, n := range m.matched {
		blocks = max(blocks, n)
	}
	return blocks * prefix.BlockTokens
}

// cached returns the number of prompt tokens that an endpoint has cached.
func (m *memory) cached(e *endpoint.Endpoint) int {
	cache := e.Cache()
	if cache < 0 || cache >= len(m.matched) {
		return 0
	}
	return m.matched[cache] * prefix.BlockTokens
}

// prompt describes the work that the request would cause on an endpoint.
func (m *memory) prompt(e *endpoint.Endpoint) predict.Prompt {
	cached := m.cached(e)
	p := predict.Prompt{Tokens: max(m.request.Tokens-cached, 1)}
	switch {
	case e != m.home:
	case m.ours: // the index knows its location
	case m.turns.History > 0:
		p.History = max(m.turns.History*prefix.BlockTokens-cached, 0)
	default:
		p.Expected = p.Tokens
	}
	return p
}

// expect finds the home of the prompt: the first endpoint in the order of the first block that few other prompts share.
// Other replicas of the picker find the same home, and so does this one after a restart: they agree without communication,
// and find the prefixes that another replica placed. The share of the prompt that is found there is learned with the speed.
//
// The block for this order is not before the end of the first prompt if conversations are expected to continue. So a
// conversation has the same home in all its turns, and not the home of its system prompt. A history is probably there, because
// some replica has placed it; if this replica did, it knows the location. This share is learned separately.
//
// Other replicas find a prompt only if it went to its home. sharing is the number of tokens of a new prompt that other
// replicas will request again and would have to compute again. They request prompts that this replica placed, and that are
// in no cache any more, only in the next turn.
func (m *memory) expect(endpoints []*endpoint.Endpoint, others float64, seen *reuse) {
	m.home, m.sharing = nil, others*seen.again()
	if m.ours {
		m.sharing = others * seen.going()
	}
	shared := m.shared()
	if seen.conversing() {
		shared = max(shared, m.opening()-1)
	}
	if shared >= len(m.chain.Hashes) {
		return
	}
	block, highest := m.chain.Hashes[shared], uint64(0)
	for _, e := range endpoints {
		if place := scheduling.Rendezvous(block, e.Hash()); place >= highest && e.Health().Usable(m.request.Now) {
			m.home, highest = e, place
		}
	}
}

// shared returns the number of blocks that are in too many caches to indicate where similar prompts went: those that a third
// endpoint has too. A conversation is in one cache, or in two if it moved.
func (m *memory) shared() int {
	var first, second, third int
	for _, blocks := range m.matched {
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

// collect fills the list of candidates with the working endpoints that the gateway allows. If none of the allowed endpoints
// works, all of them are candidates.
func (m *memory) collect(endpoints []*endpoint.Endpoint, speed *predict.Speed) {
	m.candidates = m.candidates[:0]
	skipped := false
	for i, e := range endpoints {
		switch {
		case !m.request.Subset.Contains(e.Identity().Address):
		case !e.Health().Usable(m.request.Now):
			skipped = true
		default:
			m.candidates = append(m.candidates, m.candidate(i, e, speed))
		}
	}
	if len(m.candidates) > 0 || !skipped {
		return
	}
	for i, e := range endpoints {
		if m.request.Subset.Contains(e.Identity().Address) {
			m.candidates = append(m.candidates, m.candidate(i, e, speed))
		}
	}
}

func (m *memory) candidate(i int, e *endpoint.Endpoint, speed *predict.Speed) scheduling.Candidate {
	load, cached := e.Load(), m.cached(e)
	p := m.prompt(e)
	load.Wait = e.Wait(m.request.Now, speed, p)
	if e == m.home {
		load.Wait = max(load.Wait-e.Factor()*speed.PerToken*m.sharing*float64(p.Tokens), speed.Base)
	}
	return scheduling.Candidate{Index: i, Server: e.Server(), Load: load, Matched: cached}
}
