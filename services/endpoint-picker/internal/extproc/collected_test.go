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
			c := collected{buffers: pool}
			for i, n := range tt.sizes {
				piece := bytes.Repeat([]byte{byte(i)}, n)
				want = append(want, piece...)
				c.add(pool.copy(piece))
				c.add(nil)
			}
			assert.Equal(t, len(want), c.size)
			whole := c.take()
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
	c := collected{buffers: pool}
	c.add(pool.copy(make([]byte, 5000)))
	whole := c.take()
	assert.Same(t, &pool.last()[0], &whole.ReadOnlyData()[0])
	whole.Free()
	assert.Zero(t, pool.lent())
}

func TestCollected_JoinsSmallPieces(t *testing.T) {
	t.Parallel()
	pool := &leakPool{}
	c := collected{buffers: pool}
	const n = 10_000
	for range n {
		c.add(pool.copy(make([]byte, 10)))
	}
	assert.LessOrEqual(t, pool.lent(), n*10/(tailSize-minPiece)+1, "buffers")
	assert.Equal(t, n*10, c.size)
	c.drop()
	c.drop()
	assert.Zero(t, pool.lent())
	assert.Equal(t, collected{buffers: pool}, c)
}
