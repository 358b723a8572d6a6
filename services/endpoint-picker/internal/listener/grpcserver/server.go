// A draining Server accepts nothing new and makes each gateway use another connection for its next requests (HTTP/2 GOAWAY),
// while open streams continue to their end, within a time limit. ClientServers keep gateways from hurting each other.

package grpcserver

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// Service is a service of a gRPC server.
type Service interface {
	Register(r grpc.ServiceRegistrar)
}

// Server is one gRPC server on one port.
type Server struct {
	log      *zap.Logger
	flag     string
	port     int
	server   *ClientServers
	listener net.Listener // nil until OpenListener
}

// Params are the parameters of New.
type Params struct {
	Log     *zap.Logger
	Flag    string // flag that sets the port, for messages
	Port    int
	Options []grpc.ServerOption
	Limits  Limits
	Ledger  *limits.Ledger   // if other listeners share the limits; may be nil
	Codec   encoding.CodecV2 // of handlers that use Stream; nil if Service has none
	Service Service
}

// New returns a Server. OpenListener opens its port.
func New(p Params) *Server {
	return &Server{log: p.Log, flag: p.Flag, port: p.Port, server: NewClientServers(ClientServersParams{
		Log: p.Log, Limits: p.Limits, Ledger: p.Ledger, Options: p.Options, Codec: p.Codec, Register: p.Service.Register,
	})}
}

// OpenListener opens the port.
func (s *Server) OpenListener() error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listen on --%s %d: %w", s.flag, s.port, err)
	}
	s.listener = listener
	return nil
}

// ListenAddress returns the address of the server.
func (s *Server) ListenAddress() string { return s.listener.Addr().String() }

// Run serves until DrainStreams or Close, which may be called first.
func (s *Server) Run() error {
	s.log.Info("Started listening", zap.String(logging.KeyAddress, s.ListenAddress()), zap.String("flag", s.flag))
	if err := s.server.Serve(s.listener); err != nil {
		return fmt.Errorf("serve --%s %d: %w", s.flag, s.port, err)
	}
	return nil
}

// DrainStreams stops accepting and returns true when the last stream has ended, or false when ctx ends first. Then Close cuts the
// open streams.
func (s *Server) DrainStreams(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.server.GracefulStop()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close stops the server, cuts open streams and returns when all handlers have returned.
func (s *Server) Close() {
	s.server.Stop()
	if s.listener != nil {
		_ = s.listener.Close() // a server that ran has closed it
	}
}

// GatewayStats returns figures of the server and its gateways.
func (s *Server) GatewayStats() Stats { return s.server.TotalStats() }
