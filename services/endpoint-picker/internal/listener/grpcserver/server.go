package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	// MaxConnections is the number of connections beyond which clients get no more than their share. An idle connection
	// takes about 50 KiB with TLS.
	MaxConnections = 4096
	// maxConnectionsOfClient is the number of connections of one client. Envoy opens one for each worker.
	maxConnectionsOfClient = 1024

	maxAcceptBackoff = time.Second
)

// Params are the parameters of New.
type Params struct {
	Log    *zap.Logger
	Flag   string // that sets the port, for messages
	Port   int
	Closed bool // the port stays closed
	Ledger *limits.Ledger

	MessageTimeout time.Duration // maximum time from the head of a message to its end; 0 for no limit
	SendTimeout    time.Duration // maximum time that a reply waits for the gateway to read; 0 for no limit

	Options  []grpc.ServerOption         // of the servers of all clients
	Register func(grpc.ServiceRegistrar) // adds the services to the server of a client
}

// A Server serves gRPC to many clients on one port, with a gRPC server for each of them. A draining Server accepts nothing new and makes
// each gateway use another connection for its next requests (HTTP/2 GOAWAY), while open streams continue to their end, within a time
// limit.
type Server struct {
	params           Params
	maxConnsOfClient int64 // limit of the connections of one client
	counters         counters
	now              atomic.Int64 // the clock of deadlines: nanoseconds since the start, as of the last sweep; at least 1
	swept            time.Time    // of the sweeper: when it was last advanced
	collected        int64        // of the sweeper: when garbage was last collected, on this clock
	work             sync.WaitGroup
	stopped          chan struct{}
	stopOnce         sync.Once
	listener         net.Listener // nil until OpenListener, and if the port stays closed

	mu        sync.Mutex // guards the following, and client.grpcServer
	clients   map[netip.Addr]*client
	instances map[*clientServer]struct{} // that were not stopped
	stopping  bool
}

// New returns a Server. OpenListener opens its port.
func New(p Params) *Server {
	s := &Server{
		params: p, maxConnsOfClient: maxConnectionsOfClient, swept: time.Now(), stopped: make(chan struct{}),
		clients: map[netip.Addr]*client{}, instances: map[*clientServer]struct{}{},
	}
	s.now.Store(1)
	return s
}

// OpenListener opens the port.
func (s *Server) OpenListener() error {
	if s.params.Closed {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(s.params.Port)))
	if err != nil {
		return fmt.Errorf("listen on --%s %d: %w", s.params.Flag, s.params.Port, err)
	}
	s.AttachListener(listener)
	return nil
}

// AttachListener makes Run serve the connections of a listener.
func (s *Server) AttachListener(l net.Listener) { s.listener = l }

// ListenAddress returns the address of the server, empty if its port stays closed.
func (s *Server) ListenAddress() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run accepts connections until DrainStreams or Close has ended, and returns nil then. Both may be called first.
func (s *Server) Run() error {
	if s.listener == nil {
		return nil
	}
	s.params.Log.Info("Started listening", zap.String(logging.KeyAddress, s.ListenAddress()), zap.String("flag", s.params.Flag))
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = s.listener.Close()
		return nil
	}
	s.work.Go(s.sweepUntilStopped)
	s.mu.Unlock()

	err := s.acceptConns(s.listener)
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	if !stopping {
		return fmt.Errorf("serve --%s %d: %w", s.params.Flag, s.params.Port, err)
	}
	<-s.stopped
	return nil
}

// acceptConns distributes connections. It waits if the process has too many open files.
func (s *Server) acceptConns(l net.Listener) error {
	var wait time.Duration
	for {
		c, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			wait = 0
			s.dispatchConn(c, l.Addr())
			continue
		case !errors.As(err, &temporary) || !temporary.Temporary():
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), maxAcceptBackoff)
		select {
		case <-time.After(wait):
		case <-s.stopped:
			return err
		}
	}
}

// dispatchConn passes a connection to the gRPC server of its client.
func (s *Server) dispatchConn(raw net.Conn, local net.Addr) {
	c, i := s.admitConn(raw, local)
	if c == nil {
		_ = raw.Close()
		return
	}
	i.listener.deliverConn(c)
}

// admitConn adds a connection to its client. It returns nil if the client has too many.
func (s *Server) admitConn(raw net.Conn, local net.Addr) (*clientConn, *clientServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, nil
	}
	cl := s.clientOf(connlimit.AddressOf(raw.RemoteAddr()))
	if cl.account.CurrentUse(limits.Connections) >= s.maxConnsOfClient || cl.account.IsBeyondShare(limits.Connections) {
		s.counters.refusedConnections.Add(1)
		return nil, nil
	}
	if cl.grpcServer == nil {
		cl.grpcServer = cl.startServer(local)
		s.instances[cl.grpcServer] = struct{}{}
	}
	c := newClientConn(raw, cl)
	cl.addConn(c)
	return c, cl.grpcServer
}

// clientOf returns the client with an address. The caller holds mu.
func (s *Server) clientOf(a netip.Addr) *client {
	cl := s.clients[a]
	if cl == nil {
		cl = newClient(s, a)
		s.clients[a] = cl
	}
	return cl
}

// listClients returns the clients of the moment.
func (s *Server) listClients() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.clients))
}

// DrainStreams stops accepting, asks clients to use other connections for new streams, and returns true when the last stream has ended, or
// false when ctx ends first. Then Close cuts the open streams.
func (s *Server) DrainStreams(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.stopServers((*grpc.Server).GracefulStop)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close closes all connections, which cuts open streams, and returns when all handlers have returned.
func (s *Server) Close() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	for _, cl := range s.listClients() {
		cl.closeConns()
	}
	s.stopServers((*grpc.Server).Stop)
}

func (s *Server) stopServers(end func(*grpc.Server)) {
	s.mu.Lock()
	s.stopping = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	var ending sync.WaitGroup
	for i := range s.instances {
		ending.Go(func() { end(i.grpc) })
	}
	s.mu.Unlock()
	ending.Wait()
	s.stopOnce.Do(func() { close(s.stopped) })
	s.work.Wait()
}

// Stats are figures of a Server. The counters only rise.
type Stats struct {
	Clients     int
	Connections int
	Streams     int // open, or ended with replies that the gateway has not read; with those of the listeners that share the ledger
	Bytes       int // held for all clients; likewise

	RefusedConnections int64 // beyond a client's share
	RefusedStreams     int64 // before their handler ran
	ExpiredStreams     int64 // ended at a deadline
	EvictedStreams     int64 // ended for their memory
	BlockedConnections int64 // closed because the client did not read
	ClosedClients      int64 // clients whose connections were closed for their memory
}

type counters struct {
	refusedConnections, refusedStreams, expired, evicted, blocked, closedClients atomic.Int64
}

// GatewayStats returns the current figures of all gateways.
func (s *Server) GatewayStats() Stats {
	c := &s.counters
	return Stats{
		Clients:     len(s.listClients()),
		Connections: int(s.params.Ledger.TotalUse(limits.Connections)),
		Streams:     int(s.params.Ledger.TotalUse(limits.Streams)),
		Bytes:       int(s.params.Ledger.TotalUse(limits.Bytes)),

		RefusedConnections: c.refusedConnections.Load(),
		RefusedStreams:     c.refusedStreams.Load(),
		ExpiredStreams:     c.expired.Load(),
		EvictedStreams:     c.evicted.Load(),
		BlockedConnections: c.blocked.Load(),
		ClosedClients:      c.closedClients.Load(),
	}
}

// streamKey is the key of the Stream in the context of a stream.
type streamKey struct{}

func streamOf(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}
