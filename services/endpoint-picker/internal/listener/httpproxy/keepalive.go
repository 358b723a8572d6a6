package httpproxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	// defaultKeepAlive is the maximum time that a connection to a model server is idle before its next request. uvicorn, the HTTP server of
	// vLLM and SGLang, closes idle connections after 5 s, as Node.js does.
	defaultKeepAlive = 4 * time.Second
	// safety is by how much a server's own idle timeout is shortened, as a divisor: a quarter.
	safety = 4
	// minLearned is the shortest idle time that counts as a server's timeout: a server that closes connections earlier is shutting down.
	minLearned = 100 * time.Millisecond
	// minWait is the duration of a read that has waited for the server, rather than found what was there.
	minWait = 100 * time.Microsecond
)

// errIdleTooLong refuses the first write of a request on a connection that the server may be closing, or has closed. As
// nothing was written, http.Transport sends the request on another connection.
var errIdleTooLong = errors.New("the connection was idle for too long")

// A keepAlive is the idle timeout of one server: the shortest of the default, what the server announces (Keep-Alive), and what
// was learned from idle connections that the server closed. What was learned counts for forgetAfter.
type keepAlive struct {
	announced atomic.Int64

	mu      sync.Mutex
	learned time.Duration
	at      endpoint.Monotonic
}

// learnTimeout records that the server has closed a connection that was idle for at least a time.
func (k *keepAlive) learnTimeout(idle time.Duration, now endpoint.Monotonic) {
	if idle < minLearned {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.learned == 0 || idle < k.learned || now.Sub(k.at) > forgetAfter {
		k.learned, k.at = idle, now
	}
}

// idleLimit returns how long a connection may be idle.
func (k *keepAlive) idleLimit(now endpoint.Monotonic) time.Duration {
	limit := defaultKeepAlive
	if a := time.Duration(k.announced.Load()); a > 0 {
		limit = min(limit, a-a/safety)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.learned > 0 && now.Sub(k.at) <= forgetAfter {
		limit = min(limit, k.learned-k.learned/safety)
	}
	return limit
}

// A serverConn is a connection to a model server. Before the first write of a request it checks whether the server may have
// closed the connection in the meantime:
//
//   - the connection has been idle for as long as the server allows, by a clock that began no later than the server's, or
//   - the end of the connection has arrived, but nobody has read it yet.
//
// What remains is the time that a packet takes, for servers with an idle timeout that is shorter than the default and was not
// learned yet.
type serverConn struct {
	net.Conn

	server  *server
	written atomic.Int64 // bytes

	answered  atomic.Bool              // a response has come since the last write
	lastRead  endpoint.AtomicMonotonic // when the last read ended
	idleSince endpoint.AtomicMonotonic // no later than when the server sent what was read last
	once      sync.Once
	tunnel    atomic.Bool // the connection has no further request

	headers arrivingHeaders
}

func newServerConn(raw net.Conn, s *server) *serverConn {
	s.connections.Add(1)
	c := &serverConn{Conn: raw, server: s}
	now := endpoint.ToMonotonic(time.Now())
	c.lastRead.Store(now)
	c.idleSince.Store(now)
	return c
}

// Read implements net.Conn. What a read finds without waiting arrived at some time since the read before, while a slow client
// was served: the server's timer may run since then.
func (c *serverConn) Read(b []byte) (int, error) {
	began := endpoint.ToMonotonic(time.Now())
	n, err := c.Conn.Read(b)
	now := endpoint.ToMonotonic(time.Now())
	if c.tunnel.Load() {
		return n, err
	}
	if n > 0 {
		if now.Sub(began) > minWait {
			c.idleSince.Store(now)
		} else {
			c.idleSince.Store(c.lastRead.Load())
		}
		c.lastRead.Store(now)
		c.answered.Store(true)
		if beyond := c.headers.addBytes(n); beyond != nil {
			return 0, beyond
		}
	} else if err != nil && c.answered.Load() {
		c.server.keepAlive.learnTimeout(now.Sub(c.lastRead.Load()), now)
	}
	return n, err
}

// Write implements net.Conn.
func (c *serverConn) Write(b []byte) (int, error) {
	if !c.tunnel.Load() && c.answered.Load() && c.answered.Swap(false) {
		now := endpoint.ToMonotonic(time.Now())
		if now.Sub(c.idleSince.Load()) > c.server.keepAlive.idleLimit(now) || closedByPeer(c.Conn) {
			return 0, errIdleTooLong
		}
	}
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.answered.Store(false) // the end that a pending read sees is our own
	err := c.Conn.Close()
	c.once.Do(func() { c.server.connections.Add(-1) })
	return err
}
