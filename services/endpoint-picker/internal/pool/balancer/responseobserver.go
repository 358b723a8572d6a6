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
func (o *responseObserver) OnFailedAttempt(address, failure string) {
	b, rc := o.balancer, o.requestContext
	if address == rc.Endpoint.Address() {
		o.attemptFailed = true
		o.reportHealth(rc.Endpoint, exchange.Faulty, failure)
	} else if e := b.endpointAt(address); e != nil {
		o.reportHealth(e, exchange.Faulty, failure)
	}
}

// OnResponseStatus records which endpoint responded. If it is another one than the picked one, the picked one failed before, and the request
// belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (o *responseObserver) OnResponseStatus() {
	b, rc := o.balancer, o.requestContext
	if !rc.HasMoved() {
		return
	}
	if !o.attemptFailed {
		o.OnFailedAttempt(rc.Endpoint.Address(), "the gateway sent the request to another endpoint")
	}
	if by := b.endpointAt(rc.Served); by != nil { // else it has left the pool: what is known of the request stays with the picked endpoint
		rc.Placements.AnsweringLease().MoveTo(by, b.clock.Now())
		o.expectation.Invalidate()
		if o.placement != nil {
			b.estimator.RecordMove(o.placement, by)
		}
	}
}

// OnHealthSignal records what the response says about the endpoint that gave it. A failed request leaves no prompt in the cache, and counts
// as load for as long as an answer takes. So does one that ended early for an unknown reason, but its prompt may be in the cache.
func (o *responseObserver) OnHealthSignal(v exchange.HealthSignal) (busy time.Time) {
	b, rc, silent := o.balancer, o.requestContext, v == exchange.Silent
	switch {
	case v == exchange.Answered:
		o.OnFirstContent()
	case v == exchange.Aborted:
		o.withdrawPrompt()
		return time.Time{}
	case silent && !o.waitedInVain():
		return time.Time{}
	case silent:
		v = exchange.Doubtful
	}
	if by := o.answeringEndpoint(); by != nil {
		o.reportHealth(by, o.serverSignal(v), rc.DescribeFailure())
	}
	switch {
	case v == exchange.Answered:
		if rc.Inference {
			b.meanDuration.addSample(b.clock.Now().Sub(rc.DispatchTime()))
		}
		return time.Time{}
	case v == exchange.Doubtful && !silent && !rc.IsServerRefusal(): // the client has gone, perhaps
		o.confirmPrompt()
	default:
		o.withdrawPrompt()
	}
	return rc.DispatchTime().Add(b.meanDuration.average())
}

// waitedInVain reports whether a client that has gone makes it doubtful that the server works: there was no content for longer than an
// answer usually takes, or than streams pause. After a failed attempt, it is not known which server has the request.
func (o *responseObserver) waitedInVain() bool {
	b, rc := o.balancer, o.requestContext
	since, patience := rc.DispatchTime(), b.meanDuration.average()
	if !rc.LastContent.IsZero() {
		since, patience = rc.LastContent, min(patience, b.estimator.Paces().Stall)
	}
	return b.clock.Now().Sub(since) >= patience && (!o.attemptFailed || rc.HasMoved())
}

// answeringEndpoint returns the endpoint that answers, nil if it has left the pool.
func (o *responseObserver) answeringEndpoint() *endpoint.Endpoint {
	rc := o.requestContext
	by := rc.Placements.AnsweringLease().Endpoint()
	if rc.HasMoved() && by.Address() != rc.Served {
		return nil
	}
	return by
}

// OnFirstContent records that the answer has content, so that its prompt is computed.
func (o *responseObserver) OnFirstContent() {
	if o.hasContent {
		return
	}
	o.hasContent = true
	o.confirmPrompt()
	if by := o.answeringEndpoint(); by != nil {
		o.reportHealth(by, exchange.Begun, "")
	}
	o.balancer.estimator.RecordFirstContent(&o.expectation)
}

// reportHealth passes the health signal of the request, and what was wrong with the response, to the outlier detection of an endpoint.
func (o *responseObserver) reportHealth(e *endpoint.Endpoint, v exchange.HealthSignal, failure string) {
	rc := o.requestContext
	o.balancer.outliers.ObserveResponse(e, outlier.Response{
		Signal: v, Placed: rc.DispatchTime(), Subject: rc.Subject, Model: rc.Target, ModelMissing: v == exchange.Doubtful && o.isModelMissing(),
		Prompt: o.prompt, HasContent: o.hasContent, Failure: failure,
	})
}

// isModelMissing reports whether the server says that it does not have the model.
func (o *responseObserver) isModelMissing() bool {
	return o.requestContext.Status == http.StatusNotFound && !o.stored
}

// serverSignal returns a health signal as it counts for the server. A client may choose the server of its wrong requests by a prompt that
// is cached there; other ones come to all servers alike. A missing model is not a wrong request if others answer.
func (o *responseObserver) serverSignal(v exchange.HealthSignal) exchange.HealthSignal {
	if rc := o.requestContext; v == exchange.Doubtful && rc.PromptTokens > 0 && 2*rc.MatchedTokens > rc.PromptTokens && !o.isModelMissing() {
		return exchange.Steered
	}
	return v
}

// confirmPrompt records that the prompt is computed.
func (o *responseObserver) confirmPrompt() {
	if o.placement != nil {
		o.balancer.estimator.ConfirmPlacement(o.placement)
		o.placement = nil
	}
}

// withdrawPrompt records that the prompt is in no cache, as far as is known.
func (o *responseObserver) withdrawPrompt() {
	if o.placement != nil {
		o.balancer.estimator.WithdrawPlacement(o.placement)
		o.placement = nil
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
func (o *responseObserver) OnResponseEnd() {
	rc := o.requestContext
	tokens := rc.Usage.Output
	if !rc.Usage.Known && rc.Streaming {
		tokens = rc.ContentPieces // each is about one token
	}
	if !o.estimated {
		return
	}
	o.balancer.estimator.RecordAnswer(rc.Placements.AnsweringLease().Endpoint(), tokens)
	if rc.Status == http.StatusOK && rc.Usage.Known {
		cached := -1
		if rc.Usage.CachedKnown {
			cached = rc.Usage.Cached
		}
		o.balancer.estimator.RecordUsage(&o.expectation, rc.Usage.Prompt, cached)
	}
}
