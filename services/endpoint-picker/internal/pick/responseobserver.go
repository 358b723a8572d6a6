package pick

import (
	"net/http"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// responseObserver learns from the response to one request. What a failed request causes:
//
//	request.Context.ReportHealth         the first health signal of the response counts
//	responseObserver.ObserveHealth       whose response it is, and whether its client may have chosen the endpoint
//	  pool.Detector.ObserveResponse   may eject the endpoint, for all requests or for those for one model
//	  estimate.Estimator                 the prompt is in no cache
//	request.Context.OnResponseEnd        or EndRequest: the request counts as load until the time that ObserveHealth returned
//	  endpoint.Lease.FailUntil           the lease ends, and its endpoint counts it until then
//	  estimate (suspect.go)              several failures in a row: the server seems to have stopped
//	endpoint.Endpoint.ExpireFailed       at each pick and once a second: the load ends
//
// An attempt after which another server got the request (ObserveAttempt, ObserveResponder) is Faulty at once, and its lease moves there.
type responseObserver struct {
	balancer      *Balancer
	record        *request.Record      // of the request; read-only
	lease         *endpoint.Lease      // on the endpoint that answers
	subject       uint64               // see pickState
	prompt        uint64               // hash of its first half
	expectation   estimate.Expectation // of the prompt
	placement     *estimate.Placement  // of the prompt, until it is known whether it was computed; nil without a prompt
	inference     bool                 // see request.Decision
	estimated     bool                 // the profile reads estimates
	stored        bool                 // the request names a stored response, which may be missing
	claimed       bool                 // see pickState
	attemptFailed bool                 // the picked endpoint has failed already
	hasContent    bool                 // the answer has begun
}

// ObserveAttempt records that an attempt failed, and that the request went to another endpoint.
func (o *responseObserver) ObserveAttempt(address string, status int, failure string) {
	b, r := o.balancer, o.record
	e := r.Endpoint
	if address == e.Address() {
		o.attemptFailed = true
	} else if e = b.endpointAt(address); e == nil {
		return
	}
	o.reportHealth(e, request.Faulty, failure)
	e.CountResult(endpoint.ResultOfStatus(status))
}

// ObserveResponder records which endpoint responded. If it is another one than the picked one, the picked one failed before, and the
// request belongs to the other one: its load, its first token, and its prompt in the prefix cache.
func (o *responseObserver) ObserveResponder() {
	b, r := o.balancer, o.record
	if !r.HasMoved() {
		return
	}
	if !o.attemptFailed {
		o.ObserveAttempt(r.Endpoint.Address(), 0, "the gateway sent the request to another endpoint")
	}
	if by := b.endpointAt(r.Served); by != nil { // else it has left the pool: what is known of the request stays with the picked endpoint
		o.lease.MoveTo(by, b.params.Clock.Now())
		o.expectation.Invalidate()
		if o.placement != nil {
			b.params.Estimator.RecordMove(o.placement, by)
		}
	}
}

// ObserveHealth records what the response says about the endpoint that gave it. A failed request leaves no prompt in the cache, and counts
// as load for as long as an answer takes. So does one that ended early for an unknown reason, but its prompt may be in the cache.
func (o *responseObserver) ObserveHealth(h request.HealthReport) (busy time.Time) {
	b, r, v := o.balancer, o.record, h.Signal
	silent := v == request.Silent
	switch {
	case v == request.Answered:
		o.ObserveContent()
	case v == request.Aborted:
		o.withdrawPrompt()
		return time.Time{}
	case silent && !o.waitedInVain():
		return time.Time{}
	case silent:
		v = request.Doubtful
	}
	if by := o.answeringEndpoint(); by != nil {
		o.reportHealth(by, o.serverSignal(v), h.Failure)
		by.CountResult(resultOf(v, h.Status))
	}
	switch {
	case v == request.Answered:
		if o.inference {
			b.meanDuration.addSample(b.params.Clock.Now().Sub(r.DispatchTime()))
		}
		return time.Time{}
	case v == request.Doubtful && !silent && !h.Refused: // the client has gone, perhaps
		o.confirmPrompt()
	default:
		o.withdrawPrompt()
	}
	return r.DispatchTime().Add(b.meanDuration.average())
}

// resultOf returns the result of an attempt, by the health signal and the status of its response; 0 if there was none.
func resultOf(v request.HealthSignal, status int) endpoint.Result {
	if v == request.Answered {
		return endpoint.ResultAnswered
	}
	return endpoint.ResultOfStatus(status)
}

// waitedInVain reports whether a client that has gone makes it doubtful that the server works: there was no content for longer than an
// answer usually takes, or than streams pause. After a failed attempt, it is not known which server has the request.
func (o *responseObserver) waitedInVain() bool {
	b, r := o.balancer, o.record
	since, patience := r.DispatchTime(), b.meanDuration.average()
	if !r.LastContent.IsZero() {
		since, patience = r.LastContent, min(patience, b.params.Estimator.Paces().Stall)
	}
	return b.params.Clock.Now().Sub(since) >= patience && (!o.attemptFailed || r.HasMoved())
}

// answeringEndpoint returns the endpoint that answers, nil if it has left the pool.
func (o *responseObserver) answeringEndpoint() *endpoint.Endpoint {
	by := o.lease.Endpoint()
	if o.record.HasMoved() && by.Address() != o.record.Served {
		return nil
	}
	return by
}

// ObserveContent records that the answer has content, so that its prompt is computed.
func (o *responseObserver) ObserveContent() {
	if o.hasContent {
		return
	}
	o.hasContent = true
	o.confirmPrompt()
	if by := o.answeringEndpoint(); by != nil {
		o.reportHealth(by, request.Begun, "")
	}
	o.balancer.params.Estimator.RecordFirstContent(&o.expectation)
}

// reportHealth passes the health signal of the request, and what was wrong with the response, to the outlier detection of an endpoint.
func (o *responseObserver) reportHealth(e *endpoint.Endpoint, v request.HealthSignal, failure string) {
	r := o.record
	o.balancer.params.Outliers.ObserveResponse(e, pool.Response{
		Signal: v, Placed: r.DispatchTime(), Subject: o.subject, Model: r.Target, ModelMissing: v == request.Doubtful && o.isModelMissing(),
		Prompt: o.prompt, HasContent: o.hasContent, Failure: failure,
	})
}

// isModelMissing reports whether the server says that it does not have the model.
func (o *responseObserver) isModelMissing() bool {
	return o.record.Status == http.StatusNotFound && !o.stored
}

// serverSignal returns a health signal as it counts for the server. A client may choose the server of its wrong requests by a prompt that
// is cached there; other ones come to all servers alike. A missing model is not a wrong request if others answer.
func (o *responseObserver) serverSignal(v request.HealthSignal) request.HealthSignal {
	if r := o.record; v == request.Doubtful && r.PromptTokens > 0 && 2*r.MatchedTokens > r.PromptTokens && !o.isModelMissing() {
		return request.Steered
	}
	return v
}

// confirmPrompt records that the prompt is computed.
func (o *responseObserver) confirmPrompt() {
	if o.placement != nil {
		o.balancer.params.Estimator.ConfirmPlacement(o.placement)
		o.placement = nil
	}
}

// withdrawPrompt records that the prompt is in no cache, as far as is known.
func (o *responseObserver) withdrawPrompt() {
	if o.placement != nil {
		o.balancer.params.Estimator.WithdrawPlacement(o.placement)
		o.placement = nil
	}
}

// endpointAt returns the endpoint with an address, or nil.
func (b *Balancer) endpointAt(address string) *endpoint.Endpoint {
	for _, e := range b.params.Snapshot().Endpoints {
		if e.Address() == address {
			return e
		}
	}
	return nil
}

// ObserveAnswer records the length of the answer, which is now in the cache of the server that served it.
func (o *responseObserver) ObserveAnswer() {
	r := o.record
	if !o.claimed {
		o.balancer.promptClaims.learnLongest(r)
	}
	tokens := r.Usage.Output
	if !r.Usage.Known && r.Streaming {
		tokens = r.ContentPieces // each is about one token
	}
	if !o.estimated {
		return
	}
	by := o.lease.Endpoint()
	o.balancer.params.Estimator.RecordAnswer(by, tokens)
	if began := o.answerStart(); !began.IsZero() {
		o.balancer.params.Estimator.RecordAnswerTimes(by, began, r.LastContent, r.EndTime)
	}
	if r.Status == http.StatusOK && r.Usage.Known {
		cached := -1
		if r.Usage.CachedKnown {
			cached = r.Usage.Cached
		}
		o.balancer.params.Estimator.RecordUsage(&o.expectation, r.Usage.Prompt, cached)
	}
}

// answerStart returns when the first token of the answer came, or of one in one piece, when its request was sent; zero if the picker did
// not see it.
func (o *responseObserver) answerStart() time.Time {
	if o.record.Streaming {
		return o.record.FirstContent
	}
	return o.record.DispatchTime()
}
