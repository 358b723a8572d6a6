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
	// OnStart is called at the start of an exchange.
	OnStart()
	// PreparePick reads a request. It does not wait.
	PreparePick(x *RequestContext) (Pick, *Refusal)
	// OnPick is called after each pick, successful or not.
	OnPick(x *RequestContext, refusal *Refusal)
	// OnSend is called when the sender of the request has the endpoint. The record changes after the call.
	OnSend(r *Record)
	// OnEnd is called once at the end of each exchange.
	OnEnd(x *RequestContext)
}

// A Pick is the placement of one prepared request. Its methods are called in order; after MarkSent or Discard, none is.
type Pick interface {
	// Admit returns when the request may be placed. It may wait until ctx ends.
	Admit(ctx context.Context) *Refusal
	// PlaceRequest picks an endpoint and counts the request there.
	PlaceRequest() *Refusal
	// MarkSent is called when the sender of the request has the endpoint.
	MarkSent() ResponseObserver
	// Discard is called in place of the remaining methods if the request is not sent.
	Discard()
}

// A ResponseObserver learns from the response to a placed request.
type ResponseObserver interface {
	// OnResponseStatus is called when the status of the response is known.
	OnResponseStatus()
	// OnFirstContent is called with the first content of a successful answer.
	OnFirstContent()
	// OnResponseEnd is called at the end of the response.
	OnResponseEnd()
	// OnFailedAttempt is called for each attempt at a server before the last one, with its "ip:port", and what was wrong (RequestContext.DescribeFailure).
	OnFailedAttempt(address, failure string)
	// OnHealthSignal is called once, unless nothing is known of the response. A request that failed, as far as is known, counts as load of its
	// server until the time that it returns; zero if it did not.
	OnHealthSignal(v HealthSignal) (busy time.Time)
}

// A Tracer adds requests to traces.
type Tracer interface {
	// StartSpan returns the span of a request, and the traceparent to forward, empty if it stays unchanged.
	StartSpan(traceparent string) (Span, string)
}

// Options are the options that all exchanges share.
type Options struct {
	Tracer Tracer // nil if tracing is disabled
	Now    func() time.Time
	NewID  func() string // identifies requests whose gateway did not; nil: they have no identifier
	// Ranking is the maximum length of Decision.Ranking: more than 0 for carriers that send requests themselves.
	Ranking int
}

// A RequestContext is one request in progress, from its headers to the end of its response. It is not safe for concurrent use.
type RequestContext struct {
	Record
	Decision

	Incoming  api.Incoming       // its body is set only during the pick
	Subset    *scheduling.Subset // what the gateway allows; nil allows everything
	LateFirst bool               // the carrier knows the first token only after the answer, if at all
	Blind     bool               // the carrier does not see the body of the response
	MaxWait   *time.Duration     // for an endpoint, from the sender; nil: it did not say

	options            *Options
	idGenerated        bool // the request came without an identifier
	pool               Pool
	pick               Pick             // until it is sent
	responseObserver   ResponseObserver // after that
	stage              stage
	reader             answer.Reader
	unexpectedFormat   bool      // the form of the answer is not the requested one, so that its first piece is no first token
	htmlBody           bool      // the body is HTML
	unacceptedEncoding bool      // see ResponseHeaders.UnacceptedEncoding
	wrongBody          bool      // the status promises an answer, and the body has none
	hidden             bool      // OnResponseChunk is not called
	signaled           bool      // see ReportHealth
	unanswered         bool      // no server answered, so that the status is the carrier's
	busyUntil          time.Time // see ResponseObserver.OnHealthSignal
}

// A Decision is the result of a pick.
type Decision struct {
	Placements  Placements
	Destination string           // "ip:port", or several separated by commas: fallbacks for failures
	Set         api.Headers      // on the request
	Remove      []string         // headers of the request
	Edit        Edit             // of the request's body
	Restore     *answer.Renamer  // restores the model name in the response, nil if not needed
	UsageFormat answer.Format    // format of the usage in the response
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

	Replacement []byte
}

