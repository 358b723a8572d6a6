package extproc

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// Options configures the handling of streams.
type Options struct {
	BodyMode       BodyMode // of gateways that do not send protocol_config
	MaxRequestBody int      // bytes
	MaxBuffered    int      // total size of request bodies in memory; 0 for no limit
	MaxStreams     int      // concurrent streams; 0 for no limit
	BodyTimeout    time.Duration
	ReportEndpoint bool // name the picked endpoint in the response's headers
	IgnoreSubset   bool // ignore the subset hint of the gateway
	LeaveEarly     bool // end streams after the pick
	EmitScores     bool // send the scores of candidates to gateways
}

// pools finds the pool of a stream.
type pools interface {
	// Find returns the pool that a stream is for, by its context. It returns a pool that refuses all requests if there is none.
	Find(ctx context.Context) exchange.Pool
}

// Server answers the streams of gateways.
type Server struct {
	log     *zap.Logger
	pools   pools
	clock   clock.WithTicker
	decoder decoder
	wanted  atomic.Pointer[wanted]
	machine MachineOptions

	maxStreams  int64
	bodyTimeout time.Duration
	inFlight    atomic.Int64
	waiting     waiting
}

// Params are the parameters of NewServer.
type Params struct {
	Options Options
	Log     *zap.Logger
	Pools   pools
	Tracer  exchange.Tracer // nil if tracing is disabled
	Clock   clock.WithTicker
}

// NewServer returns a Server. It serves after Register.
func NewServer(p Params) *Server {
	s := &Server{
		log:   p.Log,
		pools: p.Pools,
		clock: p.Clock,
		machine: MachineOptions{
			Options: exchange.Options{Tracer: p.Tracer, Now: p.Clock.Now},
			MaxBody: p.Options.MaxRequestBody, Buffered: NewBudget(p.Options.MaxBuffered),
			ReportEndpoint: p.Options.ReportEndpoint, LeaveEarly: p.Options.LeaveEarly, EmitScores: p.Options.EmitScores,
		},
		maxStreams:  int64(p.Options.MaxStreams),
		bodyTimeout: p.Options.BodyTimeout,
	}
	s.decoder = decoder{bodyMode: p.Options.BodyMode, ignoreSubset: p.Options.IgnoreSubset, wanted: &s.wanted}
	s.WantHeaders(nil)
	return s
}

// WantHeaders sets the request headers, in lower case, that the picker needs besides those for every pick.
func (s *Server) WantHeaders(names []string) { s.wanted.Store(newWanted(names)) }

// processor is the interface for the gRPC server.
type processor interface {
	process(stream grpc.ServerStream) error
}

// service describes envoy.service.ext_proc.v3.ExternalProcessor. Its messages need the codec of ServerOption.
var service = grpc.ServiceDesc{
	ServiceName: ServiceName,
	HandlerType: (*processor)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Process",
		ServerStreams: true,
		ClientStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(processor).process(stream) //nolint:forcetypeassert // gRPC has checked it
		},
	}},
	Metadata: "envoy/service/ext_proc/v3/external_processor.proto",
}

// Register adds the service to a gRPC server, which must use ServerOption.
func (s *Server) Register(r grpc.ServiceRegistrar) { r.RegisterService(&service, s) }

// InFlight returns the number of open streams.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// Buffered returns the bytes of request bodies in memory.
func (s *Server) Buffered() int { return s.machine.Buffered.Used() }

// process handles one stream, until the gateway or the picker ends it.
func (s *Server) process(gs grpc.ServerStream) error {
	open := s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	m := NewMachine(s.pools.Find(gs.Context()), &s.machine)
	var err error
	if s.maxStreams > 0 && open > s.maxStreams {
		_, err = send(gs, m.Refuse(exchange.Exhausted(errStreams)))
	} else {
		err = s.serve(&stream{ServerStream: gs, machine: m})
	}
	m.Close(err)
	if err != nil {
		s.log.Debug("Ended stream with an error", zap.Error(err))
	}
	return err
}

// serve moves messages between a stream and its machine.
func (s *Server) serve(t *stream) error {
	var message Message
	var replies []Reply
	defer s.waiting.remove(t)
	for {
		s.watch(t)
		err := t.receive(&message)
		if err != nil {
			return ended(err)
		}
		replies, err = t.machine.Step(t.Context(), &message, replies[:0])
		if message.Body != nil { // nobody took it over
			message.take().Free()
		}
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		refused, err := send(t, replies)
		if err != nil || refused {
			return ended(err)
		}
		s.logPick(t.machine, replies)
		clear(replies) // they refer to bodies
		if t.machine.Sent() {
			return nil
		}
	}
}

// watch limits the time that a stream may wait for the rest of a request.
func (s *Server) watch(t *stream) {
	if t.machine.Waiting() {
		s.waiting.add(t, s.clock.Now())
	} else {
		s.waiting.remove(t)
	}
}

func (s *Server) debug() bool { return s.log.Core().Enabled(zap.DebugLevel) }

// logPick logs the destination of a request at debug level.
func (s *Server) logPick(m *Machine, replies []Reply) {
	if s.debug() && len(replies) > 0 && replies[0].Destination != "" {
		s.log.Debug("Picked endpoint", zap.String(logging.KeyRequestID, m.exchange.RequestID), zap.String(logging.KeyEndpoint, replies[0].Destination))
	}
}

// send sends replies in order, and frees those that cannot be sent. It reports whether one of them was an immediate response,
// after which the stream must be closed.
func send(stream grpc.ServerStream, replies []Reply) (refused bool, err error) {
	for i := range replies {
		if err := stream.SendMsg(&replies[i]); err != nil {
			free(replies[i+1:])
			return refused, err
		}
		refused = refused || replies[i].Kind == Immediate
	}
	return refused, nil
}

// free frees the bodies of replies.
func free(replies []Reply) {
	for i := range replies {
		if body := replies[i].Body; body != nil {
			body.Free()
		}
	}
}

// ended returns the result of a stream: nil if the gateway ended it, by a half-close, by a disconnect, or with Canceled as
// Envoy does with a finished stream.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, errExpired) {
		return nil
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return nil
	default:
		return err
	}
}
