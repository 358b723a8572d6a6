package grpcserver

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const served = "ok"

// overNetwork is overMemory or overLoopback.
type overNetwork func(t testing.TB, o testLimits, options ...grpc.ServerOption) *rig

// holdStreams opens streams that stay open.
func (g *gateway) holdStreams(n int) (replies []string) {
	g.t.Helper()
	for range n {
		s, _ := g.open()
		send(g.t, s, "headers", "end")
		reply, _ := receive(s)
		replies = append(replies, reply)
	}
	return replies
}

func TestSilentStreamsDoNotStopOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { silentStreams(t, overMemory) })
}

func silentStreams(t *testing.T, over overNetwork) {
	t.Helper()
	const limit = 100
	r := over(t, testLimits{MaxStreams: limit})
	x := r.dialRaw(t, hostile, http2Window)
	x.read()
	for range 3 * limit {
		x.open()
	}
	r.await(t, "refusals", func() bool { return len(r.service.ended()) == 2*limit })
	for _, err := range r.service.ended() {
		require.ErrorIs(t, err, limits.ErrTooManyStreams)
	}
	assert.Equal(t, limit, r.GatewayStats().Streams)

	g := r.gateway(t, good)
	for i, reply := range g.holdStreams(limit / 2) {
		require.Equal(t, served, reply, i)
	}
	r.pass(limits.LevelAge)
	assert.Equal(t, "refused: "+limits.ErrTooManyStreams.Error(), g.holdStreams(2)[1], "it has its half now")
	assert.LessOrEqual(t, r.GatewayStats().Streams, limit+limit/2+2, "limit x (1 + 1/2)")
}

// TestStreamsOfManyPeers checks the bound of the total: limit x (1 + 1/2 + ... + 1/n).
func TestStreamsOfManyPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 60
		r := overMemory(t, testLimits{MaxStreams: limit})
		bound := 0
		for n := range 5 {
			g := r.gateway(t, fmt.Sprintf("10.0.0.%d", n+1))
			got := 0
			for range limit + 1 {
				time.Sleep(limits.LevelAge)
				if g.holdStreams(1)[0] == served {
					got++
				}
			}
			assert.GreaterOrEqual(t, got, limit/(n+1), "peer %d", n)
			bound += limit/(n+1) + 1
			assert.LessOrEqual(t, r.GatewayStats().Streams, bound)
		}
	})
}

// TestUnreadRefusalsEnd has a client that does not read refusals, which stay in memory then.
func TestUnreadRefusalsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { unreadRefusals(t, overMemory) })
}

func unreadRefusals(t *testing.T, over overNetwork) {
	t.Helper()
	const limit, n = 50, 1000
	r := over(t, testLimits{MaxStreams: limit})
	x := r.dialRaw(t, hostile, 0)
	x.read()
	for range n {
		x.open()
	}
	r.await(t, "refusals without a body", func() bool { return r.GatewayStats().RefusedStreams == n-limit-maxRefused })
	assert.Equal(t, limit, r.GatewayStats().Streams)
	r.await(t, "refusals by handlers", func() bool { return len(r.service.ended()) == maxRefused })
	x.open()
	r.await(t, "a refusal", func() bool { return r.GatewayStats().RefusedStreams == n-limit-maxRefused+1 })
	assert.Equal(t, served, r.gateway(t, good).ask(10))
	require.NoError(t, x.net.Close())
	cl := r.listClients()[0]
	r.await(t, "the end of streams that wait for nobody", func() bool { return len(cl.allStreams(nil)) == 0 && r.GatewayStats().Streams == 0 })
	assert.Equal(t, served, r.gateway(t, hostile).ask(10))
}

// TestUnreadStreamsMakeRoom has a client that ends its streams and does not read the replies, so that gRPC keeps them.
func TestUnreadStreamsMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 20
		r := overMemory(t, testLimits{MaxStreams: limit, SendTimeout: 20 * time.Second})
		x := r.dialRaw(t, hostile, 0)
		x.read()
		for range limit {
			id := x.open()
			x.send(id, append(message("headers"), message("end")...), 100)
			x.end(id)
		}
		time.Sleep(time.Minute)
		assert.Len(t, r.service.ended(), limit)
		assert.Equal(t, limit, r.GatewayStats().Streams)
		assert.Zero(t, r.GatewayStats().BlockedConnections, "nobody needs the room")

		assert.NotContains(t, r.gateway(t, good).holdStreams(limit/2), "refused: "+limits.ErrTooManyStreams.Error())
		time.Sleep(2 * sweepInterval)
		assert.Equal(t, int64(1), r.GatewayStats().BlockedConnections)
		assert.Equal(t, limit/2, r.GatewayStats().Streams)
		assert.Equal(t, served, r.gateway(t, hostile).ask(10))
	})
}

