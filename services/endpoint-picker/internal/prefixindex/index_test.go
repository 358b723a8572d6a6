package prefixindex

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plenty = 1 << 30

// model is an index that keeps every block by itself.
type model struct {
	clock   int
	holders []*modelHolder
}

type modelHolder struct {
	capacity int
	used     map[uint64]int // by hash
	fill     uint64
}

func (m *model) add(capacity int) {
	m.holders = append(m.holders, &modelHolder{capacity: capacity, used: map[uint64]int{}})
}

func (m *model) use(number int, chain []uint64) (stamp int) {
	for _, hash := range slices.Backward(chain) {
		m.clock++
		m.holders[number].used[hash] = m.clock
	}
	stamp = m.clock
	m.evict(number)
	return stamp
}

func (m *model) withdraw(number int, chain []uint64, had, stamp int) {
	used := m.holders[number].used
	for i, hash := range chain {
		at, ok := used[hash]
		if !ok {
			return
		}
		if i >= had && at <= stamp {
			delete(used, hash)
		}
	}
}

func (m *model) expire(number, stamp int) {
	for hash, at := range m.holders[number].used {
		if at <= stamp {
			delete(m.holders[number].used, hash)
		}
	}
}

func (m *model) occupy(number, blocks int) {
	h := m.holders[number]
	for range blocks {
		m.clock++
		h.fill++
		h.used[1<<63|h.fill] = m.clock
	}
	m.evict(number)
}

func (m *model) evict(number int) {
	h := m.holders[number]
	for len(h.used) > h.capacity {
		var oldest uint64
		for hash, at := range h.used {
			if first, ok := h.used[oldest]; !ok || at < first {
				oldest = hash
			}
		}
		delete(h.used, oldest)
	}
}

func (m *model) match(chain []uint64) []int {
	matched := make([]int, len(m.holders))
	for i, h := range m.holders {
		for h != nil && matched[i] < len(chain) {
			if _, ok := h.used[chain[matched[i]]]; !ok {
				break
			}
			matched[i]++
		}
	}
	return matched
}

// chains are prompts that begin alike: each is the start of another one and goes on by itself.
func chains(r *rand.Rand, n int) [][]uint64 {
	list := [][]uint64{}
	next := uint64(0)
	for range n {
		var c []uint64
		if len(list) > 0 {
			c = slices.Clone(list[r.IntN(len(list))])
			c = c[:r.IntN(len(c)+1)]
		}
		for range 1 + r.IntN(6) {
			next++
			c = append(c, next*0x9e3779b97f4a7c15>>1) // the high bit is the model's
		}
		list = append(list, c)
	}
	return list
}

func match(x *Index, chain []uint64) []int {
	matched := make([]int, x.Slots())
	x.MatchChain(chain, matched, nil)
	return matched
}

// FuzzIndex does anything with an index and with its model, and compares.
func FuzzIndex(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, capacity uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := chains(r, 30)
		x, m := NewMemoryBudget(plenty).NewIndex(), &model{}
		var caches []Handle
		for i := range 4 {
			room := int(capacity)/4 + 10*i
			caches = append(caches, x.AddCache(room))
			m.add(room)
		}
		var last struct { // a use to withdraw
			number, had int
			chain       []uint64
			stamp       Stamp
			modelStamp  int
		}
		for range 300 {
			number := r.IntN(4)
			switch r.IntN(20) {
			case 0:
				blocks := r.IntN(8)
				x.OccupyBlocks(caches[number], blocks)
				m.occupy(number, blocks)
			case 1:
				room := r.IntN(60)
				x.ResizeCache(caches[number], room)
				m.holders[number].capacity = room
				m.evict(number)
			case 2:
				stale := caches[number]
				x.RemoveCache(stale)
				caches[number] = x.AddCache(40)
				require.Equal(t, number, caches[number].Slot(), "the slot is used again")
				m.holders[number] = &modelHolder{capacity: 40, used: map[uint64]int{}}
				x.UseChain(stale, list[0])
				x.OccupyBlocks(stale, 5)
				x.ResizeCache(stale, 0)
				x.ExpireUntil(stale, math.MaxUint64)
				x.RemoveCache(stale)
				last.chain = nil
			case 3:
				if last.chain != nil {
					x.WithdrawUse(caches[last.number], last.chain, last.had, last.stamp)
					m.withdraw(last.number, last.chain, last.had, last.modelStamp)
				}
			case 4:
				x.ExpireUntil(caches[number], last.stamp)
				m.expire(number, last.modelStamp)
			default:
				c := list[r.IntN(len(list))]
				had := match(x, c)[number]
				last.number, last.chain, last.had = number, c, had
				var reuse Reuse
				last.stamp, last.modelStamp = x.ReuseChain(caches[number], c, &reuse), m.use(number, c)
				end := 0
				for _, span := range reuse.Spans() {
					require.Greater(t, int(span.End), end)
					require.Less(t, span.Last, last.stamp)
					end = int(span.End)
				}
				require.Equal(t, had, end)
			}
			c := list[r.IntN(len(list))]
			require.Equal(t, m.match(c), match(x, c))
		}
		blocks := 0
		for _, h := range m.holders {
			blocks += len(h.used)
		}
		require.Equal(t, blocks, x.Stats().Blocks)
		for _, c := range caches {
			x.RemoveCache(c)
		}
		require.Equal(t, Stats{}, x.Stats())
	})
}

