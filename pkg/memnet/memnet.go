// Package memnet is a network in memory for tests: a synctest bubble can wait for its connections, so that a whole server runs on
// the clock of the bubble.
package memnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

var errRefused = errors.New("connection refused")

// Listener accepts the connections of Dial.
type Listener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once

	mu   sync.Mutex
	made []net.Conn // the servers' ends
}

// Listen returns a listener.
func Listen() *Listener {
	return &Listener{connections: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// Dial connects to the listener. It has the form of http.Transport.DialContext, and ignores the network and the address.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	return l.passConnection(ctx, client, server)
}

// From returns the Dial of a client with an address: that which the server sees.
func (l *Listener) From(address netip.AddrPort) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		return l.passConnection(ctx, client, from{server, net.TCPAddrFromAddrPort(address)})
	}
}

// from is the server's end of a connection from an address.
type from struct {
	net.Conn

	address net.Addr
}

// RemoteAddr implements net.Conn.
func (f from) RemoteAddr() net.Addr { return f.address }

// passConnection passes the server's end of a connection to Accept, and returns the client's.
func (l *Listener) passConnection(ctx context.Context, client, server net.Conn) (net.Conn, error) {
	select {
	case l.connections <- server:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.made = append(l.made, server)
		return client, nil
	case <-l.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Break closes the listener and all connections.
func (l *Listener) Break() {
	_ = l.Close() // it has no error
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.made {
		_ = c.Close() // of a pipe, it has none
	}
}
