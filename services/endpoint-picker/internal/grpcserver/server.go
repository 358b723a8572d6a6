// Package grpcserver runs the picker's gRPC servers: it opens their ports, secures them, and lets them drain.
//
// A server that drains accepts nothing new and tells each gateway to use another connection for its next requests
// (HTTP/2 GOAWAY), while the streams that are open go on to their end, within a bound.
package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"fairlead.dev/pkg/logging"
)

// Service is something that a gRPC server can serve.
type Service interface {
	Register(r grpc.ServiceRegistrar)
}

// Server is one gRPC server on one port.
type Server struct {
	log      *zap.Logger
	flag     string
	port     int
	options  []grpc.ServerOption
	service  Service
	server   *grpc.Server // nil until Listen, as it has goroutines
	listener net.Listener
}

// Params is what a Server is made of.
type Params struct {
	Log     *zap.Logger
	Flag    string // that the port came from, for people
	Port    int
	Options []grpc.ServerOption
	Service Service
}

// New returns a Server that opens nothing until Listen.
func New(p Params) *Server {
	return &Server{log: p.Log, flag: p.Flag, port: p.Port, options: append(p.Options, grpc.WaitForHandlers(true)), service: p.Service}
}

// Listen opens the port.
func (s *Server) Listen() error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listen on --%s %d: %w", s.flag, s.port, err)
	}
	s.listener, s.server = listener, grpc.NewServer(s.options...)
	s.service.Register(s.server)
	return nil
}

// Address returns where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until Drain or Close, which may come first.
func (s *Server) Run() error {
	s.log.Info("Started listening", zap.String(logging.KeyAddress, s.Address()), zap.String("flag", s.flag))
	if err := s.server.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve --%s %d: %w", s.flag, s.port, err)
	}
	return nil
}

// Drain accepts nothing new and returns when the last stream has ended, or when ctx ends: then it is false, and Close
// will cut what is open.
func (s *Server) Drain(ctx context.Context) bool {
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

// Close ends the server, cuts what is open and returns when all handlers have.
func (s *Server) Close() {
	if s.server == nil {
		return
	}
	s.server.Stop()
	_ = s.listener.Close() // a server that ran has closed it
}