// GrowthBytes returns the number of bytes that the body grows by.
func (e Edit) GrowthBytes() int {
	if e.Replacement == nil {
		return 0
	}
	return len(e.Replacement) - (e.To - e.From)
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

// Start begins the exchange of a request for a pool.
func (x *RequestContext) Start(p Pool, o *Options) {
	x.pool, x.options, x.StartTime = p, o, o.Now()
	p.OnStart()
}

// SetRequestHeaders takes over the request's headers.
func (x *RequestContext) SetRequestHeaders(r *RequestHeaders) {
	x.Path, x.RequestID, x.TraceParent, x.Subset = r.Path, r.ID, r.TraceParent, r.Subset
	if x.idGenerated = x.RequestID == "" && x.options.NewID != nil; x.idGenerated {
		x.RequestID = x.options.NewID()
	}
	x.Incoming = api.Incoming{Path: r.Path, Headers: r.Headers}
	x.Remove = r.Private
}

// PickEndpoint places the request after its whole body has arrived, or refuses it. It may wait until ctx ends. It keeps no
// reference to the body.
func (x *RequestContext) PickEndpoint(ctx context.Context, body []byte) *Refusal {
	x.ArrivalTime = x.options.Now()
	x.Incoming.Body = body
	pick, refusal := x.pickFromPool(ctx)
	x.Incoming = api.Incoming{}
	x.PickDuration = x.options.Now().Sub(x.DispatchTime())
	x.pool.OnPick(x, refusal)
	if refusal != nil {
		return x.RefuseRequest(refusal)
	}
	x.pick, x.stage, x.reader.Format = pick, placed, x.UsageFormat
	if x.Conformance {
		x.Set = append(x.Set, api.Header{Name: headerEcho, Value: HeaderServed + ":" + x.Endpoint.Address()})
	}
	if x.idGenerated {
		x.Set = append(x.Set, api.Header{Name: HeaderRequestID, Value: x.RequestID})
	}
	if x.options.Tracer != nil {
		x.startSpan()
	}
	return nil
}

// HasKnownFormat reports whether the forms of answers are known, so that other bodies are not answers.
func (x *RequestContext) HasKnownFormat() bool {
	return x.Inference && x.UsageFormat != answer.FormatOpen && x.UsageFormat != answer.FormatLists
}

// RankingSize returns the maximum length of the ranking of candidates.
func (x *RequestContext) RankingSize() int { return x.options.Ranking }

func (x *RequestContext) pickFromPool(ctx context.Context) (Pick, *Refusal) {
	pick, refusal := x.pool.PreparePick(x)
	if refusal != nil {
		return nil, refusal
	}
	if refusal = pick.Admit(ctx); refusal == nil {
		refusal = pick.PlaceRequest()
	}
	if refusal != nil {
		pick.Discard()
	}
	return pick, refusal
}

// startSpan begins the request's span, and makes it the parent of the model server's spans.
func (x *RequestContext) startSpan() {
	span, header := x.options.Tracer.StartSpan(x.TraceParent)
	x.Span = span
	if header != "" {
		x.Set = append(x.Set, api.Header{Name: HeaderTrace, Value: header})
	}
}

// RefuseRequest records that the picker answers the request itself, unless its client has gone. It returns the refusal.
func (x *RequestContext) RefuseRequest(r *Refusal) *Refusal {
	if x.Queue == EvictedContextCancelled {
		return r
	}
	x.stage, x.Status, x.Reason = refused, r.Code, r.Reason
	return r
}

// MarkSent records that the sender of the request has the pick. It does nothing before the pick, and the second time.
func (x *RequestContext) MarkSent() {
	if x.pick == nil {
		return
	}
	x.responseObserver = x.pick.MarkSent()
	x.pick, x.Placed = nil, true
	x.pool.OnSend(&x.Record)
}

// OnResponseHeaders records the headers of the response. A response to a request that was not placed comes from the gateway itself.
func (x *RequestContext) OnResponseHeaders(r *ResponseHeaders) {
	x.Status, x.Served, x.htmlBody, x.hidden = r.Status, r.Served, r.HTML, r.Hidden
	x.unanswered, x.unacceptedEncoding = r.Unanswered, r.UnacceptedEncoding
	x.unexpectedFormat = x.Streaming && !r.Events && x.Inference && x.UsageFormat != answer.FormatVLLM
	x.Streaming = x.Streaming || r.Events
	x.reader.Events, x.reader.Strict, x.reader.Bytes = r.Events && !r.Encoded, x.HasKnownFormat() && !r.Encoded, r.Encoded || r.Bytes
	if r.Encoded || r.Hidden {
		x.Restore = nil // a body that is compressed, or not shown, cannot be rewritten
	}
	if x.Placements.AnsweringLease() == nil {
		return
	}
	x.MarkSent() // whoever has a response has sent the request
	x.responseObserver.OnResponseStatus()
	if !r.Hidden {
		x.stage = responding
	}
	x.ReportHealth(x.signalOfStatus(r.Status))
}

// OnFailedAttempt records that an attempt at a server failed, with the status of the response, 0 if there was none, and that the request goes to
// another one.
func (x *RequestContext) OnFailedAttempt(address string, code int) {
	x.MarkSent()
	x.responseObserver.OnFailedAttempt(address, describeStatus(code))
}

// OnResponseChunk records a chunk of the response's body.
func (x *RequestContext) OnResponseChunk(chunk []byte) {
	if len(chunk) == 0 || x.Placements.AnsweringLease() == nil {
		return
	}
	x.ResponseBytes += len(chunk)
	if n := x.reader.ReadPiece(chunk); n > 0 {
		x.ContentPieces += n
		x.LastContent = x.options.Now()
		if !x.FirstContent.IsZero() {
			x.Placements.markMoreContent(x.LastContent)
		} else if x.recordFirstContent(x.LastContent) && (x.reader.Events || x.UsageFormat == answer.FormatVLLM) {
			x.responseObserver.OnFirstContent() // a body that is no stream says nothing before it is whole
		}
	}
	if x.Inference && x.reader.ErrorCount() > 0 {
		x.ReportHealth(Faulty)
	}
	if x.ResponseID != nil {
		x.ResponseID.ReadPiece(chunk)
	}
}

// OnFirstToken records when the answer began. Carriers that do not see the response's body call it in place of OnResponseChunk,
// after OnResponseHeaders. Only the first call counts.
func (x *RequestContext) OnFirstToken(at time.Time) {
	if x.recordFirstContent(at) {
		x.responseObserver.OnFirstContent()
	}
}

// recordFirstContent records the first content. It reports whether that is the beginning of an answer.
func (x *RequestContext) recordFirstContent(at time.Time) bool {
	if !x.FirstContent.IsZero() || x.Placements.AnsweringLease() == nil {
		return false
	}
	x.FirstContent = at
	if x.Status != http.StatusOK || x.unexpectedFormat || x.htmlBody {
		return false
	}
	x.Placements.markFirstContent(at)
	return x.responseObserver != nil
}

// OnResponseEnd records the end of the response.
func (x *RequestContext) OnResponseEnd() {
	if x.Placements.AnsweringLease() != nil {
		x.MarkSent()
		x.stage = completed
		x.ReportHealth(x.signalOfBody())
		x.releaseLoad()
	}
}

// MarkNotReceived records that the model server does not have the request, although it was sent there, as far as the carrier knows. The request
// stops counting as load. Its response may still come.
func (x *RequestContext) MarkNotReceived() { x.Placements.abandonAll(x.options.Now()) }

// releaseLoad ends the load of the request.
func (x *RequestContext) releaseLoad() {
	if !x.busyUntil.IsZero() {
		x.Placements.holdAll(endpoint.LoadSpan{Arrived: x.DispatchTime(), Until: x.busyUntil}, x.options.Now())
		return
	}
	x.Placements.releaseAll()
}

// EndRequest ends the exchange, with the error of its carrier, if any. It is called once.
func (x *RequestContext) EndRequest(err error) {
	x.EndTime, x.Outcome, x.Code = x.options.Now(), x.stage.toOutcome(), status.Code(err)
	if !x.Usage.Known { // the carrier did not set it, because it passed the body to OnResponseChunk
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
		x.Placements.abandonAll(x.EndTime) // the server has the request, and its end is unknown
	} else { // the server does not get the request, the client has gone, or the response is complete
		x.releaseLoad()
	}
	if x.Outcome == Completed {
		x.responseObserver.OnResponseEnd()
	}
	x.pool.OnEnd(x)
}

// toOutcome returns the outcome of an exchange that ends at this stage.
func (s stage) toOutcome() Outcome {
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
