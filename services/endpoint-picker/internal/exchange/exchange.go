package exchange

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/status"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// HeaderRequestID is the header with the identifier of a request.
	HeaderRequestID = "x-request-id"
	// HeaderTrace is the header of the W3C trace context.
	HeaderTrace = "traceparent"
	// HeaderDestination is the request header with the picked endpoint, for gateways. A client's own must be removed.
	HeaderDestination = "x-gateway-destination-endpoint"
	// HeaderDropped is the response header with the reason why a request was refused.
	HeaderDropped = "x-llm-d-request-dropped-reason"
	// HeaderPicked is the response header with the picked endpoint, if enabled.
	HeaderPicked = "x-fairlead-picked-endpoint"
	// HeaderServed is the response header that conformance tests of gateways read: the endpoint that served.
	HeaderServed = "x-conformance-test-served-endpoint"
	// headerEcho makes the echo server of these tests set a response header, "name:value".
	headerEcho = "x-echo-set-header"
)

// A Pool decides which model server gets a request. It observes every exchange.
type Pool interface {
	// Began is called at the start of an exchange.
	Began()
	// Prepare reads a request. It does not wait.
	Prepare(x *Exchange) (Pick, *Refusal)
	// Picked is called after each pick, successful or not.
	Picked(x *Exchange, refusal *Refusal)
	// Sent is called when the sender of the request has the endpoint. The record changes after the call.
	Sent(r *Record)
	// Ended is called once at the end of each exchange.
	Ended(x *Exchange)
}

// A Pick is the placement of one prepared request. Its methods are called in order; after Sent or Discard, none is.
type Pick interface {
	// Admit returns when the request may be placed. It may wait until ctx ends.
	Admit(ctx context.Context) *Refusal
	// Place picks an endpoint and counts the request there.
	Place() *Refusal
	// Sent is called when the sender of the request has the endpoint.
	Sent() Follower
	// Discard is called in place of the remaining methods if the request is not sent.
	Discard()
}

// A Follower learns from the response to a placed request.
type Follower interface {
	// Responded is called when the status of the response is known.
	Responded()
	// Began is called with the first content of a successful answer.
	Began()
	// Completed is called at the end of the response.
	Completed()
	// Failed is called for each attempt at a server before the last one, with its "ip:port", and what was wrong (Exchange.Failure).
	Failed(address, failure string)
	// Judged is called once, unless nothing is known of the response. A request that failed, as far as is known, counts as load of its
	// server until the time that it returns; zero if it did not.
	Judged(v Verdict) (busy time.Time)
}

// A Tracer adds requests to traces.
type Tracer interface {
	// Begin returns the span of a request, and the traceparent to forward, empty if it stays unchanged.
	Begin(traceparent string) (Span, string)
}

// Options are the options that all exchanges share.
type Options struct {
	Tracer Tracer // nil if tracing is disabled
	Now    func() time.Time
	NewID  func() string // identifies requests whose gateway did not; nil: they have no identifier
	// Ranking is the maximum length of Decision.Ranking: more than 0 for carriers that send requests themselves.
	Ranking int
}

// An Exchange is one HTTP exchange in progress. It is not safe for concurrent use.
type Exchange struct {
	Record
	Decision

	Incoming  api.Incoming       // its body is set only during the pick
	Subset    *scheduling.Subset // what the gateway allows; nil allows everything
	LateFirst bool               // the carrier knows the first token only after the answer, if at all
	Blind     bool               // the carrier does not see the body of the response
	MaxWait   *time.Duration     // for an endpoint, from the sender; nil: it did not say

	options    *Options
	newID      bool // the request came without an identifier
	pool       Pool
	pick       Pick     // until it is sent
	follower   Follower // after that
	stage      stage
	reader     answer.Reader
	otherForm  bool      // the form of the answer is not the requested one, so that its first piece is no first token
	page       bool      // the body is HTML
	unasked    bool      // see Response.Unasked
	wrongBody  bool      // the status promises an answer, and the body has none
	hidden     bool      // Chunk is not called
	judged     bool      // see Judge
	unanswered bool      // no server answered, so that the status is the carrier's
	busy       time.Time // see Follower.Judged
}

