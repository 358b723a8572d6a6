package extproc

import (
	"errors"
	"io"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
)

// Options says how streams are answered.
type Options struct {
	BodyMode       BodyMode // of gateways that do not tell theirs
	MaxRequestBody int      // bytes
	ReportEndpoint bool     // name the picked endpoint in the response's headers
	IgnoreSubset   bool     // pick from the whole pool whatever the gateway allows
}

// observer takes the measurements of every stream.
type observer interface {
	StreamStarted()
	StreamEnded(o Outcome)
}

// Server answers the streams of gateways.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	log      *zap.Logger
	picker   picker
	observer observer
	clock    clock.PassiveClock
	decoder  decoder
	machine  MachineOptions
	inFlight atomic.Int64
}

// Params is what a Server is made of.
type Params struct {
	Options  Options
	Log      *zap.Logger
	Picker   picker
	Observer observer
	Clock    clock.PassiveClock
}

// NewServer returns a Server that is yet to be registered.
func NewServer(p Params) *Server {
	return &Server{
		log:      p.Log,
		picker:   p.Picker,
		observer: p.Observer,
		clock:    p.Clock,
		decoder:  decoder{bodyMode: p.Options.BodyMode, ignoreSubset: p.Options.IgnoreSubset},
		machine:  MachineOptions{MaxBody: p.Options.MaxRequestBody, ReportEndpoint: p.Options.ReportEndpoint},
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { extprocv3.RegisterExternalProcessorServer(r, s) }

// InFlight returns how many streams are open.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// Process answers one stream, until the gateway ends it or nothing more is to be said.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.observer.StreamStarted()
	m := NewMachine(s.picker, s.machine)
	err := s.exchange(stream, m)
	outcome := m.Close(s.clock.Now())
	if err != nil {
		outcome.Kind = Failed
		s.log.Debug("Ended stream with an error", zap.Error(err))
	}
	s.observer.StreamEnded(outcome)
	return err
}

// exchange moves messages between the stream and its machine.
func (s *Server) exchange(stream extprocv3.ExternalProcessor_ProcessServer, m *Machine) error {
	var message Message
	var replies []Reply
	var requestID string
	for {
		in, err := stream.Recv()
		if err != nil {
			return ended(err)
		}
		s.decoder.decode(in, &message)
		if message.Kind == RequestHeaders && s.debug() {
			requestID = headerValue(in.GetRequestHeaders().GetHeaders(), headerRequestID)
		}
		if replies, err = m.Step(&message, replies[:0]); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		refused, err := send(stream, replies)
		if err != nil || refused {
			return ended(err)
		}
		s.logPick(requestID, replies)
		clear(replies) // they refer to bodies
	}
}

func (s *Server) debug() bool { return s.log.Core().Enabled(zap.DebugLevel) }

// logPick logs, at debug, where a request goes.
func (s *Server) logPick(requestID string, replies []Reply) {
	if s.debug() && len(replies) > 0 && replies[0].Destination != "" {
		s.log.Debug("Picked endpoint", zap.String(logging.KeyRequestID, requestID), zap.String(logging.KeyEndpoint, replies[0].Destination))
	}
}

// send sends replies in their order and reports whether one of them was an immediate response, after which the
// stream is to be closed.
func send(stream extprocv3.ExternalProcessor_ProcessServer, replies []Reply) (refused bool, err error) {
	for i := range replies {
		if err := stream.Send(encode(&replies[i])); err != nil {
			return refused, err
		}
		refused = refused || replies[i].Kind == Immediate
	}
	return refused, nil
}

// ended is the result of a stream: none if the gateway has ended it, by a half-close, by going away, or in Canceled as
// Envoy does with a stream that is done.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return nil
	default:
		return err
	}
}