var zeros = make([]byte, 30<<20)

// halfMessages sends messages without their last byte on n streams, as far as the server reads them.
func halfMessages(t *testing.T, x *raw, n, size, frame int) {
	t.Helper()
	for range n {
		id := x.open()
		x.send(id, message("headers"), 100)
		x.sendInWindow(id, head(size))
		go func() {
			if frame > 0 {
				x.send(id, zeros[:size-1], frame)
				return
			}
			x.sendInWindow(id, zeros[:size-1])
		}()
	}
}

// maxHeld is the bound of the bytes of all clients: the limit and a quarter, where reading pauses, what was read then, and what
// others hold: a good client, and pieces that count before they are there.
func maxHeld(limit, conns, perConn, others int) int {
	return limit + limit/pauseFraction + conns*perConn + others
}

// halfMessageAttack is a way to hold memory with messages that do not end.
type halfMessageAttack struct {
	name    string
	limit   int
	streams int
	size    int
	frame   int
	perConn int // bytes of a read, and the overhead of its frames
}

// piece is the part of a message that counts before it is there.
func (a halfMessageAttack) piece() int {
	if a.size <= smallSize {
		return a.size
	}
	return pieceSize
}

var halfMessageAttacks = []halfMessageAttack{
	{name: "large messages", limit: 8 << 20, streams: 64, size: maxBody, perConn: 64 << 10},
	{name: "small messages", limit: 8 << 20, streams: 400, size: 60 << 10, perConn: 64 << 10},
	{name: "frames of one byte", limit: 2 << 20, streams: 200, size: 2000, frame: 1, perConn: readBuffer / 10 * frameOverhead},
	{name: "messages that are read at once, in frames of one byte", limit: 2 << 20, streams: 200, size: smallSize - 100, frame: 1, perConn: readBuffer / 10 * frameOverhead},
}

func TestHalfMessagesDoNotStopOthers(t *testing.T) {
	t.Parallel()
	for _, a := range halfMessageAttacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { a.run(t, overMemory) })
		})
	}
}

// run attacks while a good client sends requests.
func (a halfMessageAttack) run(t *testing.T, over overNetwork) {
	t.Helper()
	r := over(t, testLimits{MaxBytes: a.limit, MessageTimeout: time.Minute})
	g := r.gateway(t, good)
	body := a.limit / 8
	require.Equal(t, served, g.ask(body))
	const conns = 4
	for range conns {
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		halfMessages(t, x, a.streams/conns, a.size, a.frame)
	}
	r.await(t, "the attack, or its end", func() bool { return r.GatewayStats().Bytes > a.limit/2 || len(r.service.ended()) > 1 })
	largest := 0
	for range 25 {
		largest = max(largest, r.GatewayStats().Bytes)
		require.Equal(t, served, g.ask(body))
		r.pass(limits.LevelAge)
	}
	assert.LessOrEqual(t, largest, maxHeld(a.limit, conns, a.perConn, 3*body+a.streams*a.piece()*frameOverhead))
	for _, err := range r.service.ended() {
		if err != nil {
			require.ErrorIs(t, err, limits.ErrTooManyBytes)
		}
	}
}

// TestLargeMessagesAreRefusedWithin has a message that is refused before its end.
func TestLargeMessagesAreRefusedWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 600 << 10 // the first half of the message goes beyond it, and not so far that reading pauses
		r := overMemory(t, testLimits{MaxBytes: limit})
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		halfMessages(t, x, 1, maxBody, 0)
		synctest.Wait()
		require.Empty(t, r.service.ended(), "it discards")
		x.mu.Lock()
		assert.Positive(t, x.replies[1])
		x.mu.Unlock()
		time.Sleep(discardTimeout + 2*sweepInterval)
		require.Len(t, r.service.ended(), 1)
		require.ErrorIs(t, r.service.ended()[0], limits.ErrTooManyBytes)
		assert.Zero(t, r.GatewayStats().EvictedStreams)
	})
}

