package grpcserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	// maxConnections is the number of connections beyond which clients get no more than their share. An idle connection
	// takes about 50 KiB with TLS.
	maxConnections = 4096
	// maxConnectionsOfClient is the number of connections of one client. Envoy opens one for each worker.
	maxConnectionsOfClient = 1024

	maxAcceptBackoff = time.Second
)

// Limits are the limits of ClientServers. Those of bytes and streams are for all clients together, and are shared fairly when they
// are exceeded.
type Limits struct {
	MaxBytes       int           // messages, collected bodies and unread replies in memory; 0 for no limit
	MaxStreams     int           // open streams; 0 for no limit
	MessageTimeout time.Duration // maximum time from the head of a message to its end; 0 for no limit
	SendTimeout    time.Duration // maximum time that a reply waits for the gateway to read; 0 for no limit
}

// ClientServersParams are the parameters of NewClientServers.
type ClientServersParams struct {
	Log     *zap.Logger
	Limits  Limits
	Ledger  *limits.Ledger      // of NewLedger with the same limits, if other listeners share them; nil: its own
	Options []grpc.ServerOption // of the servers of all clients
	// Codec encodes the replies of Streams. Handlers that do not use Streams need none, and set theirs in Options.
	Codec encoding.CodecV2
	// Register adds the services to the server of a client.
	Register func(grpc.ServiceRegistrar)
}

// A ClientServers serves gRPC to many clients, with a gRPC server for each of them. Serve starts it, and GracefulStop or Stop end it.
type ClientServers struct {
	params           ClientServersParams
	ledger           *limits.Ledger
	maxConnsOfClient int64 // limit of the connections of one client
	counters         counters
	now              atomic.Int64 // the clock of deadlines: nanoseconds since the start, as of the last sweep; at least 1
	swept            time.Time    // of the sweeper: when it was last advanced
	collected        int64        // of the sweeper: when garbage was last collected, on this clock
	work             sync.WaitGroup
	stopped          chan struct{}
	stopOnce         sync.Once

	allClients atomic.Pointer[[]*client] // the clients, to be read without mu
	mu         sync.Mutex                // guards the following, and client.grpcServer
	clients    map[netip.Addr]*client
	instances  map[*clientServer]struct{} // that were not stopped
	listener   net.Listener
	stopping   bool
}

// NewLedger returns the accounts for ClientServers and other listeners with the same limits.
func NewLedger(l Limits) *limits.Ledger {
	return limits.NewLedger(limits.Limits{Connections: maxConnections, Streams: l.MaxStreams, Bytes: l.MaxBytes})
}

// NewClientServers returns ClientServers.
func NewClientServers(p ClientServersParams) *ClientServers {
	if p.Ledger == nil {
		p.Ledger = NewLedger(p.Limits)
	}
	s := &ClientServers{
		params: p, ledger: p.Ledger, maxConnsOfClient: maxConnectionsOfClient, swept: time.Now(), stopped: make(chan struct{}),
		clients: map[netip.Addr]*client{}, instances: map[*clientServer]struct{}{},
	}
	s.allClients.Store(&[]*client{})
	s.now.Store(1)
	return s
}

// Serve accepts connections until Stop or GracefulStop has ended, and returns nil then.
func (s *ClientServers) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = l.Close()
		return nil
	}
	s.listener = l
	s.work.Go(s.sweepUntilStopped)
	s.mu.Unlock()

	err := s.acceptConns(l)
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	if !stopping {
		return err
	}
	<-s.stopped
	return nil
}

// acceptConns distributes connections. It waits if the process has too many open files.
func (s *ClientServers) acceptConns(l net.Listener) error {
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
func (s *ClientServers) dispatchConn(raw net.Conn, local net.Addr) {
	c, i := s.admitConn(raw, local)
	if c == nil {
		_ = raw.Close()
		return
	}
	i.listener.deliverConn(c)
}

// admitConn adds a connection to its client. It returns nil if the client has too many.
func (s *ClientServers) admitConn(raw net.Conn, local net.Addr) (*clientConn, *clientServer) {
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
func (s *ClientServers) clientOf(a netip.Addr) *client {
	cl := s.clients[a]
	if cl == nil {
		cl = newClient(s, a)
		s.clients[a] = cl
		s.publishClients()
	}
	return cl
}

// publishClients makes the clients known to readers without mu. The caller holds it.
func (s *ClientServers) publishClients() {
	all := make([]*client, 0, len(s.clients))
	for _, cl := range s.clients {
		all = append(all, cl)
	}
	s.allClients.Store(&all)
}

// GracefulStop accepts no connections, asks clients to use other ones for new streams, and returns when the last stream has
// ended. Stop shortens it.
func (s *ClientServers) GracefulStop() { s.stopServers((*grpc.Server).GracefulStop) }

// Stop closes all connections and returns when all handlers have returned.
func (s *ClientServers) Stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	for _, cl := range *s.allClients.Load() {
		cl.closeConns()
	}
	s.stopServers((*grpc.Server).Stop)
}

func (s *ClientServers) stopServers(end func(*grpc.Server)) {
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

// Stats are figures of ClientServers. The counters only rise.
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

// TotalStats returns the current figures of all clients.
func (s *ClientServers) TotalStats() Stats {
	c := &s.counters
	return Stats{
		Clients:     len(*s.allClients.Load()),
		Connections: int(s.ledger.TotalUse(limits.Connections)),
		Streams:     int(s.ledger.TotalUse(limits.Streams)),
		Bytes:       int(s.ledger.TotalUse(limits.Bytes)),

		RefusedConnections: c.refusedConnections.Load(),
		RefusedStreams:     c.refusedStreams.Load(),
		ExpiredStreams:     c.expired.Load(),
		EvictedStreams:     c.evicted.Load(),
		BlockedConnections: c.blocked.Load(),
		ClosedClients:      c.closedClients.Load(),
	}
}

// ClientStats are figures of one client.
type ClientStats struct {
	Address     netip.Addr
	Connections int
	Streams     int
	Bytes       int
}

// ClientStats returns the current figures of each client, by address.
func (s *ClientServers) ClientStats() []ClientStats {
	var all []ClientStats
	for _, cl := range *s.allClients.Load() {
		all = append(all, ClientStats{
			Address: cl.account.Address, Connections: int(cl.account.CurrentUse(limits.Connections)),
			Streams: int(cl.account.CurrentUse(limits.Streams)), Bytes: int(cl.account.CurrentUse(limits.Bytes)),
		})
	}
	slices.SortFunc(all, func(a, b ClientStats) int { return a.Address.Compare(b.Address) })
	return all
}

// streamKey is the key of the Stream in the context of a stream.
type streamKey struct{}

func streamOf(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}
