package extproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// maxChunk is the maximum size of a streamed body reply: gateways refuse messages of more than 64 KiB.
const maxChunk = 62000

// Errors of gateways.
var (
	errOrder         = errors.New("message out of order") // not allowed in this state
	errBodyFirst     = errors.New("request body before the request headers")
	errTrailersFirst = errors.New("request trailers before the request headers")
)

// requestState is the state of the request's side of a stream; see the table in the package comment.
type requestState uint8

const (
	requestFresh requestState = iota
	requestCollecting
	requestAwaiting
	requestOpen
	requestDone
	requestRefused
)

// responseState is the state of the response's side of a stream.
type responseState uint8

const (
	responseFresh responseState = iota
	responseOpen
	responseWhole // a buffered body has arrived; trailers may follow
	responseDone
)

// A Machine is one stream, without I/O. It is not safe for concurrent use.
type Machine struct {
	options        *Options
	request        requestState
	response       responseState
	modes          Modes
	requestContext request.Context
	body           bodyBuffer
	errorFormat    request.ErrorFormat // of refusals
	tunnel         bool                // the bodies are not those of an API
	offeredLength  int                 // length of a body with the offer of a tunnel; 0 for others
}

// NewMachine returns a Machine for a new stream to a pool. It takes memory for bodies from buffers.
func NewMachine(p request.Pool, buffers mem.BufferPool, o *Options) *Machine {
	m := &Machine{options: o}
	m.requestContext.StartRequest(p, &o.Options)
	m.body.bufferPool = buffers
	return m
}

// Step processes one message and appends the replies, which must be sent in order. It may wait for a place until ctx ends.
// After an error the stream must be ended; after an immediate reply it should be.
func (m *Machine) Step(ctx context.Context, in *Message, out []Reply) ([]Reply, error) {
	switch in.Kind {
	case RequestHeaders:
		return m.requestHeaders(ctx, in, out)
	case RequestBody:
		return m.requestBody(ctx, in, out), nil
	case RequestTrailers:
		return m.requestTrailers(ctx, out), nil
	case ResponseHeaders, ResponseBody, ResponseTrailers:
		return m.responseMessage(in, out)
	}
	return out, nil // a message without content, such as a window update
}

// OnRepliesSent records that the replies of the last Step were sent. It reports whether to end the stream.
func (m *Machine) OnRepliesSent() (done bool) {
	if m.requestContext.Placements.AnsweringLease() == nil {
		return false
	}
	m.requestContext.ConfirmSent()
	return m.options.LeaveEarly && m.request == requestDone
}

// RefuseRequest answers the request, for a reason outside the Machine. It returns the reply.
func (m *Machine) RefuseRequest(r *request.Refusal) *Reply { return &m.refuseRequest(nil, r)[0] }

// IsReceiving reports whether the stream waits for the rest of a request.
func (m *Machine) IsReceiving() bool {
	return m.request == requestFresh || m.request == requestCollecting || m.request == requestAwaiting
}

// Close ends the stream, with its error, if any. It is called once.
func (m *Machine) Close(err error) {
	m.body.freeAll()
	switch {
	case err != nil:
	case m.response == responseOpen:
		// the gateway ends the stream alike when the client has gone, and when the server has
		m.requestContext.ReportHealth(request.Doubtful)
	default:
		m.requestContext.OnClientGone()
	}
	m.requestContext.EndRequest(err)
}