// TestRefusalsLeaveNothingBehind has a client that sends on after a refusal.
func TestRefusalsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		ids := []uint32{x.open(), x.open()}
		for _, id := range ids {
			x.sendInWindow(id, head(10*maxBody))
			x.sendInWindow(id, zeros[:maxBody])
		}
		x.end(ids[0])
		synctest.Wait()
		assert.Len(t, r.service.ended(), 1, "the stream that the peer has ended")
		time.Sleep(discardTimeout + 3*sweepInterval)
		assert.Len(t, r.service.ended(), 2)
		assert.Zero(t, r.GatewayStats().Bytes)
		assert.Zero(t, r.GatewayStats().Streams)
		assert.Zero(t, r.GatewayStats().ExpiredStreams)
	})
}

// TestLostBuffersDoNotRefuse has a single client whose lost buffers exceed the limit: the server collects garbage.
func TestLostBuffersDoNotRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{MaxBytes: 4 << 20})
		g := r.gateway(t, good)
		assert.Equal(t, served, g.ask(100<<10))
		pool := r.listClients()[0].account.BufferPool()
		var buffers []*[]byte // kept: a collection at another time would find them
		for range 130 {       // more than the limit, and less than what pauses the reading of requests
			buffers = append(buffers, pool.Get(32<<10))
		}
		assert.Equal(t, "refused: "+limits.ErrTooManyBytes.Error(), g.ask(100<<10))
		runtime.KeepAlive(buffers)
		r.await(t, "a collection", func() bool { return r.GatewayStats().Bytes < 1<<19 }) // it goes on beside
		assert.Equal(t, served, g.ask(100<<10))
	})
}

// TestSmallFramesCount has frames of one byte, which gRPC does not put into buffers of the pool. Those of a piece count before they are
// there, and complete pieces are in the pool.
func TestSmallFramesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		const pieces = 10
		id := x.open()
		x.send(id, append(message("headers"), head(100*pieceSize)...), 100)
		for range pieces * pieceSize {
			x.send(id, []byte{1}, 1)
		}
		synctest.Wait()
		assert.Equal(t, pieces*(pieceSize+limits.BlockOverhead)+pieceSize*frameOverhead, r.GatewayStats().Bytes)
	})
}

// TestSmallFramesThatNobodyReads has frames of one byte for a stream that waits for the client to read a reply. gRPC joins them, except for
// the last ones.
func TestSmallFramesThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		x := r.dialRaw(t, hostile, 0)
		x.read()
		id := x.open()
		x.send(id, message("headers"), 100)
		for range 4 {
			x.sendInWindow(id, message(strings.Repeat("a", 60<<10)))
		}
		x.sendInWindow(id, message("end"))
		time.Sleep(2 * sweepInterval)
		before := r.GatewayStats().Bytes
		const frames = 20_000
		for range frames {
			x.send(id, []byte{1}, 1)
		}
		synctest.Wait()
		got := r.GatewayStats().Bytes - before
		assert.GreaterOrEqual(t, got, frames-1024)
		assert.Less(t, got, 4*frames)
		assert.EqualValues(t, backlogBytes, r.listClients()[0].uncounted)
	})
}

