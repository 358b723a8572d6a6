// Package request follows one request through the picker, whatever carries it: a stream of ext_proc, the proxy's listener, a call of the
// decision API, or a simulation. The carrier calls the methods of a Context in this order:
//
//	method                      stage       outcome if it ends here
//	StartRequest,
//	SetRequestHeaders           receiving   unpicked
//	RefuseRequest               refused     refused
//	PickEndpoint, ConfirmSent   placed      unseen: the lease is abandoned, because the server still has the request
//	OnResponseHeaders,
//	OnResponseChunk, ...        responding  interrupted
//	OnResponseEnd               completed   completed
//	EndRequest                              the record
//
// Between ConfirmSent and OnResponseHeaders, OnFailedAttempt is called for each attempt at another server. From ConfirmSent on,
// ReportHealth or OnClientGone may be called when the response ends early; the first health signal counts.
//
// A request that the gateway answers itself is not placed: its stage stays receiving. If the gateway does not show the
// body of the response, the stage stays placed until its end is known.
//
// The Record of a finished request is the input of metrics, traces, the request log and the debug page.
package request

import (
	"time"

	"google.golang.org/grpc/codes"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Outcome is how far the stream of a request came. Its values are values of a metric's label.
type Outcome string

// The outcomes of a stream.
const (
	Completed   Outcome = "completed"   // the end of the response was observed
	Interrupted Outcome = "interrupted" // the stream ended during the response
	Unseen      Outcome = "unseen"      // an endpoint was picked, but the gateway did not send the response
	Unpicked    Outcome = "unpicked"    // the request ended before the pick
	Refused     Outcome = "refused"     // the picker answered the request
	Failed      Outcome = "failed"      // the gateway violated the protocol, or a message could not be received
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Completed, Interrupted, Unseen, Unpicked, Refused, Failed}
}

// QueueOutcome is how a request left the queue of those that wait for an endpoint. Its values are those of the llm-d router.
type QueueOutcome string

// The outcomes of requests in the queue. The empty one is that of a request that did not wait.
const (
	Dispatched              QueueOutcome = "Dispatched"
	RejectedCapacity        QueueOutcome = "RejectedCapacity"        // the queue was full
	EvictedNoEndpoints      QueueOutcome = "EvictedNoEndpoints"      // no endpoint came in time
	EvictedContextCancelled QueueOutcome = "EvictedContextCancelled" // its client left
	EvictedOther            QueueOutcome = "EvictedOther"            // the picker wanted its place, or ends
)

// A Record describes one finished request.
type Record struct {
	PickRecord

	Outcome     Outcome
	RequestID   string
	TraceParent string // W3C trace context of the request; empty if it had none
	Path        string

	Served string // "ip:port" that served, from the gateway; empty if unknown
	Status int    // of the response, ours if refused; 0 if unobserved
	Reason string // why the request was refused, for clients

	StartTime    time.Time // start of the stream
	ArrivalTime  time.Time // end of the request's body; zero if it did not arrive
	FirstContent time.Time // the first content of the response's body (api.AnswerReader); zero if there was none
	LastContent  time.Time // the last content; zero if the carrier does not see the body
	EndTime      time.Time

	RequestBytes  int // size of the bodies
	ResponseBytes int
	ContentPieces int // events of the response with content; without events, pieces of its body
	Usage         Usage

	Placed bool       // observers were notified at the time of the pick
	Code   codes.Code // final status of the stream
	Span   Span
}

// A Span is the request's part of a trace. Its ID is zero until the decision whether to trace it.
type Span struct {
	Trace   [16]byte
	ID      [8]byte
	Sampled bool
}

// A PickRecord is the part of a Record that the pick writes. A refused pick writes what it found out before.
type PickRecord struct {
	Model     string // requested by the client; empty if unknown
	Target    string // requested from the server
	Rewrite   string // "namespace/name" of the InferenceModelRewrite that changed the model
	Fairness  string // flow of the request, from the gateway
	Objective string // its InferenceObjective, from the gateway
	Priority  int
	Streaming bool // the client requested a stream; later: or the answer was one

	Endpoint      *endpoint.Endpoint // the picked endpoint, nil if none
	PoolSize      int                // endpoints of the pool at the time of the pick
	Queue         QueueOutcome
	QueueTime     time.Duration // for an endpoint, before the pick began
	PickDuration  time.Duration // duration of the pick, without QueueTime
	PromptTokens  int           // estimated from the body; 0 without a prompt
	FixedTokens   int           // the same with a fixed length of a token in bytes, the unit of Prefixes
	MatchedTokens int           // tokens of the prompt in the cache of the picked server, estimated

	Scores []Score // of the candidates, if enabled
	// Prefixes are hashes of the prompt's beginnings, if enabled: of each PrefixTokens tokens and everything before, and of the whole
	// prompt if it ends between two of them. They end where the picker does not read on.
	Prefixes []uint64
}

// PrefixTokens is the number of prompt tokens of each of a Record's Prefixes. The format of recordings fixes it.
const PrefixTokens = 512

// PrefixCount returns the number of prefixes of a prompt with a number of tokens.
func PrefixCount(tokens int) int { return (tokens + PrefixTokens - 1) / PrefixTokens }

// A Score is the rating of one candidate of a pick.
type Score struct {
	Endpoint *endpoint.Endpoint
	Total    float64 // of all scorers, weighted
	Wait     float64 // expected seconds to the first token
	Matched  int     // tokens of the prompt in its cache
}

// Usage is the token usage that the model server reported.
type Usage = api.Usage

// DispatchTime returns when the pick began: after the arrival of the request, and its wait for an endpoint.
func (r *Record) DispatchTime() time.Time { return r.ArrivalTime.Add(r.QueueTime) }

// HasMoved reports whether another endpoint than the picked one served the response.
func (r *Record) HasMoved() bool {
	return r.Endpoint != nil && r.Served != "" && r.Served != r.Endpoint.Address()
}