func (m *Machine) requestHeaders(ctx context.Context, in *Message, out []Reply) ([]Reply, error) {
	switch {
	case m.request == requestRefused:
		return out, nil
	case m.request != requestFresh:
		return out, fmt.Errorf("request headers: %w", errOrder)
	}
	m.modes = in.Modes
	m.requestContext.SetRequestHeaders(&in.Request.IncomingHeaders)
	if m.errorFormat = request.ErrorFormatOf(m.requestContext.Input.Incoming.CleanPath()); in.Request.RefusesJSON {
		m.errorFormat = request.PlainText
	}
	switch {
	case in.EndOfStream:
		return m.pickEndpoint(ctx, out, Reply{Kind: RequestHeaders}, requestDone), nil
	case in.Request.Tunnel.isOpened(): // the model server must answer before anything follows
		m.tunnel = true
		return m.pickEndpoint(ctx, out, Reply{Kind: RequestHeaders}, requestOpen), nil
	case m.modes.Request == FullDuplex:
		if in.Request.Tunnel.isOffered() {
			m.offeredLength = in.Request.Length
		}
		m.request = requestCollecting
		return out, nil
	case m.modes.Request == Buffered:
		m.request = requestAwaiting
		return append(out, m.replyBeforePick(&in.Request)), nil
	default:
		return m.pickEndpoint(ctx, out, Reply{Kind: RequestHeaders}, requestOpen), nil
	}
}

// replyBeforePick answers headers before the pick. It removes forbidden headers now: if trailers come instead of a body, the reply
// with the pick cannot change headers any more, and the gateway would use the client's destination.
func (m *Machine) replyBeforePick(r *Request) Reply {
	remove := r.Private
	if m.requestContext.Remove = nil; r.HasDestination {
		remove = append(remove, request.HeaderDestination)
	}
	return Reply{Kind: RequestHeaders, Headers: Headers{Remove: remove}}
}

func (m *Machine) requestBody(ctx context.Context, in *Message, out []Reply) []Reply {
	switch m.request {
	case requestFresh:
		return m.refuseRequest(out, request.BadRequest(errBodyFirst))
	case requestCollecting:
		return m.collectBody(ctx, in, out)
	case requestAwaiting:
		return m.handleBufferedBody(ctx, in, out)
	case requestOpen:
		m.requestContext.RequestBytes += in.bodySize()
		m.request = stateAfter(in)
		if m.modes.Request == FullDuplex {
			return appendPiece(out, RequestBody, in.detachBody(), position(in.EndOfStream))
		}
		return append(out, Reply{Kind: RequestBody})
	case requestDone, requestRefused:
	}
	return out
}

func (m *Machine) requestTrailers(ctx context.Context, out []Reply) []Reply {
	reply := Reply{Kind: RequestTrailers}
	switch m.request {
	case requestFresh:
		return m.refuseRequest(out, request.BadRequest(errTrailersFirst))
	case requestCollecting:
		if out = m.pickEndpoint(ctx, out, Reply{Kind: RequestHeaders}, requestDone); m.request == requestRefused {
			return out
		}
		if m.body.size > 0 {
			out = m.sendBody(out, inTheMiddle)
		}
		return append(out, reply)
	case requestAwaiting:
		return m.pickEndpoint(ctx, out, reply, requestDone)
	case requestOpen:
		m.request = requestDone
		return append(out, reply)
	case requestDone, requestRefused:
	}
	return out
}

// storePiece stores a piece of a body, or returns the reason why it cannot.
func (m *Machine) storePiece(in *Message) *request.Refusal {
	if m.body.size+in.bodySize() > m.options.MaxRequestBody {
		return request.TooLarge(m.options.MaxRequestBody)
	}
	m.body.addPiece(in.detachBody())
	m.requestContext.RequestBytes = m.body.size
	return nil
}

// completeLength returns the length of the body if the last piece completes it, and false if more of it follows. Bytes after a body that
// offers a tunnel are not part of the body.
func (m *Machine) completeLength(last *Message) (length int, complete bool) {
	if m.offeredLength > 0 && m.body.size >= m.offeredLength {
		return m.offeredLength, true
	}
	return m.body.size, last.EndOfStream
}

