package limits

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/logging"
)

const (
	// Linger is the time that a connection without a request stays open during a drain. The client of a request that began before
	// the drain was not told to close the connection, and its next request often follows the end of the response at once.
	// http.Server.Shutdown closes the connection in that moment: of 200 clients of net/http on loopback 9 lost the next request, and
	// of 200 that did not look for the end of the connection first, all. After 5 s a request is as likely as at any other time.
	// It is the default of --drain-delay, so that connections that are idle from SIGTERM on are closed with the listener.
	Linger = 5 * time.Second
	// DrainTick is the interval at which a drain looks for idle connections.
	DrainTick = 100 * time.Millisecond
)

// HTTPParams are the parameters of NewHTTPListener.
type HTTPParams struct {
	Log       *zap.Logger
	Ledger    *Ledger
	Flag      string      // that sets the address, for messages
	Address   string      // empty: the listener is off
	TLS       *tls.Config // nil for plaintext
	Protocols []string    // of ALPN
	Server    *http.Server
}

// An HTTPListener serves HTTP on a port, and counts the connections for their clients. It closes those of clients beyond their share. It is
// safe for concurrent use.
type HTTPListener struct {
	params        HTTPParams
	listener      net.Listener // nil until OpenListener, and if it is off
	open, refused atomic.Int64
	draining      atomic.Bool

	mu   sync.Mutex
	idle map[net.Conn]time.Time // connections without a request, and since when
}

// NewHTTPListener returns an HTTPListener, and sets the ErrorLog, ConnContext and ConnState of its server. OpenListener opens its port.
func NewHTTPListener(p HTTPParams) *HTTPListener {
	l := &HTTPListener{params: p, idle: map[net.Conn]time.Time{}}
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // unreachable: zap has this level
	}
	p.Server.ErrorLog, p.Server.ConnState = errorLog, l.onConnState
	p.Server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	return l
}

// OpenListener opens the port.
func (l *HTTPListener) OpenListener() error {
	if l.params.Address == "" {
		return nil
	}
	raw, err := net.Listen("tcp", l.params.Address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", l.params.Flag, l.params.Address, err)
	}
	l.AttachListener(raw)
	return nil
}

// AttachListener makes Run serve the connections of a listener. Over TLS, the server sees plaintext, so that requests can be followed;
// HTTP/2 begins with its preface.
func (l *HTTPListener) AttachListener(raw net.Listener) {
	counting := &countingListener{Listener: raw, counts: l}
	if l.params.TLS != nil {
		counting.config = l.params.TLS.Clone()
		counting.config.NextProtos = l.params.Protocols
	}
	l.listener = counting
}

// ListenAddress returns the address of the listener, empty if it is off.
func (l *HTTPListener) ListenAddress() string {
	if l.listener == nil {
		return ""
	}
	return l.listener.Addr().String()
}

// Run serves until DrainConns or Close, which may be called first.
func (l *HTTPListener) Run() error {
	if l.listener == nil {
		return nil
	}
	l.params.Log.Info("Started listening", zap.String(logging.KeyAddress, l.ListenAddress()), zap.String("flag", l.params.Flag))
	if err := l.params.Server.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve --%s %s: %w", l.params.Flag, l.params.Address, err)
	}
	return nil
}

// OpenConns returns the number of open connections.
func (l *HTTPListener) OpenConns() int { return int(l.open.Load()) }

// RefusedConns returns the number of connections that were closed because their clients were beyond their share.
func (l *HTTPListener) RefusedConns() int64 { return l.refused.Load() }

// StartDraining begins: from now on responses ask clients to use other connections for their next requests. All requests are still
// served. See MarkResponse.
func (l *HTTPListener) StartDraining() { l.draining.Store(true) }

// MarkResponse makes a response ask its client to use another connection, after StartDraining: HTTP/1.1 by Connection: close, HTTP/2 by
// GOAWAY.
func (l *HTTPListener) MarkResponse(w http.ResponseWriter) {
	if l.draining.Load() {
		w.Header().Set("Connection", "close")
	}
}

// DrainConns stops accepting connections and returns true when the last one has ended, or false when ctx ends before the last request. A
// connection ends with the first response that asks its client to close it, or when it has been idle for Linger.
func (l *HTTPListener) DrainConns(ctx context.Context) bool {
	l.StartDraining()
	if l.listener != nil {
		_ = l.listener.Close()
	}
	for l.OpenConns() > 0 && ctx.Err() == nil {
		l.closeOlder(time.Now().Add(-Linger))
		select {
		case <-ctx.Done():
		case <-time.After(DrainTick):
		}
	}
	return l.params.Server.Shutdown(ctx) == nil
}

// Close closes the listener and all connections.
func (l *HTTPListener) Close() {
	_ = l.params.Server.Close()
	if l.listener != nil {
		_ = l.listener.Close() // a server that ran has closed it
	}
}

// onConnState implements http.Server.ConnState.
func (l *HTTPListener) onConnState(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == http.StateNew || state == http.StateIdle {
		l.idle[c] = time.Now()
		return
	}
	delete(l.idle, c)
}

// closeOlder closes the connections that have been idle since a time.
func (l *HTTPListener) closeOlder(than time.Time) {
	l.mu.Lock()
	var old []net.Conn
	for c, since := range l.idle {
		if !since.After(than) {
			old = append(old, c)
		}
	}
	l.mu.Unlock()
	for _, c := range old {
		_ = c.Close() // net/http notices it, and calls onConnState
	}
}

// admitConn counts a connection. It returns nil if its client is beyond its share.
func (l *HTTPListener) admitConn(raw net.Conn) *Conn {
	c := &Conn{listener: l, account: l.params.Ledger.OpenAccount(connlimit.AddressOf(raw.RemoteAddr()))}
	c.Conn = countedConn{Conn: raw, client: c}
	c.account.AddUse(Bytes, connBytes)
	if c.account.IsOverdrawn() {
		l.refused.Add(1)
		c.releaseAccount()
		return nil
	}
	l.open.Add(1)
	return c
}

// A countingListener returns connections that an HTTPListener counts. It can be closed before the server and by the server: Accept then
// returns http.ErrServerClosed.
type countingListener struct {
	net.Listener

	counts *HTTPListener
	config *tls.Config // nil for plaintext
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case err != nil && l.closed.Load():
			return nil, http.ErrServerClosed
		case err != nil:
			return nil, err
		}
		if c := l.counts.admitConn(raw); c != nil {
			if l.config != nil {
				c.Conn = tls.Server(c.Conn, l.config)
			}
			return c, nil
		}
		_ = raw.Close()
	}
}

// Close implements net.Listener. It may be called again.
func (l *countingListener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return l.Listener.Close()
}
