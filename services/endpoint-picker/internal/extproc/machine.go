package extproc

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// maxChunk is the maximum size of a streamed body reply: gateways refuse messages of more than 64 KiB.
const maxChunk = 62000

// errOrder means that the gateway sent a message that is not allowed in this state.
var errOrder = errors.New("message out of order")

// errStreams means that the number of open streams has reached its limit.
var errStreams = errors.New("too many requests are open")

// picker decides where requests go.
type picker interface {
	// Pick places the request of an exchange, or returns the reason why it cannot.
	Pick(x *exchange.Exchange) *exchange.Refusal
	// Placed is called after the gateway has received the pick.
	Placed(x *exchange.Exchange)
	// Responded is called when the status of the response is known.
	Responded(x *exchange.Exchange)
	// Ended is called at the end of the response.
	Ended(x *exchange.Exchange)
}

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

// MachineOptions are the options that all streams share.
type MachineOptions struct {
	MaxBody        int     // maximum size of a request body, in bytes
	Buffered       *Budget // budget of the bodies of all streams
	ReportEndpoint bool    // name the picked endpoint in the response's headers
	LeaveEarly     bool    // end the stream after the pick
	EmitScores     bool    // send the scores of candidates to the gateway
	Tracer         tracer  // nil if tracing is disabled
	Now            func() time.Time
}

// tracer adds requests to traces.
type tracer interface {
	// Begin returns the span of a request, and the traceparent to forward, empty if it stays unchanged.
	Begin(traceparent string) (exchange.Span, string)
}

// A Machine is one stream, without I/O. Expire is safe for concurrent use; one goroutine calls the other methods.
type Machine struct {
	options MachineOptions
	picker  picker

	mu       sync.Mutex // serializes Step and Expire
	request  requestState
	response responseState
	modes    Modes
	exchange exchange.Exchange
	body     collected
	expired  bool
	told     bool // the picker was notified that the gateway has the pick
	usage    answer.UsageReader
}

// NewMachine returns a Machine for a new stream.
func NewMachine(p picker, o MachineOptions) *Machine {
	m := &Machine{options: o, picker: p}
	m.exchange.Began = o.Now()
	m.body.budget = o.Buffered
	return m
}

// Step processes one message and appends the replies, which must be sent in order. After an error the stream must be ended;
// after an immediate reply it should be.
func (m *Machine) Step(in *Message, out []Reply) ([]Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch in.Kind {
	case RequestHeaders:
		return m.requestHeaders(in, out)
	case RequestBody:
		return m.requestBody(in, out), nil
	case RequestTrailers:
		return m.requestTrailers(out), nil
	case ResponseHeaders, ResponseBody, ResponseTrailers:
		return m.responseMessage(in, out)
	}
	return out, nil // a message without content, such as a window update
}

// Sent records that the replies of the last Step were sent. It reports whether one of them was the pick, and whether to end
// the stream.
func (m *Machine) Sent() (placed, done bool) {
	if m.exchange.Lease == nil {
		return false, false
	}
	if placed = !m.told; placed {
		m.told = true
		m.body.release()
		m.picker.Placed(&m.exchange)
	}
	return placed, m.options.LeaveEarly && m.request == requestDone
}

// Expire gives up on an incomplete request body and frees its memory. The gateway gets the refusal when it sends more.
func (m *Machine) Expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.request == requestCollecting {
		m.expired = true
		m.body.drop()
	}
}

// Overloaded refuses the request before its first message.
func (m *Machine) Overloaded() []Reply { return m.refuse(nil, exchange.Exhausted(errStreams)) }

// Collecting reports whether the stream waits for the end of a body.
func (m *Machine) Collecting() bool { return m.request == requestCollecting }

// Close ends the stream and returns its record. It is called once.
func (m *Machine) Close(now time.Time) *exchange.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.body.drop()
	x := &m.exchange
	if x.Lease != nil {
		if !m.told {
			m.picker.Placed(x)
		}
		if m.response == responseOpen && m.modes.Response != None {
			x.Lease.Release() // during the response: the client has gone
		} else {
			x.Lease.Abandon(now) // unless released at the response's end
		}
	}
	x.Outcome, x.Ended, x.Usage = m.outcome(), now, m.usage.Usage()
	if x.Outcome == exchange.Completed {
		m.picker.Ended(x)
	}
	return &x.Record
}

func (m *Machine) outcome() exchange.Outcome {
	switch {
	case m.request == requestRefused:
		return exchange.Refused
	case m.exchange.Lease == nil:
		return exchange.Unpicked
	case m.response >= responseWhole:
		return exchange.Completed
	case m.response == responseOpen && m.modes.Response != None:
		return exchange.Interrupted
	}
	return exchange.Unseen
}

func (m *Machine) requestHeaders(in *Message, out []Reply) ([]Reply, error) {
	switch {
	case m.request == requestRefused:
		return out, nil
	case m.request != requestFresh:
		return out, fmt.Errorf("request headers: %w", errOrder)
	}
	m.modes = in.Modes
	x, r := &m.exchange, &in.Request
	x.Path, x.RequestID, x.TraceParent, x.Subset = r.Path, r.ID, r.TraceParent, r.Subset
	x.Incoming = api.Incoming{Path: r.Path, Headers: r.Headers}
	x.Remove = r.Private
	switch {
	case in.EndOfStream:
		return m.pick(out, Reply{Kind: RequestHeaders}, requestDone), nil
	case m.modes.Request == FullDuplex:
		m.request = requestCollecting
		return out, nil
	case m.modes.Request == Buffered:
		m.request = requestAwaiting
		return append(out, m.clean(r)), nil
	default:
		return m.pick(out, Reply{Kind: RequestHeaders}, requestOpen), nil
	}
}

