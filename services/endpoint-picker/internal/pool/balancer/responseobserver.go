package balancer

import (
	"net/http"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pool/outlier"
)

// responseObserver learns from the response to one request. What a failed request causes:
//
//	RequestContext.ReportHealth          the first health signal of the response counts
//	responseObserver.OnHealthSignal      whose response it is, and whether its client may have chosen the endpoint
//	  outlier.Detector.ObserveResponse   may eject the endpoint, for all requests or for those for one model
//	  estimate.Estimator                 the prompt is in no cache
//	RequestContext.OnResponseEnd         or EndRequest: the request counts as load until the time that OnHealthSignal returned
//	  endpoint.Lease.HoldUntil           the lease ends, and its endpoint counts it until then
//	  estimate (suspect.go)              several failures in a row: the server seems to have stopped
//	endpoint.Endpoint.ExpireHeld         at each pick and once a second: the load ends
//
// An attempt after which another server got the request (OnFailedAttempt, OnResponseStatus) is Faulty at once, and its lease moves there.
type responseObserver struct {
	balancer       *Balancer
	requestContext *exchange.RequestContext
	estimated      bool                 // the profile reads estimates
	expectation    estimate.Expectation // of the prompt
	placement      *estimate.Placement  // of the prompt, until it is known whether it was computed; nil without a prompt
	attemptFailed  bool                 // the picked endpoint has failed already
	hasContent     bool                 // the answer has begun
	prompt         uint64               // hash of its first half
	stored         bool                 // the request names a stored response, which may be missing
}

// OnFailedAttempt records that an attempt failed, and that the request went to another endpoint.
func (f *responseObserver) OnFailedAttempt(address, failure string) {
	b, x := f.balancer, f.requestContext
	if address == x.Endpoint.Address() {
		f.attemptFailed = true
		f.reportHealth(x.Endpoint, exchange.Faulty, failure)
	} else if e := b.endpointAt(address); e != nil {
		f.reportHealth(e, exchange.Faulty, failure)
	}
}

// OnResponseStatus records which endpoint responded. If it is another one than the picked one, the picked one failed before, and the request
// belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (f *responseObserver) OnResponseStatus() {
	b, x := f.balancer, f.requestContext
	if !x.HasMoved() {
		return
	}
	if !f.attemptFailed {
		f.OnFailedAttempt(x.Endpoint.Address(), "the gateway sent the request to another endpoint")
	}
	if by := b.endpointAt(x.Served); by != nil { // else it has left the pool: what is known of the request stays with the picked endpoint
		x.Placements.AnsweringLease().MoveTo(by, b.clock.Now())
		f.expectation.Invalidate()
		if f.placement != nil {
			b.estimator.RecordMove(f.placement, by)
		}
	}
}

// OnHealthSignal records what the response says about the endpoint that gave it. A failed request leaves no prompt in the cache, and counts as load
// for as long as an answer takes. So does one that ended early for an unknown reason, but its prompt may be in the cache.
func (f *responseObserver) OnHealthSignal(v exchange.HealthSignal) (busy time.Time) {
	b, x, silent := f.balancer, f.requestContext, v == exchange.Silent
	switch {
	case v == exchange.Answered:
		f.OnFirstContent()
	case v == exchange.Aborted:
		f.withdrawPrompt()
		return time.Time{}
	case silent && !f.waitedInVain():
		return time.Time{}
	case silent:
		v = exchange.Doubtful
	}
	if by := f.answeringEndpoint(); by != nil {
		f.reportHealth(by, f.serverSignal(v), x.DescribeFailure())
	}
	switch {
	case v == exchange.Answered:
		if x.Inference {
			b.meanDuration.addSample(b.clock.Now().Sub(x.DispatchTime()))
		}
		return time.Time{}
	case v == exchange.Doubtful && !silent && !x.IsServerRefusal(): // the client has gone, perhaps
		f.confirmPrompt()
	default:
		f.withdrawPrompt()
	}
	return x.DispatchTime().Add(b.meanDuration.average())
}

