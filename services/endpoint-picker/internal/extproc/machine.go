package extproc

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// maxChunk is the largest streamed body reply: gateways refuse messages of more than 64 KiB.
const maxChunk = 62000

// errOrder means that the gateway sent what cannot come at this place.
var errOrder = errors.New("message out of order")

// errStreams means that there are as many streams as there may be.
var errStreams = errors.New("too many requests are open")

// picker decides about requests.
type picker interface {
	// Pick places the request of an exchange, or says why it cannot.
	Pick(x *exchange.Exchange) *exchange.Refusal
	// Placed is called when the gateway has been told where a request goes.
	Placed(x *exchange.Exchange)
	// Responded is called when the status of the response is known.
	Responded(x *exchange.Exchange)
	// Ended is called when the end of the response was seen.
	Ended(x *exchange.Exchange)
}

// requestState is how far the request's side of a stream has come; see the table in the package's comment.
type requestState uint8

const (
	requestFresh requestState = iota
	requestCollecting
	requestAwaiting
	requestOpen
	requestDone
	requestRefused
)

// responseState is how far the response's side of a stream has come.
type responseState uint8

const (
	responseFresh responseState = iota
	responseOpen
	responseWhole // a buffered body has come; trailers may follow
	responseDone
)

// MachineOptions is what all streams have in common.
type MachineOptions struct {
	MaxBody        int     // bytes of a request body
	Buffered       *Budget // of bytes of all bodies that are held
	ReportEndpoint bool    // name the picked endpoint in the response's headers
	LeaveEarly     bool    // end the stream when the request has been answered
	EmitScores     bool    // tell the gateway how candidates were rated
	Tracer         tracer  // nil if nothing is traced
	Now            func() time.Time
}

// tracer makes requests parts of traces.
type tracer interface {
	// Begin returns the part that a request is, and its traceparent to go on with, empty if it stays as it is.
	Begin(traceparent string) (exchange.Span, string)
}

// A Machine is one stream, without I/O. Expire may be called by anybody, the rest by one goroutine.
type Machine struct {
	options MachineOptions
	picker  picker

	mu       sync.Mutex // a Step and an Expire come one after the other
	request  requestState
	response responseState
	modes    Modes
	exchange exchange.Exchange
	body     collected
	expired  bool
	told     bool // the picker knows that the gateway was told
	usage    answer.UsageReader
}

// NewMachine returns a Machine at the start of its stream.
func NewMachine(p picker, o MachineOptions) *Machine {
	m := &Machine{options: o, picker: p}
	m.exchange.Began = o.Now()
	m.body.budget = o.Buffered
	return m
}

// Step takes one message and appends the replies to it, which are to be sent in their order. After an error the
// stream must be ended; after an immediate reply it should be.
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
	return out, nil // a message about nothing, such as a window update
}

// Sent says that the replies of the last Step have been sent. It reports whether one of them was the pick, and whether the
// stream is to be ended.
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

// Expire gives up on a request body that has not come to its end: what is held of it is let go. The gateway hears of it
// when it sends more.
func (m *Machine) Expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.request == requestCollecting {
		m.expired = true
		m.body.drop()
	}
}

// Overloaded refuses the request before anything of it was seen.
func (m *Machine) Overloaded() []Reply { return m.refuse(nil, exchange.Exhausted(errStreams)) }

// Collecting tells whether the end of a body is waited for.
func (m *Machine) Collecting() bool { return m.request == requestCollecting }

// Close says that the stream has ended, and returns what became of it. It is called once.
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
			x.Lease.Release() // in the middle of the response: whoever wanted it has gone
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
	x.Incoming = request.Incoming{Path: r.Path, Headers: r.Headers}
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

// keep keeps one piece of a body, or says why it cannot be kept.
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

// collect keeps one piece of a full-duplex body. At its end everything that was held back goes out.
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
	if m.body.size > 0 { // now it is known
		length := strconv.Itoa(m.body.size + m.exchange.Edit.Growth())
		out[len(out)-1].change().Set = append(m.exchange.Set, request.Header{Name: headerContentLength, Value: length})
	}
	return m.sendBody(out, atTheEnd)
}

// buffered takes a body that comes whole.
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
	m.body.drop() // the gateway has it
	return out
}

// pick appends the reply with the endpoint that was picked, or a refusal.
func (m *Machine) pick(out []Reply, reply Reply, next requestState) []Reply {
	x := &m.exchange
	x.Arrived = m.options.Now()
	x.Incoming.Body = m.body.bytes()
	refusal := m.picker.Pick(x)
	x.Incoming = request.Incoming{}
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

// position says whether more of a body follows.
type position bool

const (
	inTheMiddle position = false
	atTheEnd    position = true
)

// sendBody appends the collected body, as the pick has edited it.
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

// appendPiece appends one piece of a body, which it takes over, in chunks that gateways accept. An empty piece is one
// empty chunk.
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
