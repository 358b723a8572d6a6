package prefixindex

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fill uses different prompts of an index.
func fill(x *Index, c Handle, from, prompts int) {
	for i := from; i < from+prompts; i++ {
		chain := make([]uint64, 16)
		for at := range chain {
			chain[at] = uint64(i*len(chain) + at + 1)
		}
		x.UseChain(c, chain)
	}
}

func TestMemoryIsShared(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	m := NewMemoryBudget(limit)
	busy, idle := m.NewIndex(), m.NewIndex()
	busyCache, idleCache := busy.AddCache(1<<20), idle.AddCache(1<<20)

	fill(busy, busyCache, 0, 1000)
	assert.Greater(t, busy.Stats().Bytes, limit*7/8, "one index may use all of it")

	fill(idle, idleCache, 0, 1000)
	assert.LessOrEqual(t, busy.Stats().Bytes+idle.Stats().Bytes, limit)
	assert.Greater(t, busy.Stats().Bytes, limit/3, "the other one gets its part, and no more")
	assert.Greater(t, idle.Stats().Bytes, limit/3)

	idle.ReleaseMemory()
	fill(busy, busyCache, 2000, 1000)
	assert.Greater(t, busy.Stats().Bytes, limit*7/8)
	assert.Equal(t, int64(busy.Stats().Bytes), m.used.Load())
	idle.RemoveCache(idleCache)
	assert.Equal(t, int64(busy.Stats().Bytes), m.used.Load(), "a released index does not count")
}

func TestMemoryOfManyIndexes(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	m := NewMemoryBudget(limit)
	var running sync.WaitGroup
	var indexes []*Index
	for range 8 {
		x := m.NewIndex()
		indexes = append(indexes, x)
		running.Go(func() { fill(x, x.AddCache(1<<20), 0, 2000) })
	}
	running.Wait()
	sum := 0
	for _, x := range indexes {
		sum += x.Stats().Bytes
	}
	assert.LessOrEqual(t, sum, limit)
	assert.Equal(t, int64(sum), m.used.Load())
	for _, x := range indexes {
		x.ReleaseMemory()
	}
	assert.Zero(t, m.used.Load())
}
