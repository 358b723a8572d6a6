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
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// streamStates are the states of streams, for their limits.
type streamStates struct {
	headers, body, response *grpcserver.StreamState
}

func newStreamStates(o *Options) streamStates {
	message := grpcserver.MaxBodyMessage(o.MaxRequestBody)
	return streamStates{
		headers:  &grpcserver.StreamState{Name: "request headers", Timeout: o.BodyTimeout, MaxMessage: grpcserver.MaxHeadersMessage, Evictable: true},
		body:     &grpcserver.StreamState{Name: "request body", Timeout: o.BodyTimeout, MaxMessage: message, Evictable: true},
		response: &grpcserver.StreamState{Name: "response", Timeout: o.IdleTimeout, MaxMessage: message},
	}
}

// stateOf returns the state of a stream by its machine.
func (s *streamStates) stateOf(m *Machine) *grpcserver.StreamState {
	switch {
	case !m.IsReceiving():
		return s.response
	case m.request == requestFresh:
		return s.headers
	default:
		return s.body
	}
}

// stream is the stream of one request. Its handler calls all methods.
type stream struct {
	*grpcserver.Stream

	server  *Server
	machine *Machine
	state   *grpcserver.StreamState
	message Message
	replies []Reply
}

// openStream returns the stream of a handler.
func (s *Server) openStream(gs grpc.ServerStream) (*stream, error) {
	inner, err := grpcserver.OpenStream(gs, s.states.headers)
	if err != nil {
		return nil, err
	}
	machine := NewMachine(s.params.Pools.FindPool(gs.Context()), inner.BufferPool(), &s.params.Options)
	return &stream{Stream: inner, server: s, machine: machine, state: s.states.headers}, nil
}

// handleMessages handles the messages of the stream, until the gateway or the picker ends it. It returns the last reply if the picker
// refuses the request.
func (t *stream) handleMessages() (refusal *Reply, err error) {
	if err := t.AdmitStream(); err != nil {
		return t.machine.RefuseRequest(request.Exhausted(err)), nil
	}
	for {
		if err := t.receiveMessage(); err != nil {
			if r := t.refusalOf(err); r != nil {
				return t.machine.RefuseRequest(r), nil
			}
			return nil, streamStatus(err)
		}
		refusal, done, err := t.handleMessage()
		if refusal != nil || done || err != nil {
			return refusal, err
		}
	}
}

// receiveMessage waits for the next message.
func (t *stream) receiveMessage() error {
	data, err := t.ReceiveMessage()
	if err != nil {
		return err
	}
	defer data.Free()
	if err := t.server.decoder.decodeMessage(data, &t.message); err != nil {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("read ProcessingRequest: %v", err))
	}
	if t.message.Kind == RequestHeaders { // the request keeps parts of them
		t.AddHeldBytes(data.Len())
	}
	if t.machine.IsReceiving() {
		if err := t.AdmitBytes(); err != nil {
			t.message.freeBody()
			return err
		}
	}
	return nil
}

// handleMessage handles one message. It returns the last reply if the picker refuses the request.
func (t *stream) handleMessage() (refusal *Reply, done bool, err error) {
	// The request may wait for an endpoint.
	t.WithoutDeadline(func() { t.replies, err = t.machine.Step(t.Context(), &t.message, t.replies[:0]) })
	t.message.freeBody() // unless the machine took it over
	if err != nil {
		return nil, false, status.Error(codes.InvalidArgument, err.Error())
	}
	replies := t.replies
	if n := len(replies); n > 0 && replies[n-1].Kind == Immediate {
		refusal, replies = &replies[n-1], replies[:n-1]
	}
	if err := t.sendReplies(replies); err != nil {
		return nil, false, streamStatus(err)
	}
	if refusal != nil {
		return refusal, false, nil
	}
	t.logPick()
	clear(replies) // they refer to bodies
	if t.machine.OnRepliesSent() {
		return nil, true, nil
	}
	t.enterState(t.server.states.stateOf(t.machine))
	return nil, false, nil
}

// enterState changes the state. The time for a request counts from its first message, and that for a response from its last one.
func (t *stream) enterState(state *grpcserver.StreamState) {
	if state != t.state || state == t.server.states.response {
		t.state = state
		t.EnterState(state)
	}
}

// sendReplies sends replies in order, and frees those that cannot be sent.
func (t *stream) sendReplies(replies []Reply) (err error) {
	for i := range replies {
		if err == nil {
			err = t.SendReply(encodeReply(&replies[i]))
		} else if body := replies[i].Body; body != nil {
			body.Free()
		}
	}
	return err
}

// refusalOf returns the refusal of a request of which a message could not be received, nil if the stream must end without.
func (t *stream) refusalOf(err error) *request.Refusal {
	switch {
	case !t.machine.IsReceiving():
	case isError[*grpcserver.TimeoutError](err):
		return request.TimedOut()
	case isError[*grpcserver.MessageSizeError](err):
		return request.TooLarge(t.server.params.Options.MaxRequestBody)
	case errors.Is(err, limits.ErrTooManyBytes):
		return request.Exhausted(err)
	}
	return nil
}

// logPick logs the destination of a request at debug level.
func (t *stream) logPick() {
	log := t.server.params.Log
	if log.Core().Enabled(zap.DebugLevel) && len(t.replies) > 0 && t.replies[0].Destination != "" {
		log.Debug("Picked endpoint",
			zap.String(logging.KeyRequestID, t.machine.requestContext.RequestID), zap.String(logging.KeyEndpoint, t.replies[0].Destination))
	}
}

// streamStatus returns the status for a stream that ended with err, nil if its gateway ended it.
func streamStatus(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case isError[*grpcserver.TimeoutError](err):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case isError[*grpcserver.MessageSizeError](err), errors.Is(err, limits.ErrTooManyBytes):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return nil
	default:
		return err
	}
}

// isError reports whether err is, or wraps, an error of a type.
func isError[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
