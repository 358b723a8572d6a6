package request

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/status"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// A Tracer adds requests to traces.
type Tracer interface {
	// StartSpan returns the span of a request, and the traceparent to forward, empty if it stays unchanged.
	StartSpan(traceparent string) (Span, string)
}

// Options are the options that all requests share.
type Options struct {
	Tracer         Tracer // nil if tracing is disabled
	Now            func() time.Time
	NewID          func() string  // identifies requests whose gateway did not; nil: they have no identifier
	Wanted         *WantedHeaders // for carriers, which read them
	Ranking        int            // see PickInput.RankingSize; carriers set it
	ReportEndpoint bool           // name the picked endpoint in the response's headers
}

// A Context is one request in progress, from its headers to the end of its response. It is not safe for concurrent use.
type Context struct {
	Record
	Decision

	Input PickInput

	options            *Options
	idGenerated        bool // the request came without an identifier
	pool               Pool
	pendingPick        PendingPick      // until it is sent
	responseObserver   ResponseObserver // after that
	stage              stage
	reader             api.AnswerReader
	unexpectedFormat   bool      // the form of the answer is not the requested one, so that its first piece is no first token
	htmlBody           bool      // the body is HTML
	unacceptedEncoding bool      // see ResponseHeaders.UnacceptedEncoding
	wrongBody          bool      // the status promises an answer, and the body has none
	hidden             bool      // OnResponseChunk is not called
	signaled           bool      // see ReportHealth
	unanswered         bool      // no server answered, so that the status is the carrier's
	busyUntil          time.Time // see ResponseObserver.ObserveHealth
}

// stage is the progress of a request; see the package comment.
type stage uint8

const (
	receiving stage = iota
	refused
	placed
	responding
	completed
)

// outcomes are the outcomes of requests that end at a stage.
var outcomes = [...]Outcome{receiving: Unpicked, refused: Refused, placed: Unseen, responding: Interrupted, completed: Completed}

// StartRequest begins the life of a request for a pool.
func (rc *Context) StartRequest(p Pool, o *Options) {
	rc.pool, rc.options, rc.StartTime = p, o, o.Now()
	p.OnRequestStart()
}

// SetRequestHeaders takes over the request's headers.
func (rc *Context) SetRequestHeaders(r *IncomingHeaders) {
	rc.Path, rc.RequestID, rc.TraceParent = r.Path, r.ID, r.TraceParent
	if rc.idGenerated = rc.RequestID == "" && rc.options.NewID != nil; rc.idGenerated {
		rc.RequestID = rc.options.NewID()
	}
	rc.Input.Incoming, rc.Input.Subset = api.Incoming{Path: r.Path, Headers: r.Headers}, r.Subset
	rc.Remove = r.Private
}

// PickEndpoint places the request after its whole body has arrived, or refuses it. It may wait until ctx ends. It keeps no
// reference to the body.
func (rc *Context) PickEndpoint(ctx context.Context, body []byte) *Refusal {
	rc.ArrivalTime = rc.options.Now()
	in := &rc.Input
	in.Incoming.Body, in.ArrivalTime, in.RankingSize = body, rc.ArrivalTime, rc.options.Ranking
	result, refusal := rc.pool.PlaceRequest(ctx, in)
	in.Incoming = api.Incoming{}
	private := rc.Remove
	rc.PickRecord, rc.Decision, rc.pendingPick = result.PickRecord, result.Decision, result.Pending
	rc.Remove = append(private, result.Remove...)
	if refusal != nil {
		return rc.RefuseRequest(refusal)
	}
	rc.stage, rc.reader.Format = placed, rc.UsageFormat
	if rc.Conformance {
		rc.Set = append(rc.Set, api.Header{Name: headerEcho, Value: HeaderServed + ":" + rc.Endpoint.Address()})
	}
	if rc.idGenerated {
		rc.Set = append(rc.Set, api.Header{Name: HeaderRequestID, Value: rc.RequestID})
	}
	if rc.options.Tracer != nil {
		rc.startSpan()
	}
	return nil
}

// HasKnownFormat reports whether the forms of answers are known, so that other bodies are not answers.
func (rc *Context) HasKnownFormat() bool {
	return rc.Inference && rc.UsageFormat != api.FormatOpen && rc.UsageFormat != api.FormatLists
}

// startSpan begins the request's span, and makes it the parent of the model server's spans.
func (rc *Context) startSpan() {
	span, header := rc.options.Tracer.StartSpan(rc.TraceParent)
	rc.Span = span
	if header != "" {
		rc.Set = append(rc.Set, api.Header{Name: HeaderTrace, Value: header})
	}
}

// RefuseRequest records that the picker answers the request itself, unless its client has gone. It returns the refusal.
func (rc *Context) RefuseRequest(r *Refusal) *Refusal {
	if rc.Queue == EvictedContextCancelled {
		return r
	}
	rc.stage, rc.Status, rc.Reason = refused, r.Code, r.Reason
	return r
}

// ConfirmSent records that the sender of the request has the pick. It does nothing before the pick, or after the first call.
func (rc *Context) ConfirmSent() {
	if rc.pendingPick == nil {
		return
	}
	rc.Placed = true
	rc.responseObserver = rc.pendingPick.CommitPick(&rc.Record)
	rc.pendingPick = nil
}

