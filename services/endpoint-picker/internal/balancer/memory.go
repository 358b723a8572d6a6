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
	matched    []int // blocks, by the numbers of caches
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
	m.chain.Reset(prefix.Seed(x.Target, text(r.CacheSalt)), most)
	if most == 0 {
		return
	}
	for _, p := range r.Prompt {
		switch {
		case p.Packed:
			m.chain.WritePacked(text(p.Span))
		case p.IDs > 0:
			m.chain.WriteIDs(text(p.Span))
		default:
			m.chain.Write(text(p.Span))
		}
	}
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
		return e.Place(x.Arrived, m.uncached(e))
	default:
		return e.PlaceUnseen()
	}
}

// match asks who has how much of the prompt.
func (m *memory) match(x *prefix.Index) {
	n := x.Len()
	m.matched = slices.Grow(m.matched[:0], n)[:n]
	clear(m.matched)
	x.Match(m.chain.Hashes, m.matched)
}

// cached is how many tokens of the prompt an endpoint has.
func (m *memory) cached(e *endpoint.Endpoint) int {
	cache := e.Cache()
	if cache < 0 || cache >= len(m.matched) {
		return 0
	}
	return m.matched[cache] * prefix.BlockTokens
}

// uncached is how many tokens of the prompt an endpoint would have to compute: the last one at least.
func (m *memory) uncached(e *endpoint.Endpoint) int { return max(m.request.Tokens-m.cached(e), 1) }

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
	load.Wait = e.Wait(m.request.Now, speed, max(m.request.Tokens-cached, 1))
	return scheduling.Candidate{Index: i, Server: e.Server(), Load: load, Matched: cached}
}
