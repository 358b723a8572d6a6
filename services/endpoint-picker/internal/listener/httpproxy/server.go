package httpproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

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
	request.Options

	Address        string        // empty: the listener is off
	SharePort      bool          // with the next process
	TLS            *tls.Config   // nil: plain HTTP
	MaxRequestBody int           // bytes
	BodyTimeout    time.Duration // maximum time to receive the headers, and to receive the body
	IdleTimeout    time.Duration // maximum time without a byte of a response; 0 for no limit
	SendTimeout    time.Duration // maximum time that a client takes to read a piece of a response
	Forwarded      ForwardedPolicy
	MaxServerConns int // maximum number of connections to one model server; 0 for no limit
	MaxAttempts    int // maximum number of model servers that a request is sent to
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
}

// Server serves the requests of clients. OpenListener opens its port, Run serves, and DrainConns or Close end it.
type Server struct {
	*limits.HTTPListener

	params   Params
	shared   *sharedPort // nil if the port is not shared
	upstream *upstream
	cut      context.CancelFunc // ends the contexts of all requests
	counters *counters
	requests openRequests
}

// New returns a Server.
func New(p Params) *Server {
	p.Options.Ranking = p.Options.MaxAttempts
	s := &Server{
		params: p, counters: newCounters(), upstream: newUpstream(p.Options.MaxServerConns, (&net.Dialer{}).DialContext),
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // net/http does not see TLS
	base, cut := context.WithCancel(context.Background())
	s.cut = cut
	server := &http.Server{
		Handler:                      s,
		BaseContext:                  func(net.Listener) context.Context { return base },
		Protocols:                    protocols,
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
	s.HTTPListener = limits.NewHTTPListener(limits.HTTPParams{
		Log: p.Log, Ledger: p.Ledger, Flag: flag, Address: p.Options.Address, TLS: p.Options.TLS, Protocols: []string{"h2", "http/1.1"},
		Server: server,
	})
	return s
}

// OpenListener opens the port. With SharePort, the next process can open it before this one ends, and gets the connections when this one
// drains or ends.
func (s *Server) OpenListener() error {
	o := s.params.Options
	if !o.SharePort || o.Address == "" {
		return s.HTTPListener.OpenListener()
	}
	port, joined, err := listenShared(o.Address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", flag, o.Address, err)
	}
	if joined {
		s.params.Log.Info("Joined another process on the same port, which gets all connections until it drains or ends",
			zap.String(logging.KeyAddress, o.Address))
	}
	s.shared = port
	s.AttachListener(port)
	return nil
}

// DrainConns hands the port over to the next process if it shares it, and is that of HTTPListener then.
func (s *Server) DrainConns(ctx context.Context) bool {
	if s.shared != nil {
		s.shared.handOver(ctx)
	}
	return s.HTTPListener.DrainConns(ctx)
}

// InFlight returns the number of open requests.
func (s *Server) InFlight() int { return int(s.requests.count.Load()) }

// Close closes all connections and returns when all handlers have returned.
func (s *Server) Close() {
	s.HTTPListener.Close()
	s.cut() // tunnels, which the server has forgotten
	s.requests.closeAndWait()
	s.upstream.transport.CloseIdleConnections()
}

// openRequests are the open requests.
type openRequests struct {
	count   atomic.Int64
	running sync.WaitGroup
	mu      sync.Mutex // guards closed, and so that running does not begin to wait while a request is added
	closed  bool
}

// addRequest counts a request. It returns false after the end.
func (r *openRequests) addRequest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	r.count.Add(1)
	return true
}

func (r *openRequests) removeRequest() {
	r.count.Add(-1)
	r.running.Done()
}

// closeAndWait refuses further requests, and waits for the open ones.
func (r *openRequests) closeAndWait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}