// waitedInVain reports whether a client that has gone makes it doubtful that the server works: there was no content for longer than an
// answer usually takes, or than streams pause. After a failed attempt, it is not known which server has the request.
func (f *responseObserver) waitedInVain() bool {
	b, x := f.balancer, f.requestContext
	since, patience := x.DispatchTime(), b.meanDuration.average()
	if !x.LastContent.IsZero() {
		since, patience = x.LastContent, min(patience, b.estimator.Paces().Stall)
	}
	return b.clock.Now().Sub(since) >= patience && (!f.attemptFailed || x.HasMoved())
}

// answeringEndpoint returns the endpoint that answers, nil if it has left the pool.
func (f *responseObserver) answeringEndpoint() *endpoint.Endpoint {
	x := f.requestContext
	by := x.Placements.AnsweringLease().Endpoint()
	if x.HasMoved() && by.Address() != x.Served {
		return nil
	}
	return by
}

// OnFirstContent records that the answer has content, so that its prompt is computed.
func (f *responseObserver) OnFirstContent() {
	if f.hasContent {
		return
	}
	f.hasContent = true
	f.confirmPrompt()
	if by := f.answeringEndpoint(); by != nil {
		f.reportHealth(by, exchange.Begun, "")
	}
	f.balancer.estimator.RecordFirstContent(&f.expectation)
}

// reportHealth lets the verdict on the request count for an endpoint, and what was wrong with the response.
func (f *responseObserver) reportHealth(e *endpoint.Endpoint, v exchange.HealthSignal, failure string) {
	x := f.requestContext
	f.balancer.outliers.ObserveResponse(e, outlier.Response{
		Signal: v, Placed: x.DispatchTime(), Subject: x.Subject, Model: x.Target, ModelMissing: v == exchange.Doubtful && f.isModelMissing(),
		Prompt: f.prompt, HasContent: f.hasContent, Failure: failure,
	})
}

// isModelMissing reports whether the server says that it does not have the model.
func (f *responseObserver) isModelMissing() bool {
	return f.requestContext.Status == http.StatusNotFound && !f.stored
}

// serverSignal returns a verdict as it is for the server. A client may choose the server of its wrong requests by a prompt that is cached there;
// other ones come to all servers alike. A missing model is not a wrong request if others answer.
func (f *responseObserver) serverSignal(v exchange.HealthSignal) exchange.HealthSignal {
	if x := f.requestContext; v == exchange.Doubtful && x.PromptTokens > 0 && 2*x.MatchedTokens > x.PromptTokens && !f.isModelMissing() {
		return exchange.Steered
	}
	return v
}

// confirmPrompt records that the prompt is computed.
func (f *responseObserver) confirmPrompt() {
	if f.placement != nil {
		f.balancer.estimator.ConfirmPlacement(f.placement)
		f.placement = nil
	}
}

// withdrawPrompt records that the prompt is in no cache, as far as is known.
func (f *responseObserver) withdrawPrompt() {
	if f.placement != nil {
		f.balancer.estimator.WithdrawPlacement(f.placement)
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

// OnResponseEnd records the length of the answer, which is now in the cache of the server that served it.
func (f *responseObserver) OnResponseEnd() {
	x := f.requestContext
	tokens := x.Usage.Output
	if !x.Usage.Known && x.Streaming {
		tokens = x.ContentPieces // each is about one token
	}
	if !f.estimated {
		return
	}
	f.balancer.estimator.RecordAnswer(x.Placements.AnsweringLease().Endpoint(), tokens)
	if x.Status == http.StatusOK && x.Usage.Known {
		cached := -1
		if x.Usage.CachedKnown {
			cached = x.Usage.Cached
		}
		f.balancer.estimator.RecordUsage(&f.expectation, x.Usage.Prompt, cached)
	}
}
