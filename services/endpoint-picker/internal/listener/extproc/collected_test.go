package extproc

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCollected_IsOnePieceAtTheEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		sizes []int
	}{
		{name: "one", sizes: []int{5000}},
		{name: "as Envoy", sizes: []int{16 << 10, 16 << 10, 100}},
		{name: "small ones", sizes: []int{1, 2, 3}},
		{name: "small and large ones", sizes: []int{1, 2, 5000, 3, minPiece, minPiece - 1, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, want := &leakPool{}, []byte{}
			c := bodyBuffer{bufferPool: pool}
			for i, n := range tt.sizes {
				piece := bytes.Repeat([]byte{byte(i)}, n)
				want = append(want, piece...)
				c.addPiece(pool.copy(piece))
				c.addPiece(nil)
			}
			assert.Equal(t, len(want), c.size)
			whole := c.detachAll()
			assert.Equal(t, want, whole.ReadOnlyData())
			assert.Zero(t, c.size)
			whole.Free()
			assert.Zero(t, pool.lent())
		})
	}
}

func TestCollected_OnePieceIsNotCopied(t *testing.T) {
	t.Parallel()
	pool := &leakPool{}
	c := bodyBuffer{bufferPool: pool}
	c.addPiece(pool.copy(make([]byte, 5000)))
	whole := c.detachAll()
	assert.Same(t, &pool.last()[0], &whole.ReadOnlyData()[0])
	whole.Free()
	assert.Zero(t, pool.lent())
}

func TestCollected_JoinsSmallPieces(t *testing.T) {
	t.Parallel()
	pool := &leakPool{}
	c := bodyBuffer{bufferPool: pool}
	const n = 10_000
	for range n {
		c.addPiece(pool.copy(make([]byte, 10)))
	}
	assert.LessOrEqual(t, pool.lent(), n*10/(tailSize-minPiece)+1, "buffers")
	assert.Equal(t, n*10, c.size)
	c.freeAll()
	c.freeAll()
	assert.Zero(t, pool.lent())
	assert.Equal(t, bodyBuffer{bufferPool: pool}, c)
}
