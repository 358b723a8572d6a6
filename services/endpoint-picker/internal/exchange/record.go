// Package exchange has what is known of one HTTP exchange when it has ended: the request that a gateway showed, where it
// went, and what was seen of the response. Metrics, traces, the request log and the detection of outliers are made of it.
package exchange

import (
	"time"

	"google.golang.org/grpc/codes"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Outcome says how far the stream of an exchange came. Its values are those of a metric's label.
type Outcome string

// The outcomes of a stream.
const (
	Completed   Outcome = "completed"   // the end of the response was seen
	Interrupted Outcome = "interrupted" // the stream ended in the middle of the response
	Unseen      Outcome = "unseen"      // an endpoint was picked, and the response was not shown
	Unpicked    Outcome = "unpicked"    // the request ended before its endpoint could be picked
	Refused     Outcome = "refused"     // it was answered here
	Failed      Outcome = "failed"      // the gateway broke the protocol, or sent what cannot be received
)

// Outcomes are all of them.
func Outcomes() []Outcome {
	return []Outcome{Completed, Interrupted, Unseen, Unpicked, Refused, Failed}
}

// A Record is one exchange that has ended.
type Record struct {
	Outcome     Outcome
	RequestID   string
	TraceParent string // W3C trace context of the request; empty if it had none
	Path        string

	Model     string // that the client asked for; empty if that is not known
	Target    string // that the server was asked for
	Rewrite   string // "namespace/name" of the InferenceModelRewrite that made the difference
	Fairness  string // whose request it was, as the gateway said
	Objective string // its InferenceObjective, as the gateway said
	Priority  int
	Streaming bool // the answer was asked for, or came, piece by piece

	Endpoint *endpoint.Endpoint // that was picked, nil if none was
	Served   string             // "ip:port" that served, as the gateway said; empty if it did not
	Status   int                // of the response, ours if refused; 0 if it was not seen
	Reason   string             // why the request was refused, for clients

	Began    time.Time     // its stream
	Arrived  time.Time     // the end of its body: when the pick began; zero if it did not come
	PickTook time.Duration // from there to the choice
	First    time.Time     // the first piece of the response's body; zero if there was none
	Ended    time.Time

	RequestBytes  int // of bodies
	ResponseBytes int
	PromptTokens  int // estimated from the body; 0 if there is no prompt
	MatchedTokens int // of those, in the cache of the picked server, as far as is known
	Pieces        int // of the response's body that were not empty
	Usage         Usage

	Placed bool       // observers were told of the pick when it was made
	Code   codes.Code // that its stream ended with
	Span   Span
	Scores []Score // of the candidates, if somebody wants to see them
}

// A Span is the part of a trace that an exchange is. Its ID is zero as long as nobody has decided whether it is traced.
type Span struct {
	Trace   [16]byte
	ID      [8]byte
	Sampled bool
}

// A Score is how one candidate was rated when the endpoint was picked.
type Score struct {
	Endpoint *endpoint.Endpoint
	Total    float64 // of all scorers, weighted
	Wait     float64 // seconds to the first token that were expected of it
	Matched  int     // tokens of the prompt in its cache
}

// Usage is what the model server said it did.
type Usage = answer.Usage

// Moved tells whether another endpoint than the picked one served the response.
func (r *Record) Moved() bool {
	return r.Endpoint != nil && r.Served != "" && r.Served != r.Endpoint.Address()
}
