package grpcserver

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// late is how much later than its deadline a stream may end, and this be noticed.
const late = 3*sweepInterval + 50*time.Millisecond

var timeouts = testLimits{MessageTimeout: 10 * time.Second, SendTimeout: 20 * time.Second}

// trickle sends one byte per second until the stream has ended.
func (x *raw) trickle(id uint32, data []byte) {
	for i := range data {
		x.mu.Lock()
		ended := x.ended[id] || x.broken != nil
		x.mu.Unlock()
		if ended {
			return
		}
		x.send(id, data[i:i+1], 1)
		time.Sleep(time.Second)
	}
}

// TestEveryStateHasADeadline has every way to be slow while the server waits.
func TestEveryStateHasADeadline(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		give  func(x *raw, id uint32)
		state string
		want  time.Duration
	}{
		{name: "silence", give: func(*raw, uint32) {}, state: "headers", want: awaitingHeaders.Timeout},
		{
			name:  "part of the length of a message",
			give:  func(x *raw, id uint32) { x.send(id, head(10)[:3], 3) },
			state: "headers", want: awaitingHeaders.Timeout,
		},
		{
			name:  "half a message",
			give:  func(x *raw, id uint32) { x.send(id, message(strings.Repeat("a", 1000))[:500], 500) },
			state: "headers", want: awaitingHeaders.Timeout,
		},
		{
			name:  "headers without a body",
			give:  func(x *raw, id uint32) { x.send(id, message("headers"), 100) },
			state: "body", want: collecting.Timeout,
		},
		{
			name: "half a message of a body",
			give: func(x *raw, id uint32) {
				x.send(id, append(message("headers"), message(strings.Repeat("a", 1000))[:500]...), 100)
			},
			state: "body", want: timeouts.MessageTimeout,
		},
		{
			name: "half of a large message of a body",
			give: func(x *raw, id uint32) {
				x.send(id, append(message("headers"), message(strings.Repeat("a", maxBody))[:200<<10]...), 16<<10)
			},
			state: "body", want: timeouts.MessageTimeout,
		},
		{
			name: "a message of one byte per second",
			give: func(x *raw, id uint32) {
				x.send(id, message("headers"), 100)
				go x.trickle(id, message(strings.Repeat("a", 100)))
			},
			state: "body", want: 4*time.Second + timeouts.MessageTimeout, // four seconds for the length
		},
		{
			name: "messages of one byte",
			give: func(x *raw, id uint32) {
				x.send(id, message("headers"), 100)
				go x.trickle(id, bytes.Repeat(message("a"), 100))
			},
			state: "body", want: collecting.Timeout,
		},
		{
			name:  "silence during the response",
			give:  func(x *raw, id uint32) { x.send(id, append(message("headers"), message("end")...), 100) },
			state: "response", want: awaitingResponse.Timeout,
		},
		{
			name: "half a message during the response",
			give: func(x *raw, id uint32) {
				x.send(id, append(append(message("headers"), message("end")...), head(100)...), 100)
			},
			state: "response", want: timeouts.MessageTimeout,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := overMemory(t, timeouts)
				x := r.dialRaw(t, hostile, http2Window)
				x.read()
				id := x.open()
				began := time.Now()
				tt.give(x, id)
				for {
					time.Sleep(sweepInterval)
					if len(r.service.ended()) > 0 {
						break
					}
					require.Less(t, time.Since(began), time.Hour)
				}
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, tt.want)
				assert.LessOrEqual(t, took, tt.want+late)
				var timeout *TimeoutError
				require.ErrorAs(t, r.service.ended()[0], &timeout)
				assert.Equal(t, tt.state, timeout.State)

				x.until("end of the stream", func() bool { return x.ended[id] })
				x.mu.Lock()
				assert.GreaterOrEqual(t, x.replies[id], len("refused: timeout of "), "the stream ended with a reason")
				x.mu.Unlock()
				time.Sleep(time.Second)
				stats := r.GatewayStats()
				assert.Equal(t, int64(1), stats.ExpiredStreams)
				assert.Zero(t, stats.Streams)
			})
		})
	}
}

// TestReaderThatStops has a client that sends a body and does not read the replies: SendReply has a deadline.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, timeouts)
		x := r.dialRaw(t, hostile, 0) // no window for replies
		x.read()
		id := x.open()
		x.send(id, message("headers"), 100)
		go func() {
			for range 4 {
				x.sendInWindow(id, message(strings.Repeat("a", 100<<10)))
			}
			x.sendInWindow(id, message("end"))
		}()
		time.Sleep(timeouts.SendTimeout - time.Second)
		assert.Empty(t, r.service.ended())
		assert.Greater(t, r.GatewayStats().Bytes, 400<<10)
		time.Sleep(time.Second + late)
		require.Len(t, r.service.ended(), 1)
		var timeout *TimeoutError
		require.ErrorAs(t, r.service.ended()[0], &timeout)
		assert.Equal(t, "unread reply", timeout.State)

		stats := r.GatewayStats()
		assert.Equal(t, 1, stats.Streams, "gRPC keeps the stream for its unread replies")
		assert.Greater(t, stats.Bytes, 100<<10, "and the first of them")
		assert.Less(t, stats.Bytes, 200<<10, "but not those that were not sent")
		x.reset(id)
		time.Sleep(time.Second)
		assert.Zero(t, r.GatewayStats().Streams)
		assert.Zero(t, r.GatewayStats().Bytes)
	})
}

// TestDeadlinesRestart has a client that is slow, but not too slow in any state.
func TestDeadlinesRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, timeouts)
		s, _ := r.gateway(t, good).open()
		for _, m := range []struct {
			after time.Duration
			send  string
		}{
			{awaitingHeaders.Timeout, "headers"}, {collecting.Timeout / 2, "a"}, {collecting.Timeout / 2, "end"},
		} {
			time.Sleep(m.after - sweepInterval)
			send(t, s, m.send)
		}
		reply, err := receive(s)
		require.NoError(t, err)
		assert.Equal(t, "a", reply)
		require.NoError(t, s.CloseSend())
		_, err = receive(s) // "ok"
		require.NoError(t, err)
		_, err = receive(s)
		require.Error(t, err)
		assert.Equal(t, []error{nil}, r.service.ended())
		assert.Zero(t, r.GatewayStats().ExpiredStreams)
	})
}

func TestNoDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		s, cancel := r.gateway(t, good).open()
		send(t, s, "headers", "end")
		_, err := receive(s)
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Second)
		require.Len(t, r.service.ended(), 1)
		assert.NoError(t, r.service.ended()[0], "the gateway canceled the stream")
	})
}

// TestClockOfAStalledProcess has a process that got no CPU for a minute: its clients are not to blame.
func TestClockOfAStalledProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Params{Ledger: limits.NewLedger(limits.Limits{})})
		s.sweepOnce(nil)
		time.Sleep(sweepInterval)
		s.sweepOnce(nil)
		assert.Equal(t, 1+int64(sweepInterval), s.now.Load())
		time.Sleep(time.Minute)
		s.sweepOnce(nil)
		assert.Equal(t, 1+int64(sweepInterval+maxTick), s.now.Load())
	})
}
