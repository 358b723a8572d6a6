package balancer

import (
	"net/http"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pool/outlier"
)

// follower learns from the response to one request. What a failed request causes:
//
//	exchange.Exchange.Judge        the first verdict on the response counts
//	follower.Judged                whose response it is, and whether its client may have chosen the endpoint
//	  outlier.Detector.Observe     may eject the endpoint, for all requests or for those for one model
//	  estimate.Estimator           the prompt is in no cache
//	exchange.Exchange.Complete     or End: the request counts as load until the time that Judged returned
//	  endpoint.Lease.Hold          the lease ends, and its endpoint counts it until then
//	  estimate (suspect.go)        several failures in a row: the server seems to have stopped
//	endpoint.Endpoint.ExpireHeld   at each pick and once a second: the load ends
//
// An attempt after which another server got the request (Failed, Responded) is Faulty at once, and its lease moves there.
type follower struct {
	balancer    *Balancer
	exchange    *exchange.Exchange
	estimated   bool                 // the profile reads estimates
	expectation estimate.Expectation // of the prompt
	placement   *estimate.Placement  // of the prompt, until it is known whether it was computed; nil without a prompt
	failed      bool                 // the picked endpoint has failed already
	began       bool                 // the answer has begun
	prompt      uint64               // hash of its first half
	stored      bool                 // the request names a stored response, which may be missing
}

// Failed records that an attempt failed, and that the request went to another endpoint.
func (f *follower) Failed(address, failure string) {
	b, x := f.balancer, f.exchange
	if address == x.Endpoint.Address() {
		f.failed = true
		f.observe(x.Endpoint, exchange.Faulty, failure)
	} else if e := b.endpointAt(address); e != nil {
		f.observe(e, exchange.Faulty, failure)
	}
}

// Responded records which endpoint responded. If it is another one than the picked one, the picked one failed before, and the request
// belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (f *follower) Responded() {
	b, x := f.balancer, f.exchange
	if !x.Moved() {
		return
	}
	if !f.failed {
		f.Failed(x.Endpoint.Address(), "the gateway sent the request to another endpoint")
	}
	if by := b.endpointAt(x.Served); by != nil { // else it has left the pool: what is known of the request stays with the picked endpoint
		x.Placements.Answering().MoveTo(by, b.clock.Now())
		f.expectation.Moved()
		if f.placement != nil {
			b.estimator.Moved(f.placement, by)
		}
	}
}

// Judged records what the response says about the endpoint that gave it. A failed request leaves no prompt in the cache, and counts as load
// for as long as an answer takes. So does one that ended early for an unknown reason, but its prompt may be in the cache.
func (f *follower) Judged(v exchange.Verdict) (busy time.Time) {
	b, x, silent := f.balancer, f.exchange, v == exchange.Silent
	switch {
	case v == exchange.Answered:
		f.Began()
	case v == exchange.Aborted:
		f.withdraw()
		return time.Time{}
	case silent && !f.waitedInVain():
		return time.Time{}
	case silent:
		v = exchange.Doubtful
	}
	if by := f.answering(); by != nil {
		f.observe(by, f.ofServer(v), x.Failure())
	}
	switch {
	case v == exchange.Answered:
		if x.Inference {
			b.usualDuration.observe(b.clock.Now().Sub(x.Dispatched()))
		}
		return time.Time{}
	case v == exchange.Doubtful && !silent && !x.Refused(): // the client has gone, perhaps
		f.served()
	default:
		f.withdraw()
	}
	return x.Dispatched().Add(b.usualDuration.value())
}

// waitedInVain reports whether a client that has gone makes it doubtful that the server works: there was no content for longer than an
// answer usually takes, or than streams pause. After a failed attempt, it is not known which server has the request.
func (f *follower) waitedInVain() bool {
	b, x := f.balancer, f.exchange
	since, patience := x.Dispatched(), b.usualDuration.value()
	if !x.Last.IsZero() {
		since, patience = x.Last, min(patience, b.estimator.Paces().Stall)
	}
	return b.clock.Now().Sub(since) >= patience && (!f.failed || x.Moved())
}

// answering returns the endpoint that answers, nil if it has left the pool.
func (f *follower) answering() *endpoint.Endpoint {
	x := f.exchange
	by := x.Placements.Answering().Endpoint()
	if x.Moved() && by.Address() != x.Served {
		return nil
	}
	return by
}

// Began records that the answer has content, so that its prompt is computed.
func (f *follower) Began() {
	if f.began {
		return
	}
	f.began = true
	f.served()
	if by := f.answering(); by != nil {
		f.observe(by, exchange.Begun, "")
	}
	f.balancer.estimator.Began(&f.expectation)
}

// observe lets the verdict on the request count for an endpoint, and what was wrong with the response.
func (f *follower) observe(e *endpoint.Endpoint, v exchange.Verdict, failure string) {
	x := f.exchange
	f.balancer.outliers.Observe(e, outlier.Response{
		Verdict: v, Placed: x.Dispatched(), Subject: x.Subject, Model: x.Target, Missing: v == exchange.Doubtful && f.missing(),
		Prompt: f.prompt, Began: f.began, Failure: failure,
	})
}

// missing reports whether the server says that it does not have the model.
func (f *follower) missing() bool { return f.exchange.Status == http.StatusNotFound && !f.stored }

// ofServer returns a verdict as it is for the server. A client may choose the server of its wrong requests by a prompt that is cached there;
// other ones come to all servers alike. A missing model is not a wrong request if others answer.
func (f *follower) ofServer(v exchange.Verdict) exchange.Verdict {
	if x := f.exchange; v == exchange.Doubtful && x.PromptTokens > 0 && 2*x.MatchedTokens > x.PromptTokens && !f.missing() {
		return exchange.Steered
	}
	return v
}

// served records that the prompt is computed.
func (f *follower) served() {
	if f.placement != nil {
		f.balancer.estimator.Served(f.placement)
		f.placement = nil
	}
}

// withdraw records that the prompt is in no cache, as far as is known.
func (f *follower) withdraw() {
	if f.placement != nil {
		f.balancer.estimator.Withdrawn(f.placement)
		f.placement = nil
	}
}

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
