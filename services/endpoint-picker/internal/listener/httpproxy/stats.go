package httpproxy

import (
	"errors"
	"sync/atomic"
)

// Result is the result of an attempt. Its values are values of a metric's label.
type Result string

// The results of attempts.
const (
	Answered    Result = "answered"    // the whole response was relayed
	Unconnected Result = "unconnected" // there was no connection to the model server
	Broken      Result = "broken"      // the connection ended, or what came is not HTTP
	Silent      Result = "silent"      // the model server did not respond in time
	Gone        Result = "gone"        // the client went away
)

// Results returns all results.
func Results() []Result { return []Result{Answered, Unconnected, Broken, Silent, Gone} }

// counters count events.
type counters struct {
	retries  atomic.Int64
	attempts map[Result]*atomic.Int64
}

func newCounters() *counters {
	c := &counters{attempts: map[Result]*atomic.Int64{}}
	for _, r := range Results() {
		c.attempts[r] = &atomic.Int64{}
	}
	return c
}

// countResult counts an attempt by its error.
func (c *counters) countResult(err error) { c.attempts[resultOf(err)].Add(1) }

// resultOf returns the result of an attempt with an error.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, errGone):
		return Gone
	case errors.Is(err, errUnconnected):
		return Unconnected
	case errors.Is(err, errSilent):
		return Silent
	}
	return Broken
}

// Stats are figures of a Server. The counters only rise.
type Stats struct {
	Connections int // of clients
	Servers     []ServerStats

	RefusedConnections int64 // of clients beyond their share
	Attempts           map[Result]int64
	Retries            int64 // attempts after the first one of their request
}

// ProxyStats returns the current figures.
func (s *Server) ProxyStats() Stats {
	stats := Stats{
		Connections: s.OpenConns(), Servers: s.upstream.serverStats(),
		RefusedConnections: s.RefusedConns(), Retries: s.counters.retries.Load(), Attempts: map[Result]int64{},
	}
	for r, n := range s.counters.attempts {
		stats.Attempts[r] = n.Load()
	}
	return stats
}