// OnResponseHeaders records the headers of the response. A response to a request that was not placed comes from the gateway itself.
func (rc *Context) OnResponseHeaders(r *ResponseHeaders) {
	rc.Status, rc.Served, rc.htmlBody, rc.hidden = r.Status, r.Served, r.HTML, r.Hidden
	rc.unanswered, rc.unacceptedEncoding = r.Unanswered, r.UnacceptedEncoding
	rc.unexpectedFormat = rc.Streaming && !r.Events && rc.Inference && rc.UsageFormat != api.FormatVLLM
	rc.Streaming = rc.Streaming || r.Events
	rc.reader.Events, rc.reader.Strict, rc.reader.Bytes = r.Events && !r.Encoded, rc.HasKnownFormat() && !r.Encoded, r.Encoded || r.Bytes
	if r.Encoded || r.Hidden {
		rc.Restore = nil // a body that is compressed, or not shown, cannot be rewritten
	}
	if rc.Placements.AnsweringLease() == nil {
		return
	}
	rc.ConfirmSent() // whoever has a response has sent the request
	rc.reportEndpoints()
	rc.responseObserver.ObserveResponder()
	if !r.Hidden {
		rc.stage = responding
	}
	rc.ReportHealth(rc.signalOfStatus(r.Status))
}

// reportEndpoints adds the endpoints that the response names to its headers.
func (rc *Context) reportEndpoints() {
	if rc.options.ReportEndpoint {
		rc.Reply = append(rc.Reply, api.Header{Name: HeaderPicked, Value: rc.Endpoint.Address()})
	}
	if rc.Conformance && rc.Served != "" { // else the echo server's own header stays
		rc.Reply = append(rc.Reply, api.Header{Name: HeaderServed, Value: rc.Served})
	}
}

// OnFailedAttempt records that an attempt at a server failed, with the status of the response, 0 if there was none, and that the request
// goes to another one.
func (rc *Context) OnFailedAttempt(address string, code int) {
	rc.ConfirmSent()
	rc.responseObserver.ObserveAttempt(address, code, describeStatus(code))
}

// OnResponseChunk records a chunk of the response's body.
func (rc *Context) OnResponseChunk(chunk []byte) {
	if len(chunk) == 0 || rc.Placements.AnsweringLease() == nil {
		return
	}
	rc.ResponseBytes += len(chunk)
	if n := rc.reader.ReadPiece(chunk); n > 0 {
		rc.ContentPieces += n
		rc.LastContent = rc.options.Now()
		if !rc.FirstContent.IsZero() {
			rc.Placements.AnsweringLease().MarkMoreContent(rc.LastContent)
		} else if rc.recordFirstContent(rc.LastContent) && (rc.reader.Events || rc.UsageFormat == api.FormatVLLM) {
			rc.responseObserver.ObserveContent() // a body that is no stream says nothing before it is whole
		}
	}
	if rc.Inference && rc.reader.ErrorCount() > 0 {
		rc.ReportHealth(Faulty)
	}
	if rc.ResponseID != nil {
		rc.ResponseID.ReadPiece(chunk)
	}
}

// OnFirstToken records when the answer began. Carriers that do not see the response's body call it in place of OnResponseChunk,
// after OnResponseHeaders. Only the first call counts.
func (rc *Context) OnFirstToken(at time.Time) {
	if rc.recordFirstContent(at) {
		rc.responseObserver.ObserveContent()
	}
}

// recordFirstContent records the first content. It reports whether that is the beginning of an answer.
func (rc *Context) recordFirstContent(at time.Time) bool {
	if !rc.FirstContent.IsZero() || rc.Placements.AnsweringLease() == nil {
		return false
	}
	rc.FirstContent = at
	if rc.Status != http.StatusOK || rc.unexpectedFormat || rc.htmlBody {
		return false
	}
	rc.Placements.markFirstContent(at)
	return rc.responseObserver != nil
}

// OnResponseEnd records the end of the response.
func (rc *Context) OnResponseEnd() {
	if rc.Placements.AnsweringLease() != nil {
		rc.ConfirmSent()
		rc.stage = completed
		rc.ReportHealth(rc.signalOfBody())
		rc.releaseLoad()
	}
}

// MarkNotReceived records that the model server does not have the request, although it was sent there, as far as the carrier knows. The
// request stops counting as load. Its response may still come.
func (rc *Context) MarkNotReceived() { rc.Placements.abandonAll(rc.options.Now()) }

// releaseLoad ends the load of the request.
func (rc *Context) releaseLoad() {
	if rc.busyUntil.IsZero() {
		rc.Placements.eachLease((*endpoint.Lease).Release)
		return
	}
	span, now := endpoint.LoadSpan{Arrived: rc.DispatchTime(), Until: rc.busyUntil}, rc.options.Now()
	rc.Placements.eachLease(func(l *endpoint.Lease) { l.FailUntil(span, now) })
}

// EndRequest ends the life of the request, with the error of its carrier, if any. It is called once.
func (rc *Context) EndRequest(err error) {
	rc.EndTime, rc.Outcome, rc.Code = rc.options.Now(), outcomes[rc.stage], status.Code(err)
	if !rc.Usage.Known { // the carrier did not set it, because it passed the body to OnResponseChunk
		rc.Usage = rc.reader.Usage()
	}
	if err != nil {
		rc.Outcome = Failed
	}
	unsent := rc.pendingPick != nil
	if unsent {
		rc.pendingPick.DiscardPick()
		rc.pendingPick = nil
	}
	if rc.stage == placed && !unsent {
		rc.Placements.abandonAll(rc.EndTime) // the server has the request, and its end is unknown
	} else { // the server does not get the request, the client has gone, or the response is complete
		rc.releaseLoad()
	}
	if rc.Outcome == Completed {
		rc.responseObserver.ObserveAnswer()
	}
	rc.pool.OnRequestEnd(&rc.Record)
}
