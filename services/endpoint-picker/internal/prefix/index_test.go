package prefix

import (
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

func (m *model) use(number int, chain []uint64) {
	for _, hash := range slices.Backward(chain) {
		m.clock++
		m.holders[number].used[hash] = m.clock
	}
	m.evict(number)
}

func (m *model) fill(number, blocks int) {
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
	matched := make([]int, x.Len())
	x.Match(chain, matched)
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
		x, m := NewIndex(plenty), &model{}
		for i := range 4 {
			room := int(capacity)/4 + 10*i
			require.Equal(t, i, x.Add(room))
			m.add(room)
		}
		for range 300 {
			number := r.IntN(4)
			switch r.IntN(20) {
			case 0:
				blocks := r.IntN(8)
				x.Fill(number, blocks)
				m.fill(number, blocks)
			case 1:
				room := r.IntN(60)
				x.Resize(number, room)
				m.holders[number].capacity = room
				m.evict(number)
			case 2:
				x.Remove(number)
				require.Equal(t, number, x.Add(40))
				m.holders[number] = &modelHolder{capacity: 40, used: map[uint64]int{}}
			default:
				c := list[r.IntN(len(list))]
				x.Use(number, c)
				m.use(number, c)
			}
			c := list[r.IntN(len(list))]
			require.Equal(t, m.match(c), match(x, c))
		}
		blocks := 0
		for _, h := range m.holders {
			blocks += len(h.used)
		}
		require.Equal(t, blocks, x.Stats().Blocks)
		for number := range 4 {
			x.Remove(number)
		}
		require.Equal(t, Stats{}, x.Stats())
	})
}

func TestIndex_StaysWithinItsBytes(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	r := rand.New(rand.NewPCG(1, 1))
	x := NewIndex(limit)
	a, b := x.Add(plenty), x.Add(plenty)
	for range 20_000 {
		c := []uint64{r.Uint64(), r.Uint64(), r.Uint64()}
		x.Use(a, c)
		x.Use(b, c)
		require.LessOrEqual(t, x.Stats().Bytes, limit)
		require.Equal(t, []int{3, 3}, match(x, c), "the newest is there")
	}
	assert.Greater(t, x.Stats().Bytes, limit/2)
	places := len(x.table.Load().places)
	assert.LessOrEqual(t, places, 8*minTable, "what went leaves no places behind")
}

func TestIndex_ForgetsNothingThatIsNotAsked(t *testing.T) {
	t.Parallel()
	x := NewIndex(plenty)
	a := x.Add(100)
	x.Use(a, nil)
	x.Use(a, []uint64{1, 2, 3})
	x.Remove(a)
	x.Use(a, []uint64{1, 2, 3})
	x.Fill(a, 3)
	assert.Equal(t, Stats{}, x.Stats(), "it went while its request was on its way")
	assert.Equal(t, a, x.Add(100))
	x.Use(a, []uint64{1, 2, 3})
	b := x.Add(100)
	x.Match([]uint64{1, 2, 3}, nil)
	matched := make([]int, 1)
	x.Use(b, []uint64{1, 2})
	x.Match([]uint64{1, 2}, matched)
	assert.Equal(t, []int{2}, matched, "others are left out")
}

func TestIndex_IsReadWhileItChanges(t *testing.T) {
	t.Parallel()
	x := NewIndex(200_000)
	for range 8 {
		x.Add(500)
	}
	list := chains(rand.New(rand.NewPCG(3, 3)), 200)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 2000 {
				c := list[r.IntN(len(list))]
				matched := make([]int, 8)
				x.Match(c, matched)
				for _, n := range matched {
					assert.LessOrEqual(t, n, len(c))
				}
				x.Use(r.IntN(8), c)
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
	x := NewIndex(32 << 20)
	for range servers {
		x.Add(8192)
	}
	chain := func() []uint64 {
		c := slices.Clone(heads[r.IntN(len(heads))])
		for range 10 {
			c = append(c, r.Uint64())
		}
		return c
	}
	for range 20_000 {
		x.Use(r.IntN(servers), chain())
	}
	matched := make([]int, servers)
	b.Run("match", func(b *testing.B) {
		c := chain()
		b.ReportAllocs()
		for b.Loop() {
			clear(matched)
			x.Match(c, matched)
		}
	})
	b.Run("use", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.Use(r.IntN(servers), chain())
		}
	})
}

func TestWhatACacheHolds(t *testing.T) {
	t.Parallel()
	x := NewIndex(1 << 20)
	a, b := x.Add(100), x.Add(10)
	x.Use(a, []uint64{1, 2, 3})
	x.Fill(b, 4)
	x.Use(b, []uint64{1})
	for _, tt := range []struct{ number, blocks, capacity int }{{a, 3, 100}, {b, 5, 10}, {-1, 0, 0}, {2, 0, 0}} {
		blocks, capacity := x.Holds(tt.number)
		assert.Equal(t, tt.blocks, blocks, tt.number)
		assert.Equal(t, tt.capacity, capacity, tt.number)
	}
	x.Remove(a)
	blocks, capacity := x.Holds(a)
	assert.Zero(t, blocks+capacity)
}
