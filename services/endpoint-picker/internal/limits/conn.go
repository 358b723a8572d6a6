package limits

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// HTTP2Window is the flow control window of an HTTP/2 connection of a client, and of each of its streams.
const HTTP2Window = 256 << 10

// HeaderGrowth is the memory of headers that arrive in relation to their bytes (BenchmarkMemory: 16 for fields of 6 bytes, the worst case).
const HeaderGrowth = 16

const (
	// connBytes is the memory of a connection: buffers of net/http and the stacks of its goroutines (BenchmarkMemory of package
	// httpproxy: 21 kB while it is idle).
	connBytes = 20 << 10
	// http2Bytes is the further memory of an HTTP/2 connection: its window, frames, and a header block.
	http2Bytes = HTTP2Window + 128<<10
	// fieldOverhead is the memory of a header field besides its text, in bytes.
	fieldOverhead = 96
)

// errBeyondShare ends the connection of a client beyond its share. net/http closes it without an answer.
var errBeyondShare = &net.OpError{Op: "read", Err: ErrTooManyBytes}

// A Conn is a connection of a client to an HTTPListener, in plaintext or decrypted.
type Conn struct {
	net.Conn // counted, or of TLS over that

	listener *HTTPListener
	account  *Account
	active   atomic.Int32 // requests in progress
	reading  atomic.Int64 // bytes that count for headers that arrive
	http2    atomic.Bool
	refused  atomic.Bool
	once     sync.Once

	mu      sync.Mutex // guards the following
	framing framingParser
	rest    []byte // what came with a request for a WebSocket
	fault   error  // of all further reads
	tls     *tls.ConnectionState
}

// Account returns the account of the client. It stays open as long as the connection.
func (c *Conn) Account() *Account { return c.account }

// Read implements net.Conn. It fails with the first violation of RFC 9112; net/http answers 400.
func (c *Conn) Read(b []byte) (int, error) {
	if n, err := c.readPending(b); n > 0 || err != nil {
		return n, err
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		explainTLS(err)
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.framing.undecided {
		return n, err
	}
	var passed int
	passed, c.fault = c.framing.scanBytes(b[:n])
	if c.fault == nil {
		c.rest = append(c.rest, b[passed:n]...)
	}
	if passed == 0 && c.fault != nil {
		return 0, c.fault
	}
	return passed, err
}

// readPending returns what came before, or why nothing more is read.
func (c *Conn) readPending(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(b, c.rest)
	if c.rest = c.rest[n:]; n > 0 {
		return n, nil
	}
	return 0, c.fault
}

// explainTLS answers a client that does not speak TLS, as net/http does.
func explainTLS(err error) {
	var malformed tls.RecordHeaderError
	if errors.As(err, &malformed) && malformed.Conn != nil {
		_, _ = io.WriteString(malformed.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
}

// countedConn is a connection whose bytes count between requests, as they arrive.
type countedConn struct {
	net.Conn

	client *Conn
}

// Read implements net.Conn.
func (r countedConn) Read(b []byte) (int, error) {
	c := r.client
	n, err := r.Conn.Read(b)
	if n > 0 && c.active.Load() == 0 && !c.http2.Load() {
		c.reading.Add(int64(n) * HeaderGrowth)
		c.account.AddUse(Bytes, int64(n)*HeaderGrowth)
		if c.account.IsOverdrawn() {
			if !c.refused.Swap(true) { // net/http may read again: when it looks for the preface of HTTP/2 first
				c.listener.refused.Add(1)
			}
			return 0, errBeyondShare
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.releaseAccount()
		c.listener.open.Add(-1)
	})
	return err
}

// releaseAccount ends the count of the connection.
func (c *Conn) releaseAccount() {
	held := c.reading.Swap(0) + connBytes
	if c.http2.Load() {
		held += http2Bytes
	}
	c.account.AddUse(Bytes, -held)
	c.account.Close()
}

// BeginRequest is called at the start of a request. From now on the handler counts its headers. The request learns that it came over TLS.
func (c *Conn) BeginRequest(r *http.Request) {
	r.TLS = c.tlsState()
	c.active.Add(1)
	c.account.AddUse(Bytes, -c.reading.Swap(0))
	if r.ProtoMajor == 2 && c.http2.CompareAndSwap(false, true) {
		c.account.AddUse(Bytes, http2Bytes)
	}
}

// tlsState returns the state of TLS, nil for plaintext.
func (c *Conn) tlsState() *tls.ConnectionState {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls == nil {
		state := secure.ConnectionState()
		c.tls = &state
	}
	return c.tls
}

// SwitchToTunnel is called when the connection has become a WebSocket.
func (c *Conn) SwitchToTunnel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.framing.blind, c.framing.undecided = true, false
}

// Violation returns the violation of RFC 9112 that ended the connection, or nil. What net/http says of a body with one depends on the
// place.
func (c *Conn) Violation() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.fault, errFraming) {
		return c.fault
	}
	return nil
}

// errDeclined ends a connection whose request for a WebSocket was declined: what followed the request was not read as HTTP.
var errDeclined = errors.New("the request for a WebSocket was declined")

// EndRequest is called at the end of a request.
func (c *Conn) EndRequest() {
	c.active.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.framing.undecided {
		c.rest, c.fault = nil, errDeclined
	}
}

// HeadersSize returns the memory of headers: their text, and for each field about what a map and a slice take.
func HeadersSize(h http.Header) (size int) {
	for name, values := range h {
		size += fieldOverhead + len(name)
		for _, v := range values {
			size += fieldOverhead/2 + len(v)
		}
	}
	return size
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// ConnOf returns the connection of a request, nil if it is not one of an HTTPListener.
func ConnOf(r *http.Request) *Conn {
	c, _ := r.Context().Value(connKey{}).(*Conn)
	return c
}
