package extproc

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/mem"
)

// keeper is a pool that keeps every buffer.
type keeper struct {
	mem.NopBufferPool

	kept []int // capacities
}

func (k *keeper) Put(b *[]byte) { k.kept = append(k.kept, cap(*b)) }

func TestBoundedPoolKeepsNoLargeBuffer(t *testing.T) {
	t.Parallel()
	kept := &keeper{}
	pool := boundedPool{kept}
	for _, size := range []int{100, maxPooledBuffer, maxPooledBuffer + 1, 32 << 20} {
		b := pool.Get(size)
		assert.Len(t, *b, size)
		*b = (*b)[:10] // gRPC returns a prefix
		pool.Put(b)
	}
	assert.Equal(t, []int{100, maxPooledBuffer}, kept.kept)
}
