package balancer

import (
	"slices"
	"sync"
	"unique"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// maxResponses is the maximum number of responses whose servers are known: those of an hour at 18 a second. An entry has a fixed size, so all
// take about 3 MiB.
const maxResponses = 1 << 16

// responses remembers which server stored which response of OpenAI's responses API, by hashes of their identifiers. The oldest is forgotten
// first. The zero value is ready.
type responses struct {
	mu     sync.Mutex
	byID   map[uint64]unique.Handle[endpoint.Identity]
	order  []uint64 // a ring, when it is full
	oldest int
}

// add records the server of a response.
func (r *responses) add(id uint64, server endpoint.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[uint64]unique.Handle[endpoint.Identity]{}
	}
	_, known := r.byID[id]
	r.byID[id] = unique.Make(server)
	switch {
	case known:
	case len(r.order) < maxResponses:
		r.order = append(r.order, id)
	default:
		delete(r.byID, r.order[r.oldest])
		r.order[r.oldest] = id
		r.oldest = (r.oldest + 1) % maxResponses
	}
}

// find returns the server of a response.
func (r *responses) find(id uint64) (endpoint.Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server, found := r.byID[id]
	if !found {
		return endpoint.Identity{}, false
	}
	return server.Value(), true
}

// keepStored leaves only the server that stored the response that the request names, if it is known and a candidate.
func (m *memory) keepStored(endpoints []*endpoint.Endpoint) {
	if m.incoming.Stored == 0 {
		return
	}
	server, found := m.balancer.responses.find(m.incoming.Stored)
	if !found {
		return
	}
	if i := slices.IndexFunc(m.candidates, func(c scheduling.Candidate) bool { return endpoints[c.Index].Identity() == server }); i >= 0 {
		m.candidates = append(m.candidates[:0], m.candidates[i])
	}
}

// followResponse reads the identifier of a response that the server may store.
func (b *Balancer) followResponse(x *exchange.Exchange) {
	x.ResponseID = &answer.IDReader{Found: func(id []byte) {
		b.responses.add(xxhash.Sum64(id), x.Placements.Answering().Endpoint().Identity())
	}}
}
