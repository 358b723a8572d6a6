package externalscaler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/logging"
)

const (
	// maxMessage is the size of a request. KEDA sends the metadata of the trigger.
	maxMessage = 64 << 10
	// maxHeaders is the size of the headers of a call. KEDA's have less than 1 KiB. gRPC's default is 16 MiB.
	maxHeaders = 8 << 10
	// maxCalls is the number of calls on a connection at a time. KEDA has one connection for all ScaledObjects, and a call beyond the limit
	// waits: streams alone must never reach it.
	maxCalls = 2 * maxStreams
	// maxConnections is the number of connections at a time. KEDA needs one for each set of connection settings in triggers. Beyond it, the
	// address with the most loses its oldest one.
	maxConnections = 256

	// greetTimeout is the time for TLS and the HTTP/2 preface of a new connection.
	greetTimeout = 10 * time.Second
	// minPing is the least interval of a client's pings.
	minPing = 10 * time.Second
	// pingAfter and pingTimeout find clients that disappeared, so that their streams end.
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
	// drainTimeout is the time for calls at the end of a term. They answer at once.
	drainTimeout = time.Second
)

// Params are the parameters of New.
type Params struct {
	Log       *zap.Logger
	Decisions *Table
	Metrics   observer
	// Listen opens the port. It is called at the beginning of each term.
	Listen func() (net.Listener, error)
	// TLS is nil for plaintext. Its verification of clients applies. gRPC adds ALPN (h2).
	TLS *tls.Config
}

// Server serves KEDA while this replica leads.
type Server struct {
	p       Params
	service *service
}

// New returns a Server. Run opens its port.
func New(p Params) *Server {
	return &Server{p: p, service: &service{decisions: p.Decisions, streams: newStreamCounter(p.Metrics)}}
}

// Run listens while there are decisions, until ctx ends. It returns an error if it cannot listen.
func (s *Server) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		leading, changed := s.p.Decisions.Watch()
		if leading {
			if err := s.serveTerm(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// serveTerm listens until the end of the term, or of ctx.
func (s *Server) serveTerm(ctx context.Context) error {
	listener, err := s.p.Listen()
	if err != nil {
		return fmt.Errorf("listen for KEDA: %w", err)
	}
	server := grpc.NewServer(s.serverOptions()...)
	RegisterExternalScalerServer(server, s.service)
	s.p.Log.Info("Started listening for KEDA", zap.String(logging.KeyAddress, listener.Addr().String()))
	served := make(chan error, 1)
	limiter := connlimit.New(connlimit.Limits{Waiting: maxConnections})
	go func() { served <- server.Serve(limiter.Listener(listener)) }()
	defer s.p.Log.Info("Stopped listening for KEDA")
	for leading, changed := s.p.Decisions.Watch(); leading && ctx.Err() == nil; leading, changed = s.p.Decisions.Watch() {
		select {
		case <-changed:
		case <-ctx.Done():
		case err := <-served:
			server.Stop()
			return fmt.Errorf("serve KEDA: %w", err)
		}
	}
	timer := time.AfterFunc(drainTimeout, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return <-served
}

func (s *Server) serverOptions() []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if s.p.TLS != nil {
		creds = credentials.NewTLS(s.p.TLS)
	}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(greetTimeout),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			answer, err := handle(ctx, request)
			s.p.Metrics.CountAnswer(path.Base(info.FullMethod), status.Code(err).String())
			return answer, err
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			err := handle(service, stream)
			s.p.Metrics.CountAnswer(path.Base(info.FullMethod), status.Code(err).String())
			return err
		}),
	}
}