func TestIndex_StaysWithinItsBytes(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	r := rand.New(rand.NewPCG(1, 1))
	x := NewMemoryBudget(limit).NewIndex()
	a, b := x.AddCache(plenty), x.AddCache(plenty)
	for range 20_000 {
		c := []uint64{r.Uint64(), r.Uint64(), r.Uint64()}
		x.UseChain(a, c)
		x.UseChain(b, c)
		require.LessOrEqual(t, x.Stats().Bytes, limit)
		require.Equal(t, []int{3, 3}, match(x, c), "the newest is there")
	}
	assert.Greater(t, x.Stats().Bytes, limit/2)
	places := len(x.table.Load().places)
	assert.LessOrEqual(t, places, 8*minTable, "what went leaves no places behind")
}

// A stream can end long after its server was replaced. Its handle must not be taken for the next cache's.
func TestIndex_HandleOfARemovedCacheHasNoEffect(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	stale := x.AddCache(100)
	stamp := x.UseChain(stale, []uint64{1, 2, 3})
	x.RemoveCache(stale)
	use := func() {
		x.UseChain(stale, []uint64{7, 8})
		x.OccupyBlocks(stale, 99)
		x.ResizeCache(stale, 1)
		x.WithdrawUse(stale, []uint64{1, 2, 3}, 0, stamp)
		x.RemoveCache(stale)
	}
	use()
	assert.Equal(t, Stats{}, x.Stats(), "its slot is free")

	next := x.AddCache(100)
	require.Equal(t, stale.Slot(), next.Slot())
	x.UseChain(next, []uint64{1, 2, 3})
	use()
	assert.Equal(t, []int{3}, match(x, []uint64{1, 2, 3}))
	assert.Equal(t, []int{0}, match(x, []uint64{7, 8}))
	blocks, capacity := x.CacheSize(next)
	assert.Equal(t, []int{3, 100}, []int{blocks, capacity})
	blocks, capacity = x.CacheSize(stale)
	assert.Zero(t, blocks+capacity)
}

func TestIndex_ZeroHandleIsNoCache(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	x.UseChain(Handle{}, []uint64{1})
	first := x.AddCache(100)
	x.UseChain(Handle{}, []uint64{1})
	x.OccupyBlocks(Handle{}, 5)
	x.RemoveCache(Handle{})
	assert.Equal(t, Stats{}, x.Stats())
	x.UseChain(first, []uint64{1})
	assert.Equal(t, []int{1}, match(x, []uint64{1}))
}

func TestIndex_WithdrawTakesBackAUse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		had  []uint64 // before
		then []uint64 // after the use
		want []int    // blocks of the chain
	}{
		{name: "nothing was there", want: []int{0}},
		{name: "a part was there", had: []uint64{1, 2}, want: []int{2}},
		{name: "all was there", had: []uint64{1, 2, 3, 4, 5}, want: []int{4}},
		{name: "a part came again", then: []uint64{1, 2, 9}, want: []int{2}},
		{name: "all came again", had: []uint64{1}, then: []uint64{1, 2, 3, 4}, want: []int{4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			chain := []uint64{1, 2, 3, 4}
			x := NewMemoryBudget(plenty).NewIndex()
			c := x.AddCache(100)
			x.UseChain(c, tt.had)
			had := match(x, chain)[0]
			stamp := x.UseChain(c, chain)
			x.UseChain(c, tt.then)
			x.WithdrawUse(c, chain, had, stamp)
			assert.Equal(t, tt.want, match(x, chain))
			blocks, _ := x.CacheSize(c)
			assert.Equal(t, x.Stats().Blocks, blocks)
		})
	}
}

func TestIndex_EmptyChainsAndShortResults(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(plenty).NewIndex()
	a, b := x.AddCache(100), x.AddCache(100)
	x.UseChain(a, nil)
	assert.Equal(t, Stats{}, x.Stats())
	x.UseChain(a, []uint64{1, 2, 3})
	x.MatchChain([]uint64{1, 2, 3}, nil, nil)
	matched := make([]int, 1)
	x.UseChain(b, []uint64{1, 2})
	x.MatchChain([]uint64{1, 2}, matched, nil)
	assert.Equal(t, []int{2}, matched, "others are left out")
}

