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
			pool, want, budget := &leakPool{}, []byte{}, NewBudget(1<<20)
			c := collected{budget: budget}
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
			assert.Equal(t, len(want), budget.Used(), "until it is released")
			c.release()
			assert.Zero(t, budget.Used())
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

func TestCollected_KeepsToItsBudget(t *testing.T) {
	t.Parallel()
	pool, budget := &leakPool{}, NewBudget(10_000)
	a, b := collected{budget: budget}, collected{budget: budget}
	assert.True(t, a.add(pool.copy(make([]byte, 6000))))
	assert.False(t, b.add(pool.copy(make([]byte, 6000))))
	assert.True(t, b.add(pool.copy(make([]byte, 4000))))
	assert.Equal(t, 10_000, budget.Used())
	a.drop()
	assert.Equal(t, 4000, budget.Used())
	assert.True(t, b.add(pool.copy(make([]byte, 6000))))
	b.drop()
	assert.Zero(t, budget.Used())
	assert.Zero(t, pool.lent())
}
