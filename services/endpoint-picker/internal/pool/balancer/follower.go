package balancer

import (
	"net/http"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// statusFailed is the status that a gateway would have returned for an endpoint after its last attempt.
const statusFailed = 503

// follower learns from the response to one request.
type follower struct {
	balancer    *Balancer
	exchange    *exchange.Exchange
	estimated   bool                 // the profile reads estimates
	expectation estimate.Expectation // of the prompt
	placement   *estimate.Placement  // of the prompt, until it is known which endpoint served it; nil without a prompt
}

// Responded records the status of the response. If another endpoint than the picked one responded, the picked one failed
// before, and the request belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (f *follower) Responded() {
	b, x := f.balancer, f.exchange
	if !x.Moved() {
		b.outliers.Responded(x.Endpoint, x.Status)
		f.served(x.Endpoint)
		return
	}
	b.outliers.Responded(x.Endpoint, statusFailed)
	by := b.endpointAt(x.Served)
	if by == nil { // it has left the pool: what is known of the request stays with the picked endpoint
		f.served(x.Endpoint)
		return
	}
	b.outliers.Responded(by, x.Status)
	x.Placements.Answering().MoveTo(by, b.clock.Now())
	f.expectation.Moved()
	f.served(by)
}

// served records which endpoint has the prompt in its cache now.
func (f *follower) served(by *endpoint.Endpoint) {
	if f.placement != nil {
		f.balancer.estimator.Served(f.placement, by)
		f.placement = nil
	}
}

// Began records the first piece of the answer.
func (f *follower) Began() { f.balancer.estimator.Began(&f.expectation) }

// endpointAt returns the endpoint with an address, or nil.
func (b *Balancer) endpointAt(address string) *endpoint.Endpoint {
	for _, e := range b.snapshots.Snapshot().Endpoints {
		if e.Address() == address {
			return e
		}
	}
	return nil
}

// Completed records the length of the answer, which is now in the cache of the server that served it.
func (f *follower) Completed() {
	x := f.exchange
	tokens := x.Usage.Output
	if !x.Usage.Known && x.Streaming {
		tokens = x.Pieces // each is about one token
	}
	if !f.estimated {
		return
	}
	f.balancer.estimator.Answered(x.Placements.Answering().Endpoint(), tokens)
	if x.Status == http.StatusOK && x.Usage.Known {
		cached := -1
		if x.Usage.CachedKnown {
			cached = x.Usage.Cached
		}
		f.balancer.estimator.Reported(&f.expectation, x.Usage.Prompt, cached)
	}
}
