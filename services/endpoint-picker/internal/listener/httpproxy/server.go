package httpproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/limits"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// idleTimeout is the time that a connection of a client may be without a request. Envoy closes its idle connections after an hour, and
	// other load balancers earlier: the client should be the first to close, or else its next request may meet the end of the connection.
	// TCP keep-alive ends those of hosts that have gone.
	idleTimeout = 70 * time.Minute
	// maxHeaders is the maximum size of a request's headers: Envoy's is 60 KiB.
	maxHeaders = 64 << 10
	// http2Ping is the time without a frame after which an HTTP/2 client is asked whether it is there.
	http2Ping = 30 * time.Second

	// flag is the flag of the address, in messages.
	flag = "proxy-bind-address"
)

// Options configures the listener.
type Options struct {
	Address        string        // empty: the listener is off
	TLS            *tls.Config   // nil: plain HTTP
	MaxRequestBody int           // bytes
	BodyTimeout    time.Duration // maximum time to receive the headers, and to receive the body
	IdleTimeout    time.Duration // maximum time without a byte of a response; 0 for no limit
	SendTimeout    time.Duration // maximum time that a client takes to read a piece of a response
	Forwarded      ForwardedPolicy
	MaxServerConns int  // maximum number of connections to one model server; 0 for no limit
	MaxAttempts    int  // maximum number of model servers that a request is sent to
	ReportEndpoint bool // name the picked endpoint in the response's headers
}

// pools finds the pool of a request.
type pools interface {
	// FindHost returns the pool that a request with this host is for. It returns a pool that refuses all requests if there is
	// none.
	FindHost(host string) request.Pool
}

// Params are the parameters of New.
type Params struct {
	Options Options
	Log     *zap.Logger
	Pools   pools
	Ledger  *limits.Ledger
	Tracer  request.Tracer // nil if tracing is disabled
	Clock   clock.PassiveClock
	NewID   func() string // identifies requests without x-request-id; may be nil
}

// Server serves the requests of clients. OpenListener opens its port, Run serves, and DrainConns or Close end it.
type Server struct {
	log            *zap.Logger
	options        Options
	pools          pools
	requestOptions request.Options
	wanted         atomic.Pointer[wantedHeaders]
	upstream       *upstream
	http           *http.Server
	gate           *limits.Gate
	listener       net.Listener // nil until OpenListener

	connections *limits.Drain
	cut         context.CancelFunc // ends the contexts of all requests
	counters    counters
	requests    openRequests
}

// New returns a Server.
func New(p Params) *Server {
	gate := limits.NewGate(p.Ledger)
	s := &Server{
		log: p.Log, options: p.Options, pools: p.Pools, gate: gate, connections: limits.NewDrain(gate),
		requestOptions: request.Options{Tracer: p.Tracer, Now: p.Clock.Now, NewID: p.NewID, Ranking: p.Options.MaxAttempts},
		upstream:       newUpstream(p.Options.MaxServerConns, (&net.Dialer{}).DialContext),
	}
	s.requests.none = sync.NewCond(&s.requests.mu)
	s.WantHeaders(nil)
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // unreachable: zap has this level
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // net/http does not see TLS
	base, cut := context.WithCancel(context.Background())
	s.cut = cut
	s.http = &http.Server{
		Handler:                      s,
		BaseContext:                  func(net.Listener) context.Context { return base },
		Protocols:                    protocols,
		ErrorLog:                     errorLog,
		ConnContext:                  limits.WithConn,
		ConnState:                    s.connections.OnConnState,
		ReadHeaderTimeout:            p.Options.BodyTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaders,
		DisableGeneralOptionsHandler: true, // it belongs to the model server
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: limits.HTTP2Window,
			MaxReceiveBufferPerStream:     limits.HTTP2Window,
			SendPingTimeout:               http2Ping,
			WriteByteTimeout:              p.Options.SendTimeout,
		},
	}
	return s
}

// WantHeaders sets the request headers, in lower case, that the picker needs besides those for every pick.
func (s *Server) WantHeaders(names []string) { s.wanted.Store(newWantedHeaders(names)) }

// OpenListener opens the port.
func (s *Server) OpenListener() error {
	if s.options.Address == "" {
		return nil
	}
	raw, err := net.Listen("tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", flag, s.options.Address, err)
	}
	s.listener = s.gate.CountingListener(raw, s.options.TLS, "h2", "http/1.1")
	return nil
}

// ListenAddress returns the address of the listener, empty if it is off.
func (s *Server) ListenAddress() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until DrainConns or Close, which may be called first.
func (s *Server) Run() error {
	if s.listener == nil {
		return nil
	}
	s.log.Info("Started listening", zap.String(logging.KeyAddress, s.ListenAddress()), zap.String("flag", flag))
	err := s.http.Serve(s.listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve --%s %s: %w", flag, s.options.Address, err)
	}
	return nil
}

// InFlight returns the number of open requests.
func (s *Server) InFlight() int { return s.requests.openCount() }

// Close closes all connections and returns when all handlers have returned.
func (s *Server) Close() {
	_ = s.http.Close()
	s.cut() // tunnels, which the server has forgotten
	if s.listener != nil {
		_ = s.listener.Close() // a server that ran has closed it
	}
	s.requests.closeAndWait()
	s.upstream.closeIdle()
}

// openRequests are the open requests.
type openRequests struct {
	mu     sync.Mutex
	none   *sync.Cond
	open   int
	closed bool
}

// addRequest counts a request. It returns false after the end.
func (r *openRequests) addRequest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.open++
	return true
}

func (r *openRequests) removeRequest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open--; r.open == 0 {
		r.none.Broadcast()
	}
}

func (r *openRequests) openCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// closeAndWait refuses further requests, and waits for the open ones.
func (r *openRequests) closeAndWait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.open > 0 {
		r.none.Wait()
	}
}