// TestEvictionTakesTheOldest has half messages that the check within messages does not see.
func TestEvictionTakesTheOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, size, n = 18 << 20, 32 << 10, 140 // with the pieces that they wait for, less than what pauses
		r := overMemory(t, testLimits{MaxBytes: limit})
		responding := r.gateway(t, hostile)
		require.Equal(t, []string{served}, responding.holdStreams(1))
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		var ids []uint32
		for range n {
			id := x.open()
			ids = append(ids, id)
			x.send(id, append(message("headers"), append(head(size), make([]byte, size-1)...)...), 16<<10)
			time.Sleep(time.Millisecond)
		}
		assert.Greater(t, r.GatewayStats().Bytes, limit)
		assert.Zero(t, r.GatewayStats().EvictedStreams)
		g := r.gateway(t, good)
		assert.Equal(t, served, g.ask(maxBody))
		time.Sleep(evictAfter + 2*sweepInterval)
		assert.Equal(t, served, g.ask(maxBody))

		synctest.Wait()
		stats := r.GatewayStats()
		assert.LessOrEqual(t, stats.Bytes, limit)
		evicted := int(stats.EvictedStreams)
		assert.GreaterOrEqual(t, evicted, 8, "what is beyond the share")
		assert.Less(t, evicted, n/2)
		x.mu.Lock()
		defer x.mu.Unlock()
		for i, id := range ids {
			assert.Equal(t, i < evicted, x.ended[id], "stream %d", i)
		}
		for _, err := range r.service.ended() {
			if err != nil {
				require.ErrorIs(t, err, limits.ErrTooManyBytes)
			}
		}
		assert.Zero(t, stats.ClosedClients)
		assert.Equal(t, n-evicted+1, stats.Streams, "and the stream that waits for a response")
	})
}

// TestPeerThatDoesNotReturnMemoryIsClosed has a client that sends bodies and does not read the replies.
func TestPeerThatDoesNotReturnMemoryIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 4 << 20
		r := overMemory(t, testLimits{MaxBytes: limit, SendTimeout: time.Minute})
		g := r.gateway(t, good)
		waiting, _ := g.open()
		send(t, waiting, "headers", "end")
		x := r.dialRaw(t, hostile, 0)
		x.read()
		for range 6 { // 3.4 MiB, which the limit allows
			id := x.open()
			x.send(id, message("headers"), 100)
			go func() {
				for range 9 {
					x.sendInWindow(id, message(strings.Repeat("a", 60<<10)))
				}
				x.sendInWindow(id, message("end"))
			}()
		}
		time.Sleep(time.Second)
		assert.Greater(t, r.GatewayStats().Bytes, limit/2)
		slow, _ := g.open()
		send(t, slow, "headers", strings.Repeat("a", maxBody))
		time.Sleep(time.Second)
		assert.Greater(t, r.GatewayStats().Bytes, limit)
		for range 20 {
			require.Equal(t, served, g.ask(100<<10))
			time.Sleep(closeAfter / 16)
		}
		send(t, slow, "end")
		_, err := receive(slow)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)

		assert.Equal(t, int64(1), r.GatewayStats().ClosedClients)
		x.mu.Lock()
		closed := x.broken != nil
		x.mu.Unlock()
		assert.True(t, closed, "the connection")
		entries := r.logs.FilterLevelExact(zap.WarnLevel).All()
		require.Len(t, entries, 1)
		assert.Equal(t, hostile, entries[0].ContextMap()["peer"])

		var reply string
		reply, err = receive(waiting)
		require.NoError(t, err, "streams of others stay open")
		assert.Equal(t, served, reply)
		assert.Equal(t, served, g.ask(maxBody))
		assert.Equal(t, served, r.gateway(t, hostile).ask(10), "the peer may connect again")
		r.collected(t)
	})
}

// TestOnePeerOverload has a single good gateway with too many bodies: it gets refusals, and neither pauses nor cut streams. Requests
// that it sends again are served.
func TestOnePeerOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { onePeerOverload(t, overMemory) })
}

func onePeerOverload(t *testing.T, over overNetwork) {
	t.Helper()
	const requests = 20
	r := over(t, testLimits{MaxBytes: 4 * maxBody})
	g := r.gateway(t, good)
	var mu sync.Mutex
	results := map[string]int{}
	request := func() (got string) {
		got = strings.TrimSuffix(g.ask(maxBody), " EOF")
		mu.Lock()
		defer mu.Unlock()
		results[got]++
		return got
	}
	const refused = "refused: "
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			for got := request(); strings.HasPrefix(got, refused); got = request() {
				r.pass(100 * time.Millisecond)
			}
		})
	}
	all.Wait()
	assert.Equal(t, requests, results[served], results)
	assert.Positive(t, results[refused+limits.ErrTooManyBytes.Error()], results)
	assert.Len(t, results, 2, results)
	assert.Zero(t, r.GatewayStats().ClosedClients)
	r.collected(t)
	for _, err := range r.service.ended() {
		assert.True(t, err == nil || errors.Is(err, limits.ErrTooManyBytes), err)
	}
}
