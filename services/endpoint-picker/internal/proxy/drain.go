package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// linger is the time that a connection without a request stays open during a drain. The client of a stream that began before
	// the drain was not told to close the connection, and its next request often follows the end of the stream at once.
	// http.Server.Shutdown closes the connection in that moment: of 200 clients of net/http on loopback 9 lost the next request, and
	// of 200 that did not look for the end of the connection first, all. After 5 s a request is as likely as at any other time.
	// At half the value, agents that run a tool between two requests lose more of them. At double, a pod takes 5 s longer to exit. It
	// is the default of --drain-delay, so that connections that are idle from SIGTERM on are closed with the listener.
	linger = 5 * time.Second
	// drainTick is the interval at which a drain looks for idle connections. At half the value, it looks twice as often. At
	// double, a pod exits 100 ms later.
	drainTick = 100 * time.Millisecond
)

// idleConns are the connections without a request, and since when.
type idleConns struct {
	mu    sync.Mutex
	since map[net.Conn]time.Time
}

// follow implements http.Server.ConnState.
func (i *idleConns) follow(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if state == http.StateNew || state == http.StateIdle {
		i.since[c] = time.Now()
		return
	}
	delete(i.since, c)
}

// closeOlder closes the connections that have been idle since a time.
func (i *idleConns) closeOlder(than time.Time) {
	i.mu.Lock()
	var old []net.Conn
	for c, since := range i.since {
		if !since.After(than) {
			old = append(old, c)
		}
	}
	i.mu.Unlock()
	for _, c := range old {
		_ = c.Close() // net/http notices it, and tells follow
	}
}

// Leave asks clients to use other connections for their next requests: HTTP/1.1 by Connection: close, HTTP/2 by GOAWAY. All
// requests are still served.
func (s *Server) Leave() { s.draining.Store(true) }

// Drain stops accepting connections and returns true when the last one has ended, or false when ctx ends before the last request. Then
// Close cuts the open ones. A connection ends with the first response that asks its client to close it, or when it has been idle for
// linger.
func (s *Server) Drain(ctx context.Context) bool {
	s.Leave()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for s.gate.Open() > 0 && ctx.Err() == nil {
		s.idle.closeOlder(time.Now().Add(-linger))
		select {
		case <-ctx.Done():
		case <-time.After(drainTick):
		}
	}
	return s.http.Shutdown(ctx) == nil
}
