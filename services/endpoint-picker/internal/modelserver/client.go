package modelserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	userAgent  = "fairlead-endpoint-picker"
	readBuffer = 32 << 10 // two reads for a page of usual size
)

// ErrRefused means that no server listens for the metrics page: it has ended, or is about to start.
var ErrRefused = errors.New("connection refused")

// errSilent means that a connection ended before it answered.
var errSilent = errors.New("connection ended without an answer")

// A connection fetches the page of one server repeatedly. net/http needs nearly twice the time: two goroutines for each
// connection, and a dozen allocations and half a dozen wake-ups for each page.
type connection struct {
	net.Conn

	stop func() bool // detaches it from its context
}

// buffers is the memory of one scrape.
type buffers struct {
	response *bufio.Reader
	lines    []byte
}

var pooled = sync.Pool{New: func() any {
	return &buffers{response: bufio.NewReaderSize(nil, readBuffer), lines: make([]byte, maxLine)}
}}

// dialer opens connections, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// openConnection opens a connection that ends with ctx.
func (d dialer) openConnection(ctx context.Context, address netip.AddrPort, secure *tls.Config, deadline time.Time) (*connection, error) {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := d(limited, "tcp", address.String())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return nil, err
	}
	if secure != nil {
		client := tls.Client(conn, serverNamed(secure, address))
		if err := client.HandshakeContext(limited); err != nil {
			return nil, errors.Join(fmt.Errorf("shake hands: %w", err), conn.Close())
		}
		conn = client
	}
	return &connection{Conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
}

func serverNamed(c *tls.Config, address netip.AddrPort) *tls.Config {
	c = c.Clone()
	c.ServerName = address.Addr().String()
	return c
}

// closeConn ends the connection.
func (c *connection) closeConn() {
	c.stop()
	_ = c.Close()
}

// fetchPage fetches and reads the page. It reports whether the connection can be used again. The error is errSilent if the
// connection ended without an answer, as it does if the server had closed it before.
func (c *connection) fetchPage(request []byte, r *reading, deadline time.Time) (endpoint.Gauges, bool, error) {
	if err := c.SetDeadline(deadline); err != nil {
		return endpoint.Gauges{}, false, fmt.Errorf("%w: %w", errSilent, err)
	}
	if _, err := c.Write(request); err != nil {
		return endpoint.Gauges{}, false, fmt.Errorf("%w: %w", errSilent, err)
	}
	b := pooled.Get().(*buffers)
	defer pooled.Put(b)
	b.response.Reset(c.Conn)
	defer b.response.Reset(nil)
	if _, err := b.response.Peek(1); err != nil {
		if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
			return endpoint.Gauges{}, false, err
		}
		return endpoint.Gauges{}, false, fmt.Errorf("%w: %w", errSilent, err)
	}
	return readResponse(b, r)
}

// readResponse reads the page of a response. It reports whether another response may follow.
func readResponse(b *buffers, r *reading) (endpoint.Gauges, bool, error) {
	h, err := readHead(b.response)
	if err != nil {
		return endpoint.Gauges{}, false, err
	}
	if h.status != http.StatusOK {
		return endpoint.Gauges{}, false, fmt.Errorf("status %d", h.status)
	}
	page := newBody(b.response, h)
	g, err := r.readPage(page, b.lines)
	if err != nil && !errors.Is(err, ErrNoGauges) {
		return endpoint.Gauges{}, false, err
	}
	ended := h.last || (h.length == lengthUnknown && !h.chunked) || b.response.Buffered() > 0
	return g, !ended, err
}