// collectBody stores a piece of a full-duplex body. At the end of the body it sends everything that was held back.
func (m *Machine) collectBody(ctx context.Context, in *Message, out []Reply) []Reply {
	if r := m.storePiece(in); r != nil {
		return m.refuseRequest(out, r)
	}
	length, complete := m.completeLength(in)
	if !complete {
		return out
	}
	if out = m.pickEndpoint(ctx, out, Reply{Kind: RequestHeaders}, stateAfter(in)); m.request == requestRefused {
		return out
	}
	if length > 0 { // now it is known
		length := strconv.Itoa(length + m.requestContext.Edit.GrowthBytes())
		out[len(out)-1].Headers.Set = append(m.requestContext.Set, api.Header{Name: headerContentLength, Value: length})
	}
	return m.sendBody(out, position(in.EndOfStream))
}

// handleBufferedBody handles a body that comes as a whole.
func (m *Machine) handleBufferedBody(ctx context.Context, in *Message, out []Reply) []Reply {
	if r := m.storePiece(in); r != nil {
		return m.refuseRequest(out, r)
	}
	reply := Reply{Kind: RequestBody}
	if out = m.pickEndpoint(ctx, out, reply, stateAfter(in)); m.request == requestRefused {
		return out
	}
	if edit := m.requestContext.Edit; edit.Replacement != nil {
		body := m.body.joinPieces()
		last := &out[len(out)-1]
		edited := make(mem.SliceBuffer, 0, len(body)+edit.GrowthBytes())
		edited = append(append(append(edited, body[:edit.From]...), edit.Replacement...), body[edit.To:]...)
		last.Content, last.Body = Replaced, edited
	}
	m.body.freeAll() // the gateway has the body
	return out
}

// stateAfter returns the state after a piece of a body that follows the pick, or brings it.
func stateAfter(in *Message) requestState {
	if in.EndOfStream {
		return requestDone
	}
	return requestOpen
}

// pickEndpoint appends the reply with the picked endpoint, or a refusal.
func (m *Machine) pickEndpoint(ctx context.Context, out []Reply, reply Reply, next requestState) []Reply {
	rc := &m.requestContext
	body := m.body.joinPieces()
	if m.offeredLength > 0 {
		body = body[:min(len(body), m.offeredLength)]
	}
	if refusal := rc.PickEndpoint(ctx, body); refusal != nil {
		return m.refuseRequest(out, refusal)
	}
	m.request = next
	reply.Destination = rc.Destination
	if m.options.EmitScores {
		reply.Scores = rc.Scores
	}
	reply.Headers = Headers{Set: rc.Set, Remove: rc.Remove}
	return append(out, reply)
}

// position is the position of a piece in a body: the last one, or not.
type position bool

const (
	inTheMiddle position = false
	atTheEnd    position = true
)

// sendBody appends the collected body with the edits of the pick.
func (m *Machine) sendBody(out []Reply, at position) []Reply {
	body := m.body.detachAll()
	if edit := m.requestContext.Edit; edit.Replacement != nil && body != nil {
		out = appendPiece(out, RequestBody, body.Slice(0, edit.From), inTheMiddle)
		out = appendPiece(out, RequestBody, mem.SliceBuffer(edit.Replacement), inTheMiddle)
		rest := body.Slice(edit.To, body.Len())
		body.Free()
		body = rest
	}
	return appendPiece(out, RequestBody, body, at)
}

func (m *Machine) refuseRequest(out []Reply, r *request.Refusal) []Reply {
	m.body.freeAll()
	m.request = requestRefused
	return append(out, Reply{Kind: Immediate, Refusal: m.requestContext.RefuseRequest(r), ErrorFormat: m.errorFormat})
}

// appendPiece appends a piece of a body in chunks that gateways accept. It takes over the piece. An empty piece is one empty
// chunk.
func appendPiece(out []Reply, kind Kind, piece mem.Buffer, at position) []Reply {
	if piece == nil || piece.Len() <= maxChunk {
		return append(out, Reply{Kind: kind, Content: Streamed, Body: piece, EndOfStream: bool(at)})
	}
	size := piece.Len()
	for from := 0; from < size; from += maxChunk {
		to := min(from+maxChunk, size)
		out = append(out, Reply{Kind: kind, Content: Streamed, Body: piece.Slice(from, to), EndOfStream: bool(at) && to == size})
	}
	piece.Free()
	return out
}
