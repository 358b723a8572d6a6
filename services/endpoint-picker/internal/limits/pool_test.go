package limits

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"fairlead.dev/pkg/kubetest"
)

func newTestAccount() *Account { return NewLedger(Limits{}).OpenAccount(netip.Addr{}) }

func TestPoolCounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give int
		want int // capacity
	}{
		{name: "one byte", give: 1, want: 2 << 10},
		{name: "a class", give: 4 << 10, want: 4 << 10},
		{name: "a frame", give: 16 << 10, want: 16 << 10},
		{name: "more than a frame", give: 16<<10 + 1, want: 32 << 10},
		{name: "a prompt", give: 67_000, want: 96 << 10},
		{name: "the largest class", give: 1 << 20, want: 1 << 20},
		{name: "beyond the classes", give: 3 << 20, want: 3 << 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newTestAccount()
			pool := a.BufferPool()
			for range 2 { // new, and perhaps used before
				b := pool.Get(tt.give)
				assert.Len(t, *b, tt.give)
				assert.Equal(t, tt.want, cap(*b))
				assert.Equal(t, int64(tt.want+BlockOverhead), a.CurrentUse(Bytes))
				*b = (*b)[:0] // gRPC shortens buffers
				pool.Put(b)
				assert.Zero(t, a.CurrentUse(Bytes))
				assert.Zero(t, a.ledger.TotalUse(Bytes))
			}
		})
	}
}

func TestPoolOfAccounts(t *testing.T) {
	t.Parallel()
	l := NewLedger(Limits{})
	a, b := l.OpenAccount(netip.MustParseAddr("10.0.0.1")), l.OpenAccount(netip.MustParseAddr("10.0.0.2"))
	kept := a.BufferPool().Get(1000)
	returned := b.BufferPool().Get(1000)
	a.BufferPool().Put(returned)
	assert.Zero(t, b.CurrentUse(Bytes), "the account of the client that had it")
	assert.Equal(t, int64(2<<10+BlockOverhead), a.CurrentUse(Bytes))
	assert.Equal(t, int64(2<<10+BlockOverhead), l.TotalUse(Bytes))
	a.BufferPool().Put(kept)
	a.BufferPool().Put(kept)
	assert.Zero(t, a.CurrentUse(Bytes), "a buffer is returned once")
}

func TestLostBuffersCountUntilCollected(t *testing.T) {
	t.Parallel()
	a := newTestAccount()
	func() {
		var lost []mem.Buffer
		for _, size := range []int{1, 10_000, 2 << 20} {
			lost = append(lost, mem.NewBuffer(a.BufferPool().Get(size), a.BufferPool()))
			assert.Equal(t, size, lost[len(lost)-1].Len())
		}
		assert.Positive(t, a.CurrentUse(Bytes))
		runtime.KeepAlive(lost)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return a.CurrentUse(Bytes) == 0
	}, kubetest.Patience, time.Millisecond, "buffers that were lost")
	assert.Zero(t, a.ledger.TotalUse(Bytes))
}

func TestPoolConcurrently(t *testing.T) {
	t.Parallel()
	a := newTestAccount()
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			pool := a.BufferPool()
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
	assert.Zero(t, a.CurrentUse(Bytes))
}