// A Decision is the result of a pick.
type Decision struct {
	Placements  Placements
	Destination string           // "ip:port", or several separated by commas: fallbacks for failures
	Set         api.Headers      // on the request
	Remove      []string         // headers of the request
	Edit        Edit             // of the request's body
	Restore     *answer.Renamer  // restores the model name in the response, nil if not needed
	UsageForm   answer.Form      // format of the usage in the response
	ResponseID  *answer.IDReader // of a response that the server may store; nil for others
	Generates   bool             // the model computes something for the request, so that servers with the model answer it alike
	Inference   bool             // the request is for a known API of inference, whose answers have a known form
	Subject     uint64           // hash of the API and the model of the request
	Reply       api.Headers      // to set on the response
	Conformance bool             // report endpoints as the conformance tests of gateways expect
	Ranking     []Score          // the best candidates, the picked one first, if Options ask for them
}

// An Edit replaces a part of a body. An empty one changes nothing.
type Edit struct {
	jsonscan.Span

	With []byte
}

// Growth returns the number of bytes that the body grows by.
func (e Edit) Growth() int {
	if e.With == nil {
		return 0
	}
	return len(e.With) - (e.To - e.From)
}

// stage is the progress of an exchange; see the package comment.
type stage uint8

const (
	receiving stage = iota
	refused
	placed
	responding
	completed
)

// Begin begins the exchange of a request for a pool.
func (x *Exchange) Begin(p Pool, o *Options) {
	x.pool, x.options, x.Began = p, o, o.Now()
	p.Began()
}

// Receive takes over the request's headers.
func (x *Exchange) Receive(r *Request) {
	x.Path, x.RequestID, x.TraceParent, x.Subset = r.Path, r.ID, r.TraceParent, r.Subset
	if x.newID = x.RequestID == "" && x.options.NewID != nil; x.newID {
		x.RequestID = x.options.NewID()
	}
	x.Incoming = api.Incoming{Path: r.Path, Headers: r.Headers}
	x.Remove = r.Private
}

// Decide places the request after its whole body has arrived, or refuses it. It may wait until ctx ends. It keeps no
// reference to the body.
func (x *Exchange) Decide(ctx context.Context, body []byte) *Refusal {
	x.Arrived = x.options.Now()
	x.Incoming.Body = body
	pick, refusal := x.decide(ctx)
	x.Incoming = api.Incoming{}
	x.PickTook = x.options.Now().Sub(x.Dispatched())
	x.pool.Picked(x, refusal)
	if refusal != nil {
		return x.Refuse(refusal)
	}
	x.pick, x.stage, x.reader.Form = pick, placed, x.UsageForm
	if x.Conformance {
		x.Set = append(x.Set, api.Header{Name: headerEcho, Value: HeaderServed + ":" + x.Endpoint.Address()})
	}
	if x.newID {
		x.Set = append(x.Set, api.Header{Name: HeaderRequestID, Value: x.RequestID})
	}
	if x.options.Tracer != nil {
		x.trace()
	}
	return nil
}

// Strict reports whether the forms of answers are known, so that other bodies are not answers.
func (x *Exchange) Strict() bool {
	return x.Inference && x.UsageForm != answer.FormOpen && x.UsageForm != answer.FormLists
}

// RankingSize returns the maximum length of the ranking of candidates.
func (x *Exchange) RankingSize() int { return x.options.Ranking }

func (x *Exchange) decide(ctx context.Context) (Pick, *Refusal) {
	pick, refusal := x.pool.Prepare(x)
	if refusal != nil {
		return nil, refusal
	}
	if refusal = pick.Admit(ctx); refusal == nil {
		refusal = pick.Place()
	}
	if refusal != nil {
		pick.Discard()
	}
	return pick, refusal
}

// trace begins the request's span, and makes it the parent of the model server's spans.
func (x *Exchange) trace() {
	span, header := x.options.Tracer.Begin(x.TraceParent)
	x.Span = span
	if header != "" {
		x.Set = append(x.Set, api.Header{Name: HeaderTrace, Value: header})
	}
}

// Refuse records that the picker answers the request itself, unless its client has gone. It returns the refusal.
func (x *Exchange) Refuse(r *Refusal) *Refusal {
	if x.Queue == EvictedContextCancelled {
		return r
	}
	x.stage, x.Status, x.Reason = refused, r.Code, r.Reason
	return r
}

// Sent records that the sender of the request has the pick. It does nothing before the pick, and the second time.
func (x *Exchange) Sent() {
	if x.pick == nil {
		return
	}
	x.follower = x.pick.Sent()
	x.pick, x.Placed = nil, true
	x.pool.Sent(&x.Record)
}

