package modelserver

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	userAgent  = "fairlead-endpoint-picker"
	readBuffer = 32 << 10 // two reads for a page of usual size
	maxHeader  = 64 << 10 // of a response, in total
	maxHeads   = 5        // responses up to the final one (1xx)
)

// errRefused means that no server listens for the metrics page: it has ended, or is about to start.
var errRefused = errors.New("connection refused")

var (
	errLargeHeader = fmt.Errorf("headers of over %d bytes", maxHeader)
	errEncoding    = errors.New("encoding that was not requested")
	errNoFinal     = errors.New("no final response")
)

// errSilent means that a connection ended before it answered.
var errSilent = errors.New("connection ended without an answer")

// A connection fetches the page of one server repeatedly. net/http reads its responses. The Transport of net/http would need two goroutines
// for each connection (ADR 28).
type connection struct {
	net.Conn

	stop func() bool // detaches it from its context
}

// buffers is the memory of one scrape.
type buffers struct {
	limited  io.LimitedReader // the connection, up to maxHeader until the page begins
	response *bufio.Reader
	lines    []byte
}

var pooled = sync.Pool{New: func() any {
	return &buffers{response: bufio.NewReaderSize(nil, readBuffer), lines: make([]byte, maxLine)}
}}

// resetReader prepares the buffers for a response, or releases the connection.
func (b *buffers) resetReader(from io.Reader) {
	b.limited = io.LimitedReader{R: from, N: maxHeader}
	b.response.Reset(&b.limited)
}

// dialer opens connections, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// openConnection opens a connection that ends with ctx.
func (d dialer) openConnection(ctx context.Context, address netip.AddrPort, secure *tls.Config, deadline time.Time) (*connection, error) {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := d(limited, "tcp", address.String())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if err != nil {
		return nil, err
	}
	if secure != nil {
		config := secure.Clone()
		config.ServerName = cmp.Or(config.ServerName, address.Addr().String())
		client := tls.Client(conn, config)
		if err := client.HandshakeContext(limited); err != nil {
			return nil, errors.Join(fmt.Errorf("shake hands: %w", err), conn.Close())
		}
		conn = client
	}
	return &connection{Conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
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
	b.resetReader(c.Conn)
	defer b.resetReader(nil)
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
	response, err := b.readHeaders() //nolint:bodyclose // to close it would read all of it: the connection ends in its place
	if err != nil {
		return endpoint.Gauges{}, false, fmt.Errorf("read response: %.200v", err) // it may quote the response
	}
	if response.StatusCode != http.StatusOK {
		return endpoint.Gauges{}, false, fmt.Errorf("status %d", response.StatusCode)
	}
	g, err := r.readPage(response.Body, b.lines)
	if err != nil && !errors.Is(err, errNoGauges) {
		return endpoint.Gauges{}, false, err
	}
	return g, !response.Close && b.response.Buffered() == 0, err
}

// readHeaders reads a response up to its body.
func (b *buffers) readHeaders() (*http.Response, error) {
	for range maxHeads {
		response, err := http.ReadResponse(b.response, nil)
		switch {
		case b.limited.N <= 0 && err != nil:
			return nil, errLargeHeader
		case err != nil:
			return nil, err
		case response.ProtoMajor != 1:
			return nil, fmt.Errorf("version %s", response.Proto)
		case !strings.EqualFold(cmp.Or(response.Header.Get("Content-Encoding"), "identity"), "identity"):
			return nil, errEncoding
		case response.StatusCode >= http.StatusOK, response.StatusCode == http.StatusSwitchingProtocols:
			b.limited.N = math.MaxInt64 // the reading limits the page
			return response, nil
		}
	}
	return nil, errNoFinal
}
