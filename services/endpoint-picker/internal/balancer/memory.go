package balancer

import (
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// maxBlocks is the default limit on the part of a prompt to look up in caches: 128 Ki tokens.
	maxBlocks = (128 << 10) / prefixindex.BlockTokens
	// beginningBlocks is the part of a prompt that identifies its kind: 128 tokens. Later tokens may differ between requests
	// of the same kind.
	beginningBlocks = 8
)

// memory is the working memory of one pick.
type memory struct {
	incoming   request.Request
	chain      prefixindex.Chain
	turns      request.Turns   // in blocks
	prompt     estimate.Prompt // the same for the estimator
	estimated  bool            // the profile reads estimates
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
		most = maxTokens / prefixindex.BlockTokens
	}
	if x.PromptTokens == 0 {
		most = 0
	}
	m.turns = request.Turns{}
	m.chain.Reset(prefixindex.Seed(x.Target, text(r.CacheSalt)), most)
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

// describe provides the properties of the request to the scheduler.
func (m *memory) describe(x *exchange.Exchange, random uint64, session string) {
	m.request = scheduling.Request{
		Now: x.Arrived, Random: random, Subset: x.Subset, Model: x.Target, Tokens: x.PromptTokens, Session: session, Headers: x.Incoming.Headers,
	}
	if n := min(len(m.chain.Hashes), beginningBlocks); n > 0 {
		m.request.Prefix = m.chain.Hashes[n-1]
	}
}

// lookup provides the prompt to the estimator.
func (m *memory) lookup(x *estimate.Estimator, endpoints []*endpoint.Endpoint) {
	m.prompt.Chain, m.prompt.Tokens = &m.chain, m.request.Tokens
	if !m.estimated {
		m.prompt.SkipLookup()
		return
	}
	m.prompt.Conversation = estimate.Conversation{Opening: m.turns.Opening, Asked: m.turns.Asked, History: m.turns.History}
	x.Lookup(&m.prompt, endpoints, m.request.Now)
}

// place counts the request on its endpoint.
func (m *memory) place(x *exchange.Exchange) *endpoint.Lease {
	switch {
	case !m.incoming.API.Generates:
		return x.Endpoint.Acquire()
	case m.incoming.Stream:
		return m.prompt.Place(x.Endpoint, x.Arrived, estimate.Streamed)
	default:
		return m.prompt.Place(x.Endpoint, x.Arrived, estimate.Whole)
	}
}

// collect fills the list of candidates with the working endpoints that the gateway allows. If none of the allowed endpoints
// works, all of them are candidates.
func (m *memory) collect(endpoints []*endpoint.Endpoint) {
	m.candidates = m.candidates[:0]
	skipped := false
	for i, e := range endpoints {
		switch {
		case !m.request.Subset.Contains(e.Identity().Address):
		case !e.Health().Usable(m.request.Now):
			skipped = true
		default:
			m.candidates = append(m.candidates, m.candidate(i, e))
		}
	}
	if len(m.candidates) > 0 || !skipped {
		return
	}
	for i, e := range endpoints {
		if m.request.Subset.Contains(e.Identity().Address) {
			m.candidates = append(m.candidates, m.candidate(i, e))
		}
	}
}

// candidate describes an endpoint from one reading of its load.
func (m *memory) candidate(i int, e *endpoint.Endpoint) scheduling.Candidate {
	load := e.Load()
	var estimated estimate.Estimate
	if m.estimated {
		estimated = m.prompt.Estimate(e, &load)
	}
	return scheduling.Candidate{
		Index: i, Server: e.Server(), Matched: estimated.Cached,
		Load: scheduling.Load{
			Requests: load.Requests,
			Open:     load.Open,
			Tokens:   estimated.Backlog,
			Waiting:  load.Waiting,
			Running:  load.Running,
			KVUsage:  load.KVUsage,
			Wait:     estimated.TTFT,
			Sampled:  load.At,
			Failing:  load.Failing,
			Page:     load.Page,
		},
	}
}
