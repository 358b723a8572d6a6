package extproc

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Options configures the handling of streams.
type Options struct {
	request.Options

	BodyMode       BodyMode      // of gateways that do not send protocol_config
	MaxRequestBody int           // bytes
	BodyTimeout    time.Duration // maximum time to receive the headers, and to receive the body
	IdleTimeout    time.Duration // maximum time between two messages after that; 0 for no limit
	IgnoreSubset   bool          // ignore the subset hint of the gateway
	LeaveEarly     bool          // end streams after the pick
	EmitScores     bool          // send the scores of candidates to gateways
}

// poolFinder finds the pool of a stream.
type poolFinder interface {
	// FindPool returns the pool that a stream is for, by its context. It returns a pool that refuses all requests if there is none.
	FindPool(ctx context.Context) request.Pool
}

// Server answers the streams of gateways.
type Server struct {
	params  Params
	decoder decoder
	states  streamStates

	inFlight atomic.Int64
}

// Params are the parameters of NewServer.
type Params struct {
	Options Options
	Log     *zap.Logger
	Pools   poolFinder
}

// NewServer returns a Server. It serves after Register.
func NewServer(p Params) *Server {
	return &Server{
		params: p, states: newStreamStates(&p.Options),
		decoder: decoder{bodyMode: p.Options.BodyMode, ignoreSubset: p.Options.IgnoreSubset, wanted: p.Options.Wanted},
	}
}

// service describes envoy.service.ext_proc.v3.ExternalProcessor. Its handler needs a server of package grpcserver.
var service = grpc.ServiceDesc{
	ServiceName: ServiceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Process",
		ServerStreams: true,
		ClientStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(*Server).handleStream(stream)
		},
	}},
	Metadata: "envoy/service/ext_proc/v3/external_processor.proto",
}

// Register adds the service to a gRPC server of package grpcserver.
func (s *Server) Register(r grpc.ServiceRegistrar) { r.RegisterService(&service, s) }

// InFlight returns the number of open streams.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// handleStream handles one stream, until the gateway or the picker ends it.
func (s *Server) handleStream(gs grpc.ServerStream) error {
	t, err := s.openStream(gs)
	if err != nil {
		return err
	}
	defer t.Close()
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	refusal, err := t.handleMessages()
	t.machine.Close(err) // before SendRefusal, which waits for the gateway
	if refusal != nil {
		err = streamStatus(t.SendRefusal(encodeReply(refusal)))
	}
	if err != nil {
		s.params.Log.Debug("Ended stream with an error", zap.Error(err))
	}
	return err
}
