package prefixindex

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// resumable returns, for each cache, the blocks of a chain from whose end it can continue if it keeps the ends of prompts only.
func resumable(x *Index, chain []uint64) []int {
	matched, list := make([]int, x.Slots()), make([]int, x.Slots())
	x.MatchChain(chain, matched, list)
	return list
}

func TestResumable(t *testing.T) {
	t.Parallel()
	type use struct {
		cache int
		chain []uint64
	}
	tests := []struct {
		name string
		uses []use
		want [2]int // of the chain 1, 2, 3, 4
	}{
		{"nothing", nil, [2]int{}},
		{"the end of a prompt", []use{{0, []uint64{1, 2}}}, [2]int{2, 0}},
		{"the inside of a prompt", []use{{0, []uint64{1, 2, 3, 9}}}, [2]int{}},
		{"the last of two ends", []use{{0, []uint64{1}}, {0, []uint64{1, 2, 3}}}, [2]int{3, 0}},
		{"an end before the inside", []use{{0, []uint64{1}}, {0, []uint64{1, 2, 3, 9}}}, [2]int{1, 0}},
		{"where a prompt left another", []use{{0, []uint64{1, 2, 3, 9}}, {0, []uint64{1, 2, 8}}}, [2]int{2, 0}},
		{"the same in the other order", []use{{0, []uint64{1, 2, 8}}, {0, []uint64{1, 2, 3, 9}}}, [2]int{2, 0}},
		{"where two prompts left another", []use{{0, []uint64{1, 2, 3, 9}}, {0, []uint64{1, 8}}, {0, []uint64{1, 2, 3, 7}}}, [2]int{3, 0}},
		{"where the prompt of another cache left one", []use{{0, []uint64{1, 2, 3, 9}}, {1, []uint64{1, 2, 8}}}, [2]int{}},
		{"the same prompt in two caches", []use{{0, []uint64{1, 2, 3, 9}}, {1, []uint64{1, 2}}, {0, []uint64{1, 2, 8}}}, [2]int{2, 2}},
		{"the same prompt again", []use{{0, []uint64{1, 2, 3, 4}}, {0, []uint64{1, 2, 3, 4}}}, [2]int{4, 0}},
		{"a prompt inside another", []use{{0, []uint64{1, 2, 3, 4, 5}}, {0, []uint64{1, 2, 3}}}, [2]int{3, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := NewMemoryBudget(plenty).NewIndex()
			caches := []Handle{x.AddCache(100), x.AddCache(100)}
			for _, u := range tt.uses {
				x.UseChain(caches[u.cache], u.chain)
			}
			chain := []uint64{1, 2, 3, 4}
			assert.Equal(t, tt.want[:], resumable(x, chain))
			var reuse Reuse
			x.ReuseChain(caches[0], chain, &reuse)
			assert.EqualValues(t, tt.want[0], reuse.Resumable)
			assert.Equal(t, 4, resumable(x, chain)[0])
		})
	}
}

// A system prompt with one text after the other: the first repeat finds nothing, and all others do. Each turn of a conversation finds all
// turns before.
func TestResumable_SiblingsAndTurns(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	c := x.AddCache(100)
	var found []int32
	ask := func(chain ...uint64) {
		var reuse Reuse
		x.ReuseChain(c, chain, &reuse)
		found = append(found, reuse.Resumable)
	}
	for own := range uint64(4) {
		ask(1, 2, 3, 10+own, 20+own)
	}
	assert.Equal(t, []int32{0, 0, 3, 3}, found)
	found = nil
	ask(1, 2, 3, 10, 20, 30)
	ask(1, 2, 3, 10, 20, 30, 40, 50)
	ask(1, 2, 3, 10, 20, 30, 40, 50, 60)
	assert.Equal(t, []int32{5, 6, 8}, found)
}

// What is evicted is no place to continue, also when the same blocks come again.
func TestResumable_EvictedEnd(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	c := x.AddCache(6)
	x.UseChain(c, []uint64{1, 2, 3, 4})
	x.OccupyBlocks(c, 4)
	assert.Equal(t, []int{2}, match(x, []uint64{1, 2, 3, 4}))
	assert.Equal(t, []int{0}, resumable(x, []uint64{1, 2, 3, 4}))
	x.UseChain(c, []uint64{1, 2, 3, 4, 5})
	assert.Equal(t, []int{0}, resumable(x, []uint64{1, 2, 3, 4, 9}))
	assert.Equal(t, []int{5}, resumable(x, []uint64{1, 2, 3, 4, 5, 9}))
	stamp := x.UseChain(c, []uint64{1, 2, 3, 4, 5, 6})
	x.WithdrawUse(c, []uint64{1, 2, 3, 4, 5, 6}, 5, stamp)
	assert.Equal(t, []int{5}, resumable(x, []uint64{1, 2, 3, 4, 5, 6}), "it got no more")
}

// Without evictions the places are exactly those of an index that keeps every block by itself.
func TestResumable_OfAnyPrompts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 4))
		list := chains(r, 30)
		x := NewMemoryBudget(plenty).NewIndex()
		var caches []Handle
		var used, ends []map[uint64]bool
		for range 3 {
			caches, used, ends = append(caches, x.AddCache(plenty)), append(used, map[uint64]bool{}), append(ends, map[uint64]bool{})
		}
		for range 100 {
			number, c := r.IntN(len(caches)), list[r.IntN(len(list))]
			want := make([]int, len(caches))
			for i := range caches {
				for at, hash := range c {
					if ends[i][hash] {
						want[i] = at + 1
					}
				}
			}
			require.Equal(t, want, resumable(x, c))
			for at, hash := range c {
				if last := at == len(c)-1; last || used[number][hash] && !used[number][c[at+1]] {
					ends[number][hash] = true
				}
			}
			for _, hash := range c {
				used[number][hash] = true
			}
			x.UseChain(caches[number], c)
		}
	}
}

// Content that is copied to another index has at least the ends that it had: the parts of a prompt come one by one.
func TestResumable_OfEntries(t *testing.T) {
	t.Parallel()
	x, copied := NewMemoryBudget(plenty).NewIndex(), NewMemoryBudget(plenty).NewIndex()
	c, d := x.AddCache(100), copied.AddCache(100)
	x.UseChain(c, []uint64{1, 2, 3, 4})
	x.UseChain(c, []uint64{1, 2, 9})
	for _, e := range x.Entries() {
		copied.UseChain(d, e.Hashes)
	}
	for _, chain := range [][]uint64{{1, 2, 3, 4, 5}, {1, 2, 9, 5}, {1, 2, 7}} {
		assert.Equal(t, resumable(x, chain), resumable(copied, chain))
	}
}
