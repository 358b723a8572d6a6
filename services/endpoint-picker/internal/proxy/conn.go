package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/fairshare"
)

const (
	// connBytes is the memory of a connection: buffers of net/http and the stacks of its goroutines (BenchmarkMemory: 21 kB
	// while it is idle). At half the value, idle connections take twice the memory that is counted. At double,
	// a load balancer with many idle connections reaches its share with half as many.
	connBytes = 20 << 10
	// http2Bytes is the further memory of an HTTP/2 connection: its window, frames, and a header block. At half the value,
	// half-sent bodies take more than is counted. At double, a client has its share with half as many connections.
	http2Bytes = http2Window + 128<<10
	// headerGrowth is the memory of headers that arrive in relation to their bytes (BenchmarkMemory: 16 for fields of
	// 6 bytes, the worst case). At half the value, headers of tiny fields take twice what is counted. At double, usual headers count twice as
	// often too much, for the time in which they arrive.
	headerGrowth = 16
	// fieldOverhead is the memory of a header field besides its text, in bytes.
	fieldOverhead = 96
)

// errBeyondShare ends the connection of a client beyond its share. net/http closes it without an answer.
var errBeyondShare = &net.OpError{Op: "read", Err: fairshare.ErrTooManyBytes}

// A listener counts the connections that it accepts for their clients. It closes those of clients beyond their share.
type listener struct {
	net.Listener

	server *Server
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case err != nil && l.closed.Load():
			return nil, http.ErrServerClosed
		case err != nil:
			return nil, err //nolint:wrapcheck // net/http examines it
		}
		if c := l.server.admitConn(raw); c != nil {
			return c, nil
		}
		_ = raw.Close()
	}
}

// Close implements net.Listener. It may be called again.
func (l *listener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return l.Listener.Close() //nolint:wrapcheck // the caller's message names the address
}

// admitConn counts a connection. It returns nil if its client is beyond its share of bytes.
func (s *Server) admitConn(raw net.Conn) *conn {
	c := &conn{Conn: raw, server: s, account: s.ledger.Open(fairshare.AddressOf(raw.RemoteAddr()))}
	c.account.Add(fairshare.Bytes, connBytes)
	if c.account.BeyondShare(fairshare.Bytes) {
		s.counters.refusedConnections.Add(1)
		c.release()
		return nil
	}
	s.connections.Add(1)
	return c
}

// A conn is a connection of a client.
type conn struct {
	net.Conn

	server  *Server
	account *fairshare.Account
	active  atomic.Int32 // requests in progress
	reading atomic.Int64 // bytes that count for headers that arrive
	http2   atomic.Bool
	once    sync.Once
}

// Read implements net.Conn. Between requests it counts what arrives.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.active.Load() == 0 && !c.http2.Load() {
		c.reading.Add(int64(n) * headerGrowth)
		c.account.Add(fairshare.Bytes, int64(n)*headerGrowth)
		if c.account.BeyondShare(fairshare.Bytes) {
			c.server.counters.refusedConnections.Add(1)
			return 0, errBeyondShare
		}
	}
	return n, err //nolint:wrapcheck // net/http examines it
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.server.connections.Add(-1)
		c.release()
	})
	return err //nolint:wrapcheck // net/http examines it
}

// release ends the count of the connection.
func (c *conn) release() {
	held := c.reading.Swap(0) + connBytes
	if c.http2.Load() {
		held += http2Bytes
	}
	c.account.Add(fairshare.Bytes, -held)
	c.account.Close()
}

// begin is called at the start of a request, whose headers count for the request from now on.
func (c *conn) begin(r *http.Request) {
	c.active.Add(1)
	c.account.Add(fairshare.Bytes, -c.reading.Swap(0))
	if r.ProtoMajor == 2 && c.http2.CompareAndSwap(false, true) {
		c.account.Add(fairshare.Bytes, http2Bytes)
	}
}

// end is called at the end of a request.
func (c *conn) end() { c.active.Add(-1) }

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// connContext makes a connection known to its requests, also through TLS.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}
