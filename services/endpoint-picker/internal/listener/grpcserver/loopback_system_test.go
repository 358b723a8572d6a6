//go:build system

package grpcserver

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"fairlead.dev/pkg/kubetest"
)

// overLoopback is for tests with real connections.
func overLoopback(t testing.TB, o testLimits, options ...grpc.ServerOption) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := newRig(t, l, o, options...)
	r.dial = func(ctx context.Context, from string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
	r.pass = time.Sleep
	r.await = func(t *testing.T, what string, cond func() bool) {
		t.Helper()
		require.Eventually(t, cond, kubetest.Patience, 5*time.Millisecond, what)
	}
	return r
}

// TestLoopback runs attacks over sockets, which the other tests of the package have in memory.
func TestLoopback(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, over overNetwork){
		"silent streams": silentStreams, "unread refusals": unreadRefusals, "overload by one peer": onePeerOverload,
		"random peers": func(t *testing.T, over overNetwork) { t.Helper(); randomPeers(t, over) },
	}
	for _, a := range halfMessageAttacks {
		tests[a.name] = func(t *testing.T, over overNetwork) { t.Helper(); a.run(t, over) }
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, overLoopback)
		})
	}
}

// TestHalfMessagesInTheHeap looks at the heap: nothing is held beside the count.
func TestHalfMessagesInTheHeap(t *testing.T) {
	const limit = 16 << 20
	r := overLoopback(t, testLimits{MaxBytes: limit})
	before := heap()
	x := r.dialRaw(t, hostile, http2Window)
	x.read()
	halfMessages(t, x, 32, 30<<20, 0) // the state does not allow these
	halfMessages(t, x, 700, 60<<10, 0)
	halfMessages(t, r.dialRaw(t, hostile, http2Window), 200, 60<<10, 1)
	r.await(t, "all streams, and bytes of them", func() bool {
		s := r.GatewayStats()
		return len(r.service.ended())+s.Streams == 32+700+200 && s.Bytes > limit/2
	})
	r.await(t, "an end of what is beyond the limit", func() bool { return r.GatewayStats().Bytes < 3*limit/2 })
	var held int64
	assert.Eventually(t, func() bool {
		held = heap() - before
		return held < limit
	}, kubetest.Patience, 100*time.Millisecond, "what arrives is in the heap until it is refused")
	t.Logf("%d KiB in the heap, %d KiB counted", held>>10, r.GatewayStats().Bytes>>10)
}

// heap returns the bytes of the heap that are in use. A sync.Pool keeps its content for one collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
