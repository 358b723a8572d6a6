package extproc

import (
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/fairshare"
	"fairlead.dev/services/endpoint-picker/internal/peers"
)

// states are the states of streams, for their limits.
type states struct {
	headers, body, response *peers.State
}

func newStates(o *Options) states {
	message := peers.MaxBodyMessage(o.MaxRequestBody)
	return states{
		headers:  &peers.State{Name: "request headers", Timeout: o.BodyTimeout, MaxMessage: peers.MaxHeadersMessage, Evictable: true},
		body:     &peers.State{Name: "request body", Timeout: o.BodyTimeout, MaxMessage: message, Evictable: true},
		response: &peers.State{Name: "response", Timeout: o.IdleTimeout, MaxMessage: message},
	}
}

// of returns the state of a stream by its machine.
func (s *states) of(m *Machine) *peers.State {
	switch {
	case !m.Waiting():
		return s.response
	case m.request == requestFresh:
		return s.headers
	default:
		return s.body
	}
}

// stream is the stream of one request. Its handler calls all methods.
type stream struct {
	*peers.Stream

	server  *Server
	machine *Machine
	state   *peers.State
	message Message
	replies []Reply
}

// open returns the stream of a handler.
func (s *Server) open(gs grpc.ServerStream) (*stream, error) {
	inner, err := peers.Open(gs, s.states.headers)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is a status of gRPC
	}
	machine := NewMachine(s.pools.Find(gs.Context()), inner.Pool(), &s.machine)
	return &stream{Stream: inner, server: s, machine: machine, state: s.states.headers}, nil
}

// serve handles the messages of the stream, until the gateway or the picker ends it. It returns the last reply if the picker
// refuses the request.
func (t *stream) serve() (refusal *Reply, err error) {
	if err := t.AdmitStream(); err != nil {
		return &t.machine.Refuse(exchange.Exhausted(err))[0], nil
	}
	for {
		if err := t.receive(); err != nil {
			if r := t.refusalOf(err); r != nil {
				return &t.machine.Refuse(r)[0], nil
			}
			return nil, ended(err)
		}
		refusal, done, err := t.step()
		if refusal != nil || done || err != nil {
			return refusal, err
		}
	}
}

// receive waits for the next message.
func (t *stream) receive() error {
	data, err := t.Recv()
	if err != nil {
		return err //nolint:wrapcheck // the caller examines it
	}
	defer data.Free()
	if err := t.server.decoder.decode(data, &t.message); err != nil {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("read ProcessingRequest: %v", err))
	}
	if t.message.Kind == RequestHeaders { // the request keeps parts of them
		t.Hold(data.Len())
	}
	if t.machine.Waiting() {
		if err := t.AdmitBytes(); err != nil {
			t.message.free()
			return err //nolint:wrapcheck // the caller examines it
		}
	}
	return nil
}

// step handles one message. It returns the last reply if the picker refuses the request.
func (t *stream) step() (refusal *Reply, done bool, err error) {
	suspended := t.Suspend() // the request may wait for an endpoint
	t.replies, err = t.machine.Step(t.Context(), &t.message, t.replies[:0])
	t.Resume(suspended)
	t.message.free() // unless the machine took it over
	if err != nil {
		return nil, false, status.Error(codes.InvalidArgument, err.Error())
	}
	replies := t.replies
	if n := len(replies); n > 0 && replies[n-1].Kind == Immediate {
		refusal, replies = &replies[n-1], replies[:n-1]
	}
	if err := t.send(replies); err != nil {
		return nil, false, ended(err)
	}
	if refusal != nil {
		return refusal, false, nil
	}
	t.logPick()
	clear(replies) // they refer to bodies
	if t.machine.Sent() {
		return nil, true, nil
	}
	t.enter(t.server.states.of(t.machine))
	return nil, false, nil
}

// enter changes the state. The time for a request counts from its first message, and that for a response from its last one.
func (t *stream) enter(state *peers.State) {
	if state != t.state || state == t.server.states.response {
		t.state = state
		t.Enter(state)
	}
}

// send sends replies in order, and frees those that cannot be sent.
func (t *stream) send(replies []Reply) error {
	for i := range replies {
		if err := t.Send(&replies[i]); err != nil {
			free(replies[i+1:])
			return err //nolint:wrapcheck // the caller examines it
		}
	}
	return nil
}

// free frees the bodies of replies.
func free(replies []Reply) {
	for i := range replies {
		if body := replies[i].Body; body != nil {
			body.Free()
		}
	}
}

// refusalOf returns the refusal of a request of which a message could not be received, nil if the stream must end without.
func (t *stream) refusalOf(err error) *exchange.Refusal {
	switch {
	case !t.machine.Waiting():
	case is[*peers.TimeoutError](err):
		return exchange.TimedOut()
	case is[*peers.MessageSizeError](err):
		return exchange.TooLarge(t.server.machine.MaxBody)
	case errors.Is(err, fairshare.ErrTooManyBytes):
		return exchange.Exhausted(err)
	}
	return nil
}

// logPick logs the destination of a request at debug level.
func (t *stream) logPick() {
	if t.server.debug() && len(t.replies) > 0 && t.replies[0].Destination != "" {
		t.server.log.Debug("Picked endpoint",
			zap.String(logging.KeyRequestID, t.machine.exchange.RequestID), zap.String(logging.KeyEndpoint, t.replies[0].Destination))
	}
}

// ended returns the status for a stream that ended with err, nil if its gateway ended it.
func ended(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case is[*peers.TimeoutError](err):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case is[*peers.MessageSizeError](err), errors.Is(err, fairshare.ErrTooManyBytes):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return nil
	default:
		return err
	}
}

// is reports whether err is, or wraps, an error of a type.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
