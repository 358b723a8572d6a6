package grpcserver

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// maxRefused is the number of streams of one client that are being refused by their handlers. Further ones are refused without a reason for
// clients. A stream takes about 7 KiB.
const maxRefused = 256

// readBuffer is the size of the buffer of a connection for what it reads, which it has while it is idle, too. gRPC reads the content of
// larger frames directly into buffers of the pool.
const readBuffer = 4 << 10

const (
	headerAuthority = ":authority"
	maxAuthority    = 512 // bytes: more than a DNS name with the name of an Envoy cluster has
)

// The refusals of streams before their handler runs. They have no body, so that they need no flow control window of a client.
var (
	errTooManyStreams = status.Error(codes.ResourceExhausted, "too many open streams")
	errNoConnection   = status.Error(codes.Internal, "the credentials of the server hide the connection")
	errNotReading     = status.Error(codes.ResourceExhausted, "the connection does not read")
)

// A client is one gateway, by its IP address. It has a gRPC server of its own, so that limits and the buffer pool of gRPC apply
// to this client alone.
type client struct {
	server  *Server
	account *limits.Account

	mu      sync.Mutex // guards the following
	conns   map[*clientConn]struct{}
	streams []*Stream // that have not left; see Stream.index
	opened  uint64    // number of streams so far
	refused int       // streams that their handlers have to refuse

	grpcServer *clientServer // guarded by server.mu; nil while the client has none

	idle        atomic.Int32 // sweeps since there was a connection
	uncounted   int64        // bytes of the last estimate. Of the sweeper
	beyondSince int64        // when the client went beyond its share of bytes, on the server's clock; 0 if it is within. Of the sweeper
}

// A clientServer is the gRPC server of a client, while the client has connections and a little longer.
type clientServer struct {
	grpc     *grpc.Server
	listener *handoverListener
}

func newClient(s *Server, address netip.Addr) *client {
	return &client{server: s, account: s.params.Ledger.OpenAccount(address), conns: map[*clientConn]struct{}{}}
}

// startServer starts the gRPC server of the client. The caller holds server.mu.
func (cl *client) startServer(local net.Addr) *clientServer {
	params := &cl.server.params
	options := append(slices.Clip(params.Options), experimental.BufferPool(cl.account.BufferPool()), grpc.InTapHandle(cl.tapStream),
		grpc.WaitForHandlers(true),
		grpc.ReadBufferSize(readBuffer),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}))
	handover := &handoverListener{address: local, conns: make(chan net.Conn), closed: make(chan struct{})}
	i := &clientServer{grpc: grpc.NewServer(options...), listener: handover}
	params.Register(i.grpc)
	cl.server.work.Go(func() { _ = i.grpc.Serve(i.listener) }) // it ends with Stop
	return i
}

// tapStream runs before the handler of each stream. It counts the stream, makes it cancelable, and drops the HTTP/2 headers except
// the :authority, because nobody reads the others: they would stay in memory as long as the stream.
func (cl *client) tapStream(ctx context.Context, info *tap.Info) (context.Context, error) {
	maps.DeleteFunc(info.Header, func(key string, values []string) bool {
		return key != headerAuthority || len(values) != 1 || len(values[0]) > maxAuthority
	})
	c := connOf(ctx)
	switch {
	case c == nil:
		return ctx, errNoConnection
	case c.blockedFor() > maxBlocked:
		cl.server.counters.refusedStreams.Add(1)
		return ctx, errNotReading
	}
	s := newStream(ctx, cl, c)
	if !cl.addStream(s) {
		cl.server.counters.refusedStreams.Add(1)
		return ctx, errTooManyStreams
	}
	return s.ctx, nil
}

// mustPause reports whether the client holds so much memory that its connections must not be read.
func (cl *client) mustPause() bool {
	l := cl.server.params.Ledger
	limit := l.LimitOf(limits.Bytes) // without one, no account is overdrawn
	return l.TotalUse(limits.Bytes) > limit+limit/pauseFraction && cl.account.IsOverdrawn()
}

func (cl *client) addConn(c *clientConn) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.conns[c] = struct{}{}
	cl.account.AddUse(limits.Connections, 1)
	cl.idle.Store(0)
}

// removeConn forgets a closed connection. Replies that it has not sent are lost, so its streams do not wait for them.
func (cl *client) removeConn(c *clientConn) {
	var unsent []*Stream
	cl.mu.Lock()
	delete(cl.conns, c)
	c.isClosed = true
	for _, s := range cl.streams {
		if s.conn == c && s.handled {
			unsent = append(unsent, s)
		}
	}
	cl.mu.Unlock()
	cl.account.AddUse(limits.Connections, -1)
	for _, s := range unsent {
		s.removeFromClient()
	}
}

// closeConns closes all connections of the client.
func (cl *client) closeConns() {
	for _, c := range cl.allConns() {
		_ = c.Close()
	}
}

func (cl *client) allConns() []*clientConn {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return slices.Collect(maps.Keys(cl.conns))
}

func (cl *client) allStreams(into []*Stream) []*Stream {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return append(into, cl.streams...)
}

// addStream adds a stream to the client. If the client has too many, the handler must refuse the stream. It returns false if the
// client has too many of those, too.
func (cl *client) addStream(s *Stream) bool {
	s.refused = !cl.account.TryAddUse(limits.Streams, 1)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s.refused {
		if cl.refused >= maxRefused {
			return false
		}
		cl.refused++
	}
	cl.opened++
	s.index, s.position = len(cl.streams), cl.opened
	cl.streams = append(cl.streams, s)
	return true
}

func (cl *client) removeStream(s *Stream) {
	if !s.refused {
		cl.account.AddUse(limits.Streams, -1)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s.refused {
		cl.refused--
	}
	last := len(cl.streams) - 1
	cl.streams[s.index] = cl.streams[last]
	cl.streams[s.index].index = s.index
	cl.streams[last] = nil
	cl.streams = cl.streams[:last]
}

// A handoverListener is the listener of one client's server. It gets connections from the listener of all.
type handoverListener struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// deliverConn passes a connection on, or closes it if the server has stopped.
func (h *handoverListener) deliverConn(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (h *handoverListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoverListener) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *handoverListener) Addr() net.Addr { return h.address }
