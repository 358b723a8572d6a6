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
	retries                                        atomic.Int64
	answered, unconnected, broken, silent, leaving atomic.Int64
}

// countResult counts an attempt by its error.
func (c *counters) countResult(err error) {
	switch {
	case err == nil:
		c.answered.Add(1)
	case errors.Is(err, errGone):
		c.leaving.Add(1)
	case errors.Is(err, errUnconnected):
		c.unconnected.Add(1)
	case errors.Is(err, errSilent):
		c.silent.Add(1)
	default:
		c.broken.Add(1)
	}
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
	c := &s.counters
	return Stats{
		Connections: s.OpenConns(),
		Servers:     s.upstream.serverStats(),

		RefusedConnections: s.RefusedConns(),
		Retries:            c.retries.Load(),
		Attempts: map[Result]int64{
			Answered: c.answered.Load(), Unconnected: c.unconnected.Load(), Broken: c.broken.Load(), Silent: c.silent.Load(), Gone: c.leaving.Load(),
		},
	}
}