func (m *Machine) requestBody(in *Message, out []Reply) []Reply {
	next := requestOpen
	if in.EndOfStream {
		next = requestDone
	}
	switch m.request {
	case requestFresh:
		return m.refuse(out, exchange.BadRequest("request body before the request headers"))
	case requestCollecting:
		return m.collect(in, out)
	case requestAwaiting:
		return m.buffered(in, out, next)
	case requestOpen:
		m.exchange.RequestBytes += in.size()
		m.request = next
		return append(out, Reply{Kind: RequestBody})
	case requestDone, requestRefused:
	}
	return out
}

func (m *Machine) requestTrailers(out []Reply) []Reply {
	reply := Reply{Kind: RequestTrailers}
	switch m.request {
	case requestFresh:
		return m.refuse(out, exchange.BadRequest("request trailers before the request headers"))
	case requestCollecting:
		if m.expired {
			return m.refuse(out, exchange.TimedOut())
		}
		if out = m.pick(out, Reply{Kind: RequestHeaders}, requestDone); m.request == requestRefused {
			return out
		}
		if m.body.size > 0 {
			out = m.sendBody(out, inTheMiddle)
		}
		return append(out, reply)
	case requestAwaiting:
		return m.pick(out, reply, requestDone)
	case requestOpen:
		m.request = requestDone
		return append(out, reply)
	case requestDone, requestRefused:
	}
	return out
}

// keep stores a piece of a body, or returns the reason why it cannot.
func (m *Machine) keep(in *Message) *exchange.Refusal {
	if m.expired {
		return exchange.TimedOut()
	}
	if m.body.size+in.size() > m.options.MaxBody {
		return exchange.TooLarge(m.options.MaxBody)
	}
	if !m.body.add(in.take()) {
		return exchange.Exhausted(errBuffered)
	}
	m.exchange.RequestBytes = m.body.size
	return nil
}

// collect stores a piece of a full-duplex body. At the end of the body it sends everything that was held back.
func (m *Machine) collect(in *Message, out []Reply) []Reply {
	if r := m.keep(in); r != nil {
		return m.refuse(out, r)
	}
	if !in.EndOfStream {
		return out
	}
	if out = m.pick(out, Reply{Kind: RequestHeaders}, requestDone); m.request == requestRefused {
		return out
	}
	if m.body.size > 0 { // now the length is known
		length := strconv.Itoa(m.body.size + m.exchange.Edit.Growth())
		out[len(out)-1].change().Set = append(m.exchange.Set, api.Header{Name: headerContentLength, Value: length})
	}
	return m.sendBody(out, atTheEnd)
}

// buffered handles a body that comes as a whole.
func (m *Machine) buffered(in *Message, out []Reply, next requestState) []Reply {
	if r := m.keep(in); r != nil {
		return m.refuse(out, r)
	}
	reply := Reply{Kind: RequestBody}
	if out = m.pick(out, reply, next); m.request == requestRefused {
		return out
	}
	if edit := m.exchange.Edit; edit.With != nil {
		whole := m.body.bytes()
		last := &out[len(out)-1]
		edited := make(mem.SliceBuffer, 0, len(whole)+edit.Growth())
		edited = append(append(append(edited, whole[:edit.From]...), edit.With...), whole[edit.To:]...)
		last.Content, last.Body = Replaced, edited
	}
	m.body.drop() // the gateway has the body
	return out
}

// pick appends the reply with the picked endpoint, or a refusal.
func (m *Machine) pick(out []Reply, reply Reply, next requestState) []Reply {
	x := &m.exchange
	x.Arrived = m.options.Now()
	x.Incoming.Body = m.body.bytes()
	refusal := m.picker.Pick(x)
	x.Incoming = api.Incoming{}
	if refusal != nil {
		return m.refuse(out, refusal)
	}
	m.request, m.usage.Form = next, x.UsageForm
	if m.options.Tracer != nil {
		m.trace()
	}
	reply.Destination = x.Destination
	if m.options.EmitScores {
		reply.Scores = x.Scores
	}
	if len(x.Set) > 0 || len(x.Remove) > 0 {
		reply.Headers = &Headers{Set: x.Set, Remove: x.Remove}
	}
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
	body := m.body.take()
	if edit := m.exchange.Edit; edit.With != nil && body != nil {
		out = appendPiece(out, RequestBody, body.Slice(0, edit.From), inTheMiddle)
		out = appendPiece(out, RequestBody, mem.SliceBuffer(edit.With), inTheMiddle)
		rest := body.Slice(edit.To, body.Len())
		body.Free()
		body = rest
	}
	return appendPiece(out, RequestBody, body, at)
}

func (m *Machine) refuse(out []Reply, r *exchange.Refusal) []Reply {
	m.body.drop()
	m.request, m.exchange.Status, m.exchange.Reason = requestRefused, r.Code, r.Reason
	return append(out, Reply{Kind: Immediate, Refusal: r})
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
