package extproc

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// maxChunk is the largest streamed body reply: gateways refuse messages of more than 64 KiB.
const maxChunk = 62000

// reasonNoEndpoints tells clients, in a header, why their request was dropped.
const reasonNoEndpoints = "rejected-no-endpoints"

// errOrder means that the gateway sent what cannot come at this place.
var errOrder = errors.New("message out of order")

// picker picks the endpoint of one request.
type picker interface {
	Pick(in request.Incoming, subset *scheduling.Subset) (*endpoint.Lease, error)
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
	MaxBody        int  // bytes of a request body
	ReportEndpoint bool // name the picked endpoint in the response's headers
	Now            func() time.Time
}

// A Machine is one stream, without I/O. It is used by one goroutine.
type Machine struct {
	options MachineOptions
	picker  picker

	request  requestState
	response responseState
	modes    Modes
	path     string
	subset   *scheduling.Subset
	body     collected
	lease    *endpoint.Lease
	status   int
	served   string
}

// NewMachine returns a Machine at the start of its stream.
func NewMachine(p picker, o MachineOptions) *Machine {
	return &Machine{picker: p, options: o}
}

// Step takes one message and appends the replies to it, which are to be sent in their order. After an error the
// stream must be ended; after an immediate reply it should be.
func (m *Machine) Step(in *Message, out []Reply) ([]Reply, error) {
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

// Close says that the stream has ended. It is called once.
func (m *Machine) Close(now time.Time) Outcome {
	m.body.drop()
	o := Outcome{Kind: m.outcome(), Status: m.status}
	if m.lease != nil {
		o.Moved = m.served != "" && m.served != m.lease.Address()
		if m.response == responseOpen && m.modes.Response != None {
			m.lease.Release() // in the middle of the response: whoever wanted it has gone
		} else {
			m.lease.Abandon(now) // unless released at the response's end
		}
	}
	return o
}

func (m *Machine) requestHeaders(in *Message, out []Reply) ([]Reply, error) {
	switch {
	case m.request == requestRefused:
		return out, nil
	case m.request != requestFresh:
		return out, fmt.Errorf("request headers: %w", errOrder)
	}
	m.modes, m.path, m.subset = in.Modes, in.Path, in.Subset
	switch {
	case in.EndOfStream:
		return m.pick(out, Reply{Kind: RequestHeaders}, requestDone), nil
	case m.modes.Request == FullDuplex:
		m.request = requestCollecting
		return out, nil
	case m.modes.Request == Buffered:
		m.request = requestAwaiting
		return append(out, Reply{Kind: RequestHeaders}), nil
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
		return m.refuse(out, badRequest("request body before the request headers"))
	case requestCollecting:
		return m.collect(in, out)
	case requestAwaiting:
		if in.size() > m.options.MaxBody {
			return m.refuse(out, tooLarge(m.options.MaxBody))
		}
		m.body.add(in.take())
		defer m.body.drop() // the gateway has it
		return m.pick(out, Reply{Kind: RequestBody}, next)
	case requestOpen:
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
		return m.refuse(out, badRequest("request trailers before the request headers"))
	case requestCollecting:
		if out = m.pick(out, Reply{Kind: RequestHeaders}, requestDone); m.request == requestRefused {
			return out
		}
		return append(m.sendBody(out), reply)
	case requestAwaiting:
		return m.pick(out, reply, requestDone)
	case requestOpen:
		m.request = requestDone
		return append(out, reply)
	case requestDone, requestRefused:
	}
	return out
}

// collect keeps one piece of a full-duplex body. At its end everything that was held back goes out.
func (m *Machine) collect(in *Message, out []Reply) []Reply {
	if m.body.size+in.size() > m.options.MaxBody {
		return m.refuse(out, tooLarge(m.options.MaxBody))
	}
	m.body.add(in.take())
	if !in.EndOfStream {
		return out
	}
	if out = m.pick(out, Reply{Kind: RequestHeaders}, requestDone); m.request == requestRefused {
		return out
	}
	out = m.sendBody(out)
	if last := &out[len(out)-1]; last.Kind == RequestBody {
		last.EndOfStream = true
		return out
	}
	return appendPiece(out, RequestBody, nil, true) // an empty body is one empty chunk
}

// sendBody appends the collected body, without an end.
func (m *Machine) sendBody(out []Reply) []Reply {
	if m.body.size == 0 {
		return out
	}
	return appendPiece(out, RequestBody, m.body.take(), false)
}

// pick appends the reply with the endpoint that was picked, or a refusal.
func (m *Machine) pick(out []Reply, reply Reply, next requestState) []Reply {
	lease, err := m.picker.Pick(request.Incoming{Path: m.path, Body: m.body.bytes()}, m.subset)
	switch {
	case errors.Is(err, request.ErrMalformed):
		return m.refuse(out, badRequest(err.Error()))
	case err != nil:
		return m.refuse(out, unavailable(err))
	}
	m.lease, m.request, m.subset = lease, next, nil
	reply.Destination = lease.Address()
	return append(out, reply)
}

func (m *Machine) refuse(out []Reply, r *Refusal) []Reply {
	m.body.drop()
	m.request, m.status = requestRefused, r.Code
	return append(out, Reply{Kind: Immediate, Refusal: r})
}

func (m *Machine) responseMessage(in *Message, out []Reply) ([]Reply, error) {
	if m.request == requestRefused || m.response == responseDone {
		return out, nil
	}
	if m.lease == nil { // the gateway's own response: there will be no request
		m.body.drop()
		m.request = requestDone
	}
	end := in.EndOfStream
	switch in.Kind {
	case ResponseHeaders:
		if m.response != responseFresh {
			return out, fmt.Errorf("response headers: %w", errOrder)
		}
		m.status, m.served = in.Status, in.Served
		out = append(out, m.responseHeaders())
	case ResponseBody:
		out = m.responseBody(in, out)
	default:
		end = true
		out = append(out, Reply{Kind: ResponseTrailers})
	}
	switch {
	case end:
		m.response = responseDone
	case in.Kind == ResponseBody && m.modes.Response == Buffered:
		m.response = responseWhole
	default:
		m.response = responseOpen
	}
	if m.lease != nil && m.response >= responseWhole {
		m.lease.Release()
	}
	return out, nil
}

func (m *Machine) responseHeaders() Reply {
	r := Reply{Kind: ResponseHeaders}
	if m.options.ReportEndpoint && m.lease != nil {
		r.Picked = m.lease.Address()
	}
	return r
}

func (m *Machine) responseBody(in *Message, out []Reply) []Reply {
	if m.lease != nil && m.status == http.StatusOK && in.size() > 0 {
		m.lease.First(m.options.Now())
	}
	if m.modes.Response != FullDuplex {
		return append(out, Reply{Kind: ResponseBody})
	}
	return appendPiece(out, ResponseBody, in.take(), in.EndOfStream)
}

// appendPiece appends one piece of a body, which it takes over, in chunks that gateways accept. An empty piece is one
// empty chunk.
func appendPiece(out []Reply, kind Kind, piece mem.Buffer, end bool) []Reply {
	if piece == nil || piece.Len() <= maxChunk {
		return append(out, Reply{Kind: kind, Streamed: true, Body: piece, EndOfStream: end})
	}
	size := piece.Len()
	for from := 0; from < size; from += maxChunk {
		to := min(from+maxChunk, size)
		out = append(out, Reply{Kind: kind, Streamed: true, Body: piece.Slice(from, to), EndOfStream: end && to == size})
	}
	piece.Free()
	return out
}

func badRequest(text string) *Refusal {
	return &Refusal{Code: http.StatusBadRequest, Text: "inference error: BadRequest - " + text}
}

func tooLarge(limit int) *Refusal {
	return &Refusal{
		Code: http.StatusRequestEntityTooLarge,
		Text: fmt.Sprintf("inference error: PayloadTooLarge - request body is over %d bytes", limit),
	}
}

func unavailable(err error) *Refusal {
	return &Refusal{
		Code:   http.StatusServiceUnavailable,
		Reason: reasonNoEndpoints,
		Text:   "inference error: ServiceUnavailable - " + err.Error(),
	}
}
