package grpcserver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	grpcpeer "google.golang.org/grpc/peer"
)

const (
	// pauseInterval is the interval of checks whether a paused client is within its share again.
	pauseInterval = 100 * time.Millisecond
	// userTimeout is the time after which the kernel gives up on a client that does not acknowledge data. gRPC sets it to its
	// keepalive timeout on connections that it knows to be TCP, and does not recognize these.
	userTimeout = 20 * time.Second
)

// A clientConn is a connection of a client. It counts for the client, stops reading while the client holds far too much memory, and knows
// since when the client has not read.
type clientConn struct {
	net.Conn
	client *client

	writing  atomic.Int64 // when the write in progress began, on the server's clock; 0 if there is none
	closed   chan struct{}
	once     sync.Once
	isClosed bool // guarded by client.mu: streams of this connection no longer wait for their last reply
}

func newClientConn(c net.Conn, cl *client) *clientConn {
	setUserTimeout(c, userTimeout)
	return &clientConn{Conn: c, client: cl, closed: make(chan struct{})}
}

// Read implements net.Conn.
func (c *clientConn) Read(b []byte) (int, error) {
	if err := c.waitWhilePaused(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// waitWhilePaused waits while the client must not send more. The sweeper ends streams of such a client, and closes the connection if that
// does not help.
func (c *clientConn) waitWhilePaused() error {
	for c.client.mustPause() {
		select {
		case <-c.closed:
			return net.ErrClosed
		case <-time.After(pauseInterval):
		}
	}
	return nil
}

// Write implements net.Conn.
func (c *clientConn) Write(b []byte) (int, error) {
	c.writing.Store(c.client.server.now.Load())
	defer c.writing.Store(0)
	return c.Conn.Write(b)
}

// blockedFor returns how long the write in progress has lasted.
func (c *clientConn) blockedFor() time.Duration {
	if began := c.writing.Load(); began != 0 {
		return time.Duration(c.client.server.now.Load() - began)
	}
	return 0
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		close(c.closed)
		c.client.removeConn(c)
	})
	return err
}

// RemoteAddr implements net.Conn.
func (c *clientConn) RemoteAddr() net.Addr { return remoteAddr{c.Conn.RemoteAddr(), c} }

// A remoteAddr is the address of a client that leads from the context of a stream to its connection, also through TLS.
type remoteAddr struct {
	net.Addr
	conn *clientConn
}

// connOf returns the connection of a stream.
func connOf(ctx context.Context) *clientConn {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, ok := p.Addr.(remoteAddr)
	if !ok {
		return nil
	}
	return a.conn
}
