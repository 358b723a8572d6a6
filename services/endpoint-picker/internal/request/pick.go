package request

import (
	"context"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// A Pool decides which model server gets a request.
type Pool interface {
	// OnRequestStart is called at the start of each request.
	OnRequestStart()
	// PlaceRequest picks an endpoint and counts the request there, or refuses the request. It may wait until ctx ends. It keeps no
	// reference to the input.
	PlaceRequest(ctx context.Context, in *PickInput) (PickResult, *Refusal)
	// OnRequestEnd is called once at the end of each request.
	OnRequestEnd(r *Record)
}

// A PickInput is what a pick reads of a request.
type PickInput struct {
	Incoming    api.Incoming       // set only during the pick
	Subset      *scheduling.Subset // what the gateway allows; nil allows everything
	ArrivalTime time.Time          // end of the request's body
	MaxWait     *time.Duration     // for an endpoint, from the sender; nil: it did not say
	RankingSize int                // maximum length of Decision.Ranking: more than 0 for carriers that send requests themselves
	LateFirst   bool               // the carrier knows the first token only after the answer, if at all
	Blind       bool               // the carrier does not see the body of the response
}

// A PickResult is what a pick returns, which the request applies to its record and to its messages.
type PickResult struct {
	PickRecord
	Decision

	Pending PendingPick // nil if the request is refused
}

// A Decision is what a pick changes in the messages of a request.
type Decision struct {
	Placements  Placements
	Destination string                // "ip:port", or several separated by commas: fallbacks for failures
	Set         api.Headers           // on the request
	Remove      []string              // headers of the request
	Edit        Edit                  // of the request's body
	Restore     *api.ModelRenamer     // restores the model name in the response, nil if not needed
	UsageFormat api.AnswerFormat      // format of the usage in the response
	ResponseID  *api.ResponseIDReader // of a response that the server may store; nil for others
	Generates   bool                  // the model computes something for the request, so that servers with the model answer it alike
	Inference   bool                  // the request is for a known API of inference, whose answers have a known form
	Reply       api.Headers           // to set on the response
	Conformance bool                  // report endpoints as the conformance tests of gateways expect
	Ranking     []Score               // the best candidates, the picked one first, if PickInput.RankingSize asks for them
}

// An Edit replaces a part of a body. An empty one changes nothing.
type Edit struct {
	api.Span

	Replacement []byte
}

// GrowthBytes returns the number of bytes that the body grows by.
func (e Edit) GrowthBytes() int {
	if e.Replacement == nil {
		return 0
	}
	return len(e.Replacement) - (e.To - e.From)
}

// A PendingPick is a pick of which the sender of the request does not know yet. Exactly one of its methods is called, once.
type PendingPick interface {
	// CommitPick is called when the sender of the request has the endpoint. The record changes after the call; the ResponseObserver may
	// read it while one of its methods is called.
	CommitPick(r *Record) ResponseObserver
	// DiscardPick is called if the request is not sent.
	DiscardPick()
}

// A ResponseObserver learns from the response to a placed request. Its methods are called after the record has changed.
type ResponseObserver interface {
	// ObserveResponder is called when the status of the response, and the endpoint that gave it, are known.
	ObserveResponder()
	// ObserveContent is called with the first content of a successful answer.
	ObserveContent()
	// ObserveAnswer is called at the end of the response.
	ObserveAnswer()
	// ObserveAttempt is called for each failed attempt at a server before the last one, with its "ip:port", the status of the response, 0
	// if there was none, and what was wrong.
	ObserveAttempt(address string, status int, failure string)
	// ObserveHealth is called once, unless nothing is known of the response. A request that failed, as far as is known, counts as load of
	// its server until the time that it returns; zero if it did not.
	ObserveHealth(h HealthReport) (busy time.Time)
}

// A HealthReport is a health signal with its reason.
type HealthReport struct {
	Signal  HealthSignal
	Status  int    // of the response, 0 if there was none
	Failure string // what was wrong with the response, for logs, if it failed
	Refused bool   // the server answered with something other than what the request asks for
}
