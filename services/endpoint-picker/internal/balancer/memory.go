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
	// maxBlocks is how much of a prompt is looked for in caches if the configuration does not say: 128 Ki tokens.
	maxBlocks = (128 << 10) / prefix.BlockTokens
	// beginningBlocks is how much of a prompt stands for its beginning: 128 tokens. What follows may differ from one
	// request of a kind to the next.
	beginningBlocks = 8
)

// memory is what one pick works with.
type memory struct {
	incoming   request.Request
	chain      prefix.Chain
	matched    []int              // blocks, by the numbers of caches
	turns      request.Turns      // in blocks
	ours       bool               // the last prompt of the conversation was placed by this picker
	home       *endpoint.Endpoint // where others are expected to send what begins alike
	sharing    float64            // how much of the prompt they will miss if it goes elsewhere, and find there if not
	request    scheduling.Request
	candidates []scheduling.Candidate
	scheduling scheduling.Scratch
}

// read understands the request. One of an API that is not known has no prompt.
func (m *memory) read(x *exchange.Exchange, parsers *request.Parsers) error {
	in, r := &x.Incoming, &m.incoming
	err := r.Parse(parsers, *in)
	r.Body = nil // it is the caller's
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

// hash cuts the prompt into blocks.
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

// mark notes how long the chain is after so many parts of the prompt.
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

// opening is how much of the prompt is the same in all turns of its conversation.
func (m *memory) opening() int {
	if m.turns.History == 0 {
		return len(m.chain.Hashes) // it has one turn so far
	}
	return m.turns.Opening
}

// describe tells schedulers what is known of the request.
func (m *memory) describe(x *exchange.Exchange, random uint64, session string) {
	m.request = scheduling.Request{
		Now: x.Arrived, Random: random, Subset: x.Subset, Model: x.Target, Tokens: x.PromptTokens, Session: session, Headers: x.Incoming.Headers,
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

// match asks who has how much of the prompt.
func (m *memory) match(x *prefix.Index) {
	n := x.Len()
	m.matched = slices.Grow(m.matched[:0], n)[:n]
	clear(m.matched)
	x.Match(m.chain.Hashes, m.matched)
}

// known is how many tokens of the prompt are in some cache.
func (m *memory) known() int {
	blocks := 0
	for _, n := range m.matched {
		blocks = max(blocks, n)
	}
	return blocks * prefix.BlockTokens
}

// cached is how many tokens of the prompt an endpoint has.
func (m *memory) cached(e *endpoint.Endpoint) int {
	cache := e.Cache()
	if cache < 0 || cache >= len(m.matched) {
		return 0
	}
	return m.matched[cache] * prefix.BlockTokens
}

// prompt is what an endpoint would have to do for the request.
func (m *memory) prompt(e *endpoint.Endpoint) predict.Prompt {
	cached := m.cached(e)
	p := predict.Prompt{Tokens: max(m.request.Tokens-cached, 1)}
	switch {
	case e != m.home:
	case m.ours: // whoever has it, we know
	case m.turns.History > 0:
		p.History = max(m.turns.History*prefix.BlockTokens-cached, 0)
	default:
		p.Expected = p.Tokens
	}
	return p
}

// expect finds the home of the prompt: the first endpoint in the order of the first block that is not shared by many
// prompts. Other pickers of the pool find it too, and so did this one before it was restarted: they agree without
// talking, and what one of them has sent, another one finds. How much of it is found there is learnt with the speed.
//
// Where requests are expected to go on it is not before the end of the first prompt, so that a conversation has the
// same home in all its turns, and another one than those with the same system prompt. A history is expected rather than
// hoped for, as somebody has placed it; if that was this picker, it knows. That is learnt apart.
//
// They find it only if it went there: sharing is how much of a new prompt others will ask for again, which they would
// have to compute once more. What was placed here, and is in no cache any more, others ask for in the next turn only.
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

// shared is how many blocks of the prompt are in so many caches that they say nothing of where its like went: those that
// a third endpoint has too. A conversation is in one cache, or in two if it had to move.
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

// collect fills the list of candidates with the endpoints that the gateway allows and that work. If of those that it
// allows none works, it is all of them.
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
