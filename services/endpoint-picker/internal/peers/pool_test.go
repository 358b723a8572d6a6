package peers

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/mem"
)

func newTestPeer() *peer { return newPeer(New(Params{}), netip.Addr{}) }

func TestPoolCounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give int
		want int // capacity
	}{
		{name: "one byte", give: 1, want: 64},
		{name: "a class", give: 1 << 10, want: 1 << 10},
		{name: "a frame", give: 16 << 10, want: 16 << 10},
		{name: "more than a frame", give: 16<<10 + 1, want: 32 << 10},
		{name: "a prompt", give: 67_000, want: 96 << 10},
		{name: "the largest class", give: 1 << 20, want: 1 << 20},
		{name: "beyond the classes", give: 3 << 20, want: 3 << 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newTestPeer()
			pool := bufferPool{p}
			for range 2 { // new, and perhaps used before
				b := pool.Get(tt.give)
				assert.Len(t, *b, tt.give)
				assert.Equal(t, tt.want, cap(*b))
				assert.Equal(t, int64(tt.want+blockOverhead), p.used[heldBytes].Load())
				*b = (*b)[:0] // gRPC shortens buffers
				pool.Put(b)
				assert.Zero(t, p.used[heldBytes].Load())
				assert.Zero(t, p.server.limits[heldBytes].total.Load())
			}
		})
	}
}

func TestPoolOfPeers(t *testing.T) {
	t.Parallel()
	s := New(Params{})
	a, b := newPeer(s, netip.Addr{}), newPeer(s, netip.Addr{})
	kept := bufferPool{a}.Get(1000)
	returned := bufferPool{b}.Get(1000)
	bufferPool{a}.Put(returned)
	assert.Zero(t, b.used[heldBytes].Load(), "the account of the peer that had it")
	assert.Equal(t, int64(1024+blockOverhead), a.used[heldBytes].Load())
	assert.Equal(t, int64(1024+blockOverhead), s.limits[heldBytes].total.Load())
	bufferPool{a}.Put(kept)
	bufferPool{a}.Put(kept)
	assert.Zero(t, a.used[heldBytes].Load(), "a buffer is returned once")
}

// collected collects garbage until the condition holds.
func collected(t *testing.T, cond func() bool) {
	t.Helper()
	for range 100 {
		if cond() {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Fatal("the bytes of lost buffers still count")
}

func TestLostBuffersCountUntilCollected(t *testing.T) {
	t.Parallel()
	p := newTestPeer()
	func() {
		for _, size := range []int{1, 10_000, 2 << 20} {
			lost := mem.NewBuffer(bufferPool{p}.Get(size), bufferPool{p})
			assert.Equal(t, size, lost.Len())
		}
	}()
	assert.Positive(t, p.used[heldBytes].Load())
	collected(t, func() bool { return p.used[heldBytes].Load() == 0 })
	assert.Zero(t, p.server.limits[heldBytes].total.Load())
}

func TestPoolConcurrently(t *testing.T) {
	t.Parallel()
	p := newTestPeer()
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			pool := bufferPool{p}
			for n := range 2000 {
				b := pool.Get(1 + n%5000)
				for j := range *b {
					(*b)[j] = byte(i)
				}
				runtime.Gosched()
				for j := range *b {
					if (*b)[j] != byte(i) {
						t.Error("two users have one buffer")
						return
					}
				}
				pool.Put(b)
			}
		})
	}
	users.Wait()
	assert.Zero(t, p.used[heldBytes].Load())
}