// Respond records the headers of the response. A response to a request that was not placed comes from the gateway itself.
func (x *Exchange) Respond(r *Response) {
	x.Status, x.Served, x.page, x.hidden = r.Status, r.Served, r.Page, r.Hidden
	x.unanswered, x.unasked = r.Unanswered, r.Unasked
	x.otherForm = x.Streaming && !r.Events && x.Inference && x.UsageForm != answer.FormVLLM
	x.Streaming = x.Streaming || r.Events
	x.reader.Events, x.reader.Strict, x.reader.Bytes = r.Events && !r.Encoded, x.Strict() && !r.Encoded, r.Encoded || r.Bytes
	if r.Encoded || r.Hidden {
		x.Restore = nil // a body that is compressed, or not shown, cannot be rewritten
	}
	if x.Placements.Answering() == nil {
		return
	}
	x.Sent() // whoever has a response has sent the request
	x.follower.Responded()
	if !r.Hidden {
		x.stage = responding
	}
	x.Judge(x.verdictOf(r.Status))
}

// Failed records that an attempt at a server failed, with the status of the response, 0 if there was none, and that the request goes to
// another one.
func (x *Exchange) Failed(address string, code int) {
	x.Sent()
	x.follower.Failed(address, failureOf(code))
}

// Chunk records a chunk of the response's body.
func (x *Exchange) Chunk(chunk []byte) {
	if len(chunk) == 0 || x.Placements.Answering() == nil {
		return
	}
	x.ResponseBytes += len(chunk)
	if n := x.reader.Read(chunk); n > 0 {
		x.Pieces += n
		x.Last = x.options.Now()
		if !x.First.IsZero() {
			x.Placements.continued(x.Last)
		} else if x.first(x.Last) && (x.reader.Events || x.UsageForm == answer.FormVLLM) {
			x.follower.Began() // a body that is no stream says nothing before it is whole
		}
	}
	if x.Inference && x.reader.Errors() > 0 {
		x.Judge(Faulty)
	}
	if x.ResponseID != nil {
		x.ResponseID.Read(chunk)
	}
}

// FirstToken records when the answer began. Carriers that do not see the response's body call it in place of Chunk, after
// Respond. Only the first call counts.
func (x *Exchange) FirstToken(at time.Time) {
	if x.first(at) {
		x.follower.Began()
	}
}

// first records the first content. It reports whether that is the beginning of an answer.
func (x *Exchange) first(at time.Time) bool {
	if !x.First.IsZero() || x.Placements.Answering() == nil {
		return false
	}
	x.First = at
	if x.Status != http.StatusOK || x.otherForm || x.page {
		return false
	}
	x.Placements.first(at)
	return x.follower != nil
}

// Complete records the end of the response.
func (x *Exchange) Complete() {
	if x.Placements.Answering() != nil {
		x.Sent()
		x.stage = completed
		x.Judge(x.verdictOfBody())
		x.release()
	}
}

// Absent records that the model server does not have the request, although it was sent there, as far as the carrier knows. The request
// stops counting as load. Its response may still come.
func (x *Exchange) Absent() { x.Placements.abandon(x.options.Now()) }

// release ends the load of the request.
func (x *Exchange) release() {
	if !x.busy.IsZero() {
		x.Placements.hold(endpoint.Span{Arrived: x.Dispatched(), Until: x.busy}, x.options.Now())
		return
	}
	x.Placements.release()
}

// End ends the exchange, with the error of its carrier, if any. It is called once.
func (x *Exchange) End(err error) {
	x.Ended, x.Outcome, x.Code = x.options.Now(), x.stage.outcome(), status.Code(err)
	if !x.Usage.Known { // the carrier did not set it, because it passed the body to Chunk
		x.Usage = x.reader.Usage()
	}
	if err != nil {
		x.Outcome = Failed
	}
	unsent := x.pick != nil
	if unsent {
		x.pick.Discard()
		x.pick = nil
	}
	if x.stage == placed && !unsent {
		x.Placements.abandon(x.Ended) // the server has the request, and its end is unknown
	} else { // the server does not get the request, the client has gone, or the response is complete
		x.release()
	}
	if x.Outcome == Completed {
		x.follower.Completed()
	}
	x.pool.Ended(x)
}

// outcome returns the outcome of an exchange that ends at this stage.
func (s stage) outcome() Outcome {
	switch s {
	case refused:
		return Refused
	case placed:
		return Unseen
	case responding:
		return Interrupted
	case completed:
		return Completed
	default:
		return Unpicked
	}
}
