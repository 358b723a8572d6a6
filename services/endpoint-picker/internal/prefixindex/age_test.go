package prefixindex

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The distance of a block is the number of blocks that were used since, however often, which the index knows to a fifth.
func TestReuse_Distance(t *testing.T) {
	t.Parallel()
	const prompt = 100
	r := rand.New(rand.NewPCG(1, 1))
	x := NewMemoryBudget(plenty).NewIndex()
	c := x.AddCache(plenty)
	var order []int // of prompts, the last used one last
	checked := 0
	for range 5000 {
		number := int(300 * r.Float64() * r.Float64() * r.Float64())
		chain := make([]uint64, prompt)
		for i := range chain {
			chain[i] = uint64(number+1)<<20 + uint64(i)
		}
		var reuse Reuse
		x.ReuseChain(c, chain, &reuse)
		if len(reuse.Spans()) > 0 {
			span := reuse.Spans()[0]
			since := 0
			for order[len(order)-1-since] != number {
				since++
			}
			assert.InDelta(t, since*prompt, span.Distance, float64(since*prompt)/5+prompt)
			assert.EqualValues(t, prompt, span.End)
			order = append(order[:len(order)-1-since], order[len(order)-since:]...)
			checked++
		}
		order = append(order, number)
	}
	assert.Greater(t, checked, 4000)
}

// A system prompt is used more often than what follows it.
func TestReuse_Spans(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	c := x.AddCache(plenty)
	var first, second Reuse
	x.ReuseChain(c, []uint64{1, 2, 3, 4}, &first)
	assert.Empty(t, first.Spans())
	used := x.UseChain(c, []uint64{1, 2, 5, 6, 7})
	x.OccupyBlocks(c, 100)
	x.ReuseChain(c, []uint64{1, 2, 3, 4, 8}, &second)
	spans := second.Spans()
	assert.Len(t, spans, 2)
	assert.EqualValues(t, 2, spans[0].End)
	assert.Equal(t, used, spans[0].Last)
	assert.EqualValues(t, 4, spans[1].End)
	assert.Less(t, spans[1].Last, used)
	assert.GreaterOrEqual(t, spans[1].Distance, spans[0].Distance)

	x.ExpireUntil(c, spans[1].Last)
	assert.Equal(t, []int{5}, match(x, []uint64{1, 2, 3, 4, 8}), "they were used again")
	x.ExpireUntil(c, used)
	assert.Equal(t, []int{2}, match(x, []uint64{1, 2, 5, 6, 7}))
	for n := range uint64(10) {
		x.UseChain(c, []uint64{1, 2, 3, 4, 8, 100 + n, 200 + n})
		x.UseChain(c, []uint64{1, 2, 3, 4, 8, 100 + n, 300 + n, 400 + n}[:6+n%3])
	}
	x.ReuseChain(c, []uint64{1, 2, 3, 4, 8, 101, 301, 401}, &second)
	assert.LessOrEqual(t, len(second.Spans()), maxSpans)
}
