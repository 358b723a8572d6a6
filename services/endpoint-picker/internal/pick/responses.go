package pick

import (
	"slices"
	"sync"
	"unique"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// maxResponses is the maximum number of responses whose servers are known: those of an hour at 18 a second. An entry has a fixed size, so
// all take about 3 MiB.
const maxResponses = 1 << 16

// storedResponses remembers which server stored which response of OpenAI's responses API, by hashes of their identifiers. The oldest is
// forgotten first. The zero value is ready.
type storedResponses struct {
	mu     sync.Mutex
	byID   map[uint64]unique.Handle[endpoint.Identity]
	order  []uint64 // a ring, when it is full
	oldest int
}

// addResponse records the server of a response.
func (r *storedResponses) addResponse(id uint64, server endpoint.Identity) {
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

// findServer returns the server of a response.
func (r *storedResponses) findServer(id uint64) (endpoint.Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server, found := r.byID[id]
	if !found {
		return endpoint.Identity{}, false
	}
	return server.Value(), true
}

// restrictToStoringServer leaves only the server that stored the response that the request names, if it is known and a candidate.
func (p *pickState) restrictToStoringServer(endpoints []*endpoint.Endpoint) {
	if p.incoming.Stored == 0 {
		return
	}
	server, found := p.balancer.responses.findServer(p.incoming.Stored)
	if !found {
		return
	}
	if i := slices.IndexFunc(p.candidates, func(c scheduling.Candidate) bool { return endpoints[c.Index].Identity() == server }); i >= 0 {
		p.candidates = append(p.candidates[:0], p.candidates[i])
	}
}

// captureResponseID reads the identifier of a response that the server may store.
func (p *pickState) captureResponseID() {
	b, lease := p.balancer, p.result.Placements.AnsweringLease()
	p.result.ResponseID = &api.ResponseIDReader{OnFound: func(id []byte) {
		b.responses.addResponse(xxhash.Sum64(id), lease.Endpoint().Identity())
	}}
}
