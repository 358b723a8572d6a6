package grpcserver

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	// sweepInterval is the interval of checks of all deadlines, and the precision of the clock for them. A sweep of
	// 10,000 streams takes 0.3 ms.
	sweepInterval = 250 * time.Millisecond
	// maxTick is the maximum progress of the clock in one sweep. A process that got no CPU for a while must not blame its clients for it.
	maxTick = 2 * sweepInterval

	// maxBlocked is how long a write may be blocked by a client before new streams of its connection are refused.
	maxBlocked = time.Second
	// closeBlocked is how long a write may be blocked before the connection is closed. It is gRPC's keepalive timeout. One
	// write has at most 32 KiB.
	closeBlocked = 20 * time.Second

	// pauseFraction is the part of the byte limit by which the limit is exceeded before clients beyond their share are no longer read: a
	// quarter.
	pauseFraction = 4
	// A client that is beyond its share loses its evictable streams after evictAfter, oldest first: its handlers have refused new bodies
	// since, so these streams do not make progress. It loses its connections after closeAfter, because then gRPC holds the memory for
	// streams that have ended.
	evictAfter = time.Second
	closeAfter = 5 * time.Second
	// collectInterval is the minimum time between two garbage collections that free lost buffers of clients beyond their share. Without
	// them a gateway would be refused for buffers that nobody uses.
	collectInterval = time.Second

	// idleSweeps is the number of sweeps after which the server of a client without connections is stopped: 30 s. Some gateways open a
	// connection for each request.
	idleSweeps = 120
)

// sweepUntilStopped checks deadlines and shares until the server has stopped.
func (s *Server) sweepUntilStopped() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	var scratch []*Stream
	for {
		select {
		case <-s.stopped:
			return
		case <-ticker.C:
			scratch = s.sweepOnce(scratch)
		}
	}
}

// sweepOnce checks everything once.
func (s *Server) sweepOnce(scratch []*Stream) []*Stream {
	s.advanceClock()
	for _, cl := range s.listClients() {
		scratch = cl.allStreams(scratch[:0])
		s.expireStreams(cl, scratch)
		s.closeBlockedConns(cl)
		cl.estimateUncounted(scratch)
		s.enforceShare(cl, scratch)
		s.retireClient(cl)
		clear(scratch)
	}
	return scratch
}

// estimateUncounted counts what streams hold that wait for their client to read a reply, besides the buffers of the pool.
func (cl *client) estimateUncounted(all []*Stream) {
	var uncounted int64
	for _, stream := range all {
		if stream.state.Load() == sending {
			uncounted += backlogBytes
		}
	}
	cl.account.AddUse(limits.Bytes, uncounted-cl.uncounted)
	cl.uncounted = uncounted
}

// advanceClock advances the clock.
func (s *Server) advanceClock() {
	now := time.Now()
	s.now.Add(int64(min(now.Sub(s.swept), maxTick)))
	s.swept = now
}

// expireStreams ends the streams of a client whose deadline has passed.
func (s *Server) expireStreams(cl *client, all []*Stream) {
	now := s.now.Load()
	for _, stream := range all {
		stream.removeUnopened()
		d := stream.deadline.Load()
		if d == 0 || d > now {
			continue
		}
		switch state := stream.state.Load(); {
		case state == unsent:
			s.expireUnsent(cl, stream)
		case stream.deadline.CompareAndSwap(d, 0):
			if state != discarding {
				s.counters.expired.Add(1)
			}
			stream.cancel(&TimeoutError{State: state.Name})
		}
	}
}

// expireUnsent closes the connection of a stream that has ended and whose replies the client does not read, if the client has too
// many streams. gRPC has no other way to end such a stream, and the connection may have other streams.
func (s *Server) expireUnsent(cl *client, stream *Stream) {
	if cl.account.IsBeyondShare(limits.Streams) {
		s.counters.blocked.Add(1)
		_ = stream.conn.Close()
	}
}

// closeBlockedConns closes the connections of a client that does not read them.
func (s *Server) closeBlockedConns(cl *client) {
	for _, c := range cl.allConns() {
		if c.blockedFor() > closeBlocked {
			s.counters.blocked.Add(1)
			_ = c.Close()
		}
	}
}

// enforceShare makes a client that is beyond its share of bytes return memory. What the client has parked at another listener cannot be
// returned here.
func (s *Server) enforceShare(cl *client, all []*Stream) {
	if !cl.account.IsOverdrawn() {
		cl.beyondSince = 0
		return
	}
	now := s.now.Load()
	if cl.beyondSince == 0 {
		cl.beyondSince = now
	}
	if time.Duration(now-s.collected) >= collectInterval {
		s.collected = now
		runtime.GC() // the frames of ended streams, which nobody returns
	}
	beyond := time.Duration(now - cl.beyondSince)
	if beyond >= evictAfter || cl.mustPause() {
		s.evictStreams(cl, all)
	}
	if beyond >= closeAfter {
		s.closeClient(cl)
	}
}

// evictStreams ends as many evictable streams of a client as it takes to return to its share if all hold the same, oldest first.
func (s *Server) evictStreams(cl *client, all []*Stream) {
	evictable := slices.DeleteFunc(all, func(stream *Stream) bool {
		return !stream.state.Load().Evictable || stream.ctx.Err() != nil
	})
	slices.SortFunc(evictable, func(a, b *Stream) int { return cmp.Compare(a.position, b.position) })
	used := cl.account.CurrentUse(limits.Bytes)
	level := s.params.Ledger.FairLevel(limits.Bytes)
	if used <= level {
		return
	}
	part := 1 - float64(level)/float64(used)
	for _, stream := range evictable[:min(len(evictable), int(part*float64(len(evictable)))+1)] {
		s.counters.evicted.Add(1)
		stream.cancel(limits.ErrTooManyBytes)
	}
}

// closeClient closes all connections of a client.
func (s *Server) closeClient(cl *client) {
	s.counters.closedClients.Add(1)
	s.params.Log.Warn("Closed the connections of a gateway that held too much memory and did not return it",
		zap.String("peer", cl.account.Address.String()), zap.Int64("bytes", cl.account.CurrentUse(limits.Bytes)),
		zap.Int64("bytesOfAllPeers", s.params.Ledger.TotalUse(limits.Bytes)), zap.Int64("limit", s.params.Ledger.LimitOf(limits.Bytes)))
	cl.beyondSince = 0
	cl.closeConns()
}

// retireClient stops the server of a client that has had no connections for a while, and forgets the client when it holds nothing.
func (s *Server) retireClient(cl *client) {
	if cl.account.CurrentUse(limits.Connections) > 0 {
		cl.idle.Store(0)
		return
	}
	if cl.idle.Add(1) < idleSweeps {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || cl.account.CurrentUse(limits.Connections) > 0 { // a connection was accepted just now
		return
	}
	cl.idle.Store(0)
	if i := cl.grpcServer; i != nil {
		cl.grpcServer = nil
		delete(s.instances, i)
		s.work.Go(i.grpc.Stop)
	}
	if cl.account.CurrentUse(limits.Streams) == 0 && cl.account.CurrentUse(limits.Bytes) == 0 {
		delete(s.clients, cl.account.Address)
		cl.account.Close()
	}
}
