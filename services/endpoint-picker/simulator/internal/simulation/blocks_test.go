package simulation

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
)

func chainOf(contents ...int32) []int32 { return contents }

func TestCacheKeepsWhatWasUsedLast(t *testing.T) {
	t.Parallel()
	c := newBlockCache(6, contents)
	use := func(chain []int32) (hit int) {
		held, hit, ok := c.acquireBlocks(chain, len(chain))
		require.True(t, ok)
		c.releaseBlocks(held, chain)
		return hit
	}
	a, b := chainOf(1, 2, 3), chainOf(4, 5, 6)
	assert.Zero(t, use(a))
	assert.Zero(t, use(b))
	assert.Equal(t, 3, use(a), "all of it is there, and now it is the newest")
	assert.Zero(t, use(chainOf(7, 8)))
	assert.Equal(t, 1, c.matchChain(b), "the end was given up before the beginning")
	assert.Equal(t, 3, c.matchChain(a))
	assert.Equal(t, 1, use(chainOf(4, 9)))
	assert.Equal(t, 2, c.matchChain(a), "of all its end was the oldest by then")
}

func TestCacheSharesBlocks(t *testing.T) {
	t.Parallel()
	c := newBlockCache(6, contents)
	first, hit, ok := c.acquireBlocks(chainOf(1, 2, 3), 4)
	require.True(t, ok)
	assert.Zero(t, hit)
	assert.Equal(t, 2, c.free)
	second, hit, ok := c.acquireBlocks(chainOf(1, 2, 3), 4)
	require.True(t, ok, "one block more is all that it takes")
	assert.Equal(t, 3, hit)
	assert.Equal(t, 1, c.free)
	_, _, ok = c.acquireBlocks(chainOf(1, 2, 7), 4)
	assert.False(t, ok, "two more are not there")
	assert.Equal(t, 1, c.free, "and so none is taken")
	c.releaseBlocks(first, chainOf(1, 2, 3, 4))
	assert.Equal(t, 2, c.free, "the others are held still")
	assert.Equal(t, 4, c.matchChain(chainOf(1, 2, 3, 4)), "the answer is there too")
	c.releaseBlocks(second, chainOf(1, 2, 3, 5))
	assert.Equal(t, 6, c.free)
}

func TestCacheDoesNotTakeWhatIsHeld(t *testing.T) {
	t.Parallel()
	c := newBlockCache(3, contents)
	held, _, ok := c.acquireBlocks(chainOf(1, 2), 2)
	require.True(t, ok)
	c.releaseBlocks(held, chainOf(1, 2))
	// Its cached beginning and two more blocks: the free one, and that of its own second block.
	_, hit, ok := c.acquireBlocks(chainOf(1, 3, 4), 3)
	require.True(t, ok)
	assert.Equal(t, 1, hit)
	assert.Zero(t, c.free)
	assert.Equal(t, 1, c.matchChain(chainOf(1, 2)))
}

// Whatever comes, each block is free or held, and each content is where the cache says.
func TestCacheKeepsItsBooks(t *testing.T) {
	t.Parallel()
	const size = 50
	type holding struct {
		held  []int32
		chain []int32
	}
	r := rand.New(rand.NewPCG(1, 2))
	c := newBlockCache(size, contents)
	var open []holding
	for range testlane.Repetitions(1500, 5000) {
		if r.IntN(2) == 0 && len(open) > 0 {
			i := r.IntN(len(open))
			c.releaseBlocks(open[i].held, open[i].chain)
			open = append(open[:i], open[i+1:]...)
		} else {
			kind, n := int32(r.IntN(8)), int32(1+r.IntN(12))
			var chain []int32
			for i := range n {
				chain = append(chain, kind*20+i)
			}
			before := c.matchChain(chain)
			if held, hit, ok := c.acquireBlocks(chain[:n-1], int(n)); ok {
				assert.Equal(t, min(before, int(n-1)), hit)
				open = append(open, holding{held, chain})
			}
		}
		holders := make([]int, size)
		for _, h := range open {
			for _, at := range h.held {
				holders[at]++
			}
		}
		free := 0
		for i, n := range holders {
			require.Equal(t, n, c.blocks[i].holders)
			if n == 0 {
				free++
			}
			if content := c.blocks[i].content; content != nothing {
				require.EqualValues(t, i, c.places[content])
			}
		}
		require.Equal(t, free, c.free)
	}
	assert.NotEmpty(t, open)
}