func TestIndex_IsReadWhileItChanges(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(200_000).NewIndex()
	var caches []Handle
	for range 8 {
		caches = append(caches, x.AddCache(500))
	}
	list := chains(rand.New(rand.NewPCG(3, 3)), 200)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 2000 {
				c := list[r.IntN(len(list))]
				matched := make([]int, 8)
				x.MatchChain(c, matched, nil)
				for _, n := range matched {
					assert.LessOrEqual(t, n, len(c))
				}
				x.UseChain(caches[r.IntN(8)], c)
			}
		})
	}
	wg.Wait()
}

func BenchmarkIndex(b *testing.B) {
	const blocks, servers = 80, 64
	r := rand.New(rand.NewPCG(1, 1))
	var heads [][]uint64
	for range 32 {
		head := make([]uint64, blocks-10)
		for i := range head {
			head[i] = r.Uint64()
		}
		heads = append(heads, head)
	}
	x := NewMemoryBudget(32 << 20).NewIndex()
	var caches []Handle
	for range servers {
		caches = append(caches, x.AddCache(8192))
	}
	chain := func() []uint64 {
		c := slices.Clone(heads[r.IntN(len(heads))])
		for range 10 {
			c = append(c, r.Uint64())
		}
		return c
	}
	for range 20_000 {
		x.UseChain(caches[r.IntN(servers)], chain())
	}
	matched := make([]int, servers)
	b.Run("match", func(b *testing.B) {
		c := chain()
		b.ReportAllocs()
		for b.Loop() {
			clear(matched)
			x.MatchChain(c, matched, nil)
		}
	})
	b.Run("use", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.UseChain(caches[r.IntN(servers)], chain())
		}
	})
}

func TestCacheSize(t *testing.T) {
	t.Parallel()
	x := NewMemoryBudget(1 << 20).NewIndex()
	a, b := x.AddCache(100), x.AddCache(10)
	x.UseChain(a, []uint64{1, 2, 3})
	x.OccupyBlocks(b, 4)
	x.UseChain(b, []uint64{1})
	for _, tt := range []struct {
		cache            Handle
		blocks, capacity int
	}{{a, 3, 100}, {b, 5, 10}, {Handle{}, 0, 0}, {Handle{slot: 9, generation: 1}, 0, 0}} {
		blocks, capacity := x.CacheSize(tt.cache)
		assert.Equal(t, tt.blocks, blocks, tt.cache)
		assert.Equal(t, tt.capacity, capacity, tt.cache)
	}
	x.RemoveCache(a)
	blocks, capacity := x.CacheSize(a)
	assert.Zero(t, blocks+capacity)
}

// An index that is made from the entries of another one matches and evicts the same from then on.
func TestEntriesMakeTheSameIndex(t *testing.T) {
	t.Parallel()
	const caches, capacity = 3, 60
	for seed := range uint64(50) { // few steps each, so that there are long runs that later prompts split
		random := rand.New(rand.NewPCG(seed, 2))
		chain := func() []uint64 { // of a small tree
			hashes, last := []uint64{}, uint64(1)
			for range 1 + random.IntN(30) {
				last = mixHashes(last, uint64(random.IntN(20)/19))
				hashes = append(hashes, last)
			}
			return hashes
		}
		x, copied := NewMemoryBudget(plenty).NewIndex(), NewMemoryBudget(plenty).NewIndex()
		handles := map[*Index][]Handle{}
		for _, index := range []*Index{x, copied} {
			for range caches {
				handles[index] = append(handles[index], index.AddCache(capacity))
			}
		}
		step := func(indexes ...*Index) {
			c, prompt, blocks := random.IntN(caches), chain(), random.IntN(4)
			for _, index := range indexes {
				index.UseChain(handles[index][c], prompt)
				index.OccupyBlocks(handles[index][c], blocks)
			}
		}
		for range 20 {
			step(x)
		}
		for _, e := range x.Entries() {
			copied.UseChain(handles[copied][e.Slot], e.Hashes)
			copied.OccupyBlocks(handles[copied][e.Slot], e.Blocks)
		}
		for range 30 {
			for i := range caches {
				want, _ := x.CacheSize(handles[x][i])
				got, _ := copied.CacheSize(handles[copied][i])
				require.Equal(t, want, got)
			}
			prompt := chain()
			require.Equal(t, match(x, prompt), match(copied, prompt))
			step(x, copied)
		}
	}
}
