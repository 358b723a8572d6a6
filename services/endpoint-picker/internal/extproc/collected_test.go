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
			pool, want, c := &leakPool{}, []byte{}, collected{}
			for i, n := range tt.sizes {
				piece := bytes.Repeat([]byte{byte(i)}, n)
				want = append(want, piece...)
				c.add(pool.copy(piece))
				c.add(nil)
			}
			assert.Equal(t, len(want), c.size)
			whole := c.take()
			assert.Equal(t, want, whole.ReadOnlyData())
			assert.Equal(t, collected{}, c)
			whole.Free()
			assert.Zero(t, pool.lent())
		})
	}
}

func TestCollected_OnePieceIsNotCopied(t *testing.T) {
	t.Parallel()
	pool, c := &leakPool{}, collected{}
	c.add(pool.copy(make([]byte, 5000)))
	whole := c.take()
	assert.Same(t, &pool.last()[0], &whole.ReadOnlyData()[0])
	whole.Free()
	assert.Zero(t, pool.lent())
}

func TestCollected_HoldsNoMemoryForEachSmallPiece(t *testing.T) {
	t.Parallel()
	pool, c := &leakPool{}, collected{}
	for range 10_000 {
		c.add(pool.copy(make([]byte, minPiece-1)))
	}
	assert.Zero(t, pool.lent())
	assert.Empty(t, c.pieces)
	c.drop()
	c.drop()
	assert.Equal(t, collected{}, c)
}
