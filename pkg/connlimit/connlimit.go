// Package connlimit bounds what the clients of an HTTP server hold: connections without a request, requests in progress, and the bytes
// of their bodies.
//
// A newcomer always gets in. Beyond a bound, the server closes the oldest connection of the client address that has the most or, beyond
// the bound of bytes, the connection with the most bytes of the address with the most. A byte counts when it arrives. So
// one address cannot take the places of others, a connection that sends half a request cannot keep its place, and the probe of a
// kubelet is answered although a pod opens connections without end. An attacker with as many addresses as there are places needs
// that number of new connections in the time that a request of another client takes.
//
// Clients use HTTP/1: one connection carries one request at a time.
package connlimit

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// socketBuffer is the size of the kernel's buffers of a connection, in each direction: the memory of the container pays for them. At
// half, a response of a megabyte needs twice as many wake-ups. At double, clients that do not read hold twice as much. Without it,
// Linux gives up to 4 MiB to a response that nobody reads.
const socketBuffer = 64 << 10

// Limits are the limits of a Limiter.
type Limits struct {
	// Waiting is the maximum number of connections without a request: new ones, idle ones, and those that have sent a part of their
	// headers.
	Waiting int
	// Requests is the maximum number of requests in progress; 0 if the handler bounds them itself.
	Requests int
	// Bytes is the maximum number of bytes of bodies that handlers of Limiter.Requests have read; 0 for no limit.
	Bytes int
}

// A Limiter bounds the connections and requests of one server. It is safe for concurrent use.
type Limiter struct {
	running chan struct{} // has an element for each request that the handler processes; nil without a limit

	mu       sync.Mutex // guards the following, and the fields of connections
	arrivals uint64
	waiting  quota
	requests quota
	bytes    quota
}

// New returns a Limiter without connections.
func New(limits Limits) *Limiter {
	l := &Limiter{waiting: newQuota(limits.Waiting), requests: newQuota(limits.Requests), bytes: newQuota(limits.Bytes)}
	if limits.Requests > 0 {
		l.running = make(chan struct{}, limits.Requests)
	}
	return l
}

// Attach prepares a server, which must then serve a Listener of the limiter.
func (l *Limiter) Attach(s *http.Server) {
	s.ConnContext = withConn
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
}

// Listener returns a listener whose connections count.
func (l *Limiter) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

// Requests returns a handler that processes the requests of next within the limit. A request beyond it waits until the one that it
// displaces has ended.
func (l *Limiter) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r)
		l.moveToGroup(c, &l.requests)
		defer l.moveToGroup(c, &l.waiting)
		if l.running != nil {
			select {
			case l.running <- struct{}{}:
				defer func() { <-l.running }()
			case <-c.left:
				return
			}
		}
		next.ServeHTTP(w, l.countedRequest(r, c))
	})
}

// countedRequest returns a request whose body counts.
func (l *Limiter) countedRequest(r *http.Request, c *conn) *http.Request {
	if l.bytes.limit == 0 || r.Body == nil {
		return r
	}
	counted := *r
	counted.Body = &body{r.Body, l, c}
	return &counted
}

// countBodyBytes counts bytes of a body.
func (l *Limiter) countBodyBytes(c *conn, n int) {
	var displaced []*conn
	l.mu.Lock()
	if c.group != nil {
		l.bytes.addAmount(c, n)
		for l.bytes.isExceeded() {
			most := l.bytes.nextToLeave()
			l.dropConnection(most)
			displaced = append(displaced, most)
		}
	}
	l.mu.Unlock()
	for _, c := range displaced {
		c.resetConnection()
	}
}

// admitConnection counts a new connection.
func (l *Limiter) admitConnection(raw net.Conn) *conn {
	if s, ok := raw.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_, _ = s.SetReadBuffer(socketBuffer), s.SetWriteBuffer(socketBuffer) // they fail if the client has gone
	}
	c := &conn{Conn: raw, limiter: l, address: AddressOf(raw.RemoteAddr()), left: make(chan struct{})}
	l.mu.Lock()
	displaced := l.joinGroup(c, &l.waiting)
	l.mu.Unlock()
	displaced.resetConnection()
	return c
}

// moveToGroup takes a connection to another group, unless it has left.
func (l *Limiter) moveToGroup(c *conn, to *quota) {
	l.mu.Lock()
	var displaced *conn
	if c.group != nil {
		c.group.removeMember(c)
		l.bytes.removeMember(c) // those of the request before
		displaced = l.joinGroup(c, to)
	}
	l.mu.Unlock()
	displaced.resetConnection()
}

// joinGroup adds a connection to a group, and returns the one that it displaces, if any. The caller holds mu.
func (l *Limiter) joinGroup(c *conn, to *quota) (displaced *conn) {
	l.arrivals++
	c.arrival = l.arrivals
	c.group = to
	to.addAmount(c, 1)
	if to.isExceeded() { // the new one is the last to leave of its address
		displaced = to.nextToLeave()
		l.dropConnection(displaced)
	}
	return displaced
}

// dropConnection ends the count of a connection. The caller holds mu.
func (l *Limiter) dropConnection(c *conn) {
	if c.group != nil {
		c.group.removeMember(c)
		c.group = nil
		l.bytes.removeMember(c)
		close(c.left)
	}
}

func (l *Limiter) leaveGroup(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropConnection(c)
}

// AddressOf returns the address that identifies the client of a connection. Networks in memory have one client, the zero
// address. Hosts behind one address translation are one client, too.
func AddressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// ClientOf returns the address that identifies the client of a request, as AddressOf does for its connection.
func ClientOf(r *http.Request) netip.Addr {
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	return address.Addr().Unmap().WithZone("")
}

type listener struct {
	net.Listener

	limiter *Limiter
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http examines it
	}
	return l.limiter.admitConnection(raw), nil
}

// A body is the body of a request, whose bytes count.
type body struct {
	io.ReadCloser

	limiter *Limiter
	conn    *conn
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.limiter.countBodyBytes(b.conn, n)
	return n, err //nolint:wrapcheck // handlers examine it
}

// A conn is a connection that counts.
type conn struct {
	net.Conn

	limiter *Limiter
	address netip.Addr
	left    chan struct{} // closed when the connection no longer counts

	// Guarded by Limiter.mu.
	group   *quota // waiting or requests; nil when it has left
	arrival uint64 // in the group
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.limiter.leaveGroup(c)
	return c.Conn.Close() //nolint:wrapcheck // net/http examines it
}

// resetConnection closes a displaced connection, with all that the kernel would still send.
func (c *conn) resetConnection() {
	if c == nil {
		return
	}
	if tcp, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // it fails if the client has gone
	}
	_ = c.Conn.Close() // net/http notices it
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }
