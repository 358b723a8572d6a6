package prefixindex

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
)

func hashes(seed uint64, limit int, write func(c *Chain)) []uint64 {
	var c Chain
	c.Reset(seed, limit)
	write(&c)
	return c.Hashes
}

func TestChain_DoesNotDependOnHowTextIsCut(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog ", 40))
	want := hashes(1, 1000, func(c *Chain) { c.Write(text) })
	assert.Len(t, want, len(text)/64)
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		got := hashes(1, 1000, func(c *Chain) {
			for rest := text; len(rest) > 0; {
				n := r.IntN(min(len(rest), 200) + 1)
				c.Write(rest[:n])
				rest = rest[n:]
			}
		})
		assert.Equal(t, want, got)
	}
}

func TestChain_AHashStandsForAllBeforeIt(t *testing.T) {
	t.Parallel()
	block := func(s string) []byte { return bytes.Repeat([]byte(s), 64) }
	a := hashes(1, 10, func(c *Chain) { c.Write(block("a")); c.Write(block("b")); c.Write(block("c")) })
	b := hashes(1, 10, func(c *Chain) { c.Write(block("a")); c.Write(block("x")); c.Write(block("c")) })
	other := hashes(2, 10, func(c *Chain) { c.Write(block("a")) })
	assert.Equal(t, a[0], b[0])
	assert.NotEqual(t, a[1], b[1])
	assert.NotEqual(t, a[2], b[2])
	assert.NotEqual(t, a[0], other[0], "of another model")
	assert.Equal(t, a[:2], hashes(1, 2, func(c *Chain) { c.Write(block("a")); c.Write(block("b")); c.Write(block("c")) }), "limit")
}

func TestChain_OfTokenIDs(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprint(i*1000))
	}
	want := hashes(1, 10, func(c *Chain) { c.WriteIDs([]byte("[" + strings.Join(ids, ",") + "]")) })
	assert.Len(t, want, 2, "16 tokens each")
	assert.Equal(t, want, hashes(1, 10, func(c *Chain) { c.WriteIDs([]byte("[ " + strings.Join(ids, " ,\n ") + "\n]")) }), "space does not count")
	assert.Equal(t, want[:1], hashes(1, 10, func(c *Chain) { c.WriteIDs([]byte(strings.Join(ids[:16], ","))) }))
	assert.Empty(t, hashes(1, 10, func(c *Chain) { c.WriteIDs([]byte("[]")) }))
}

func TestChain_ValuesTakeTheirSizeNotTheirBytes(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("a", 100))
	with := func(image string, tokens int) []uint64 {
		return hashes(1, 1000, func(c *Chain) {
			c.Write(text)
			c.WriteValue(xxhash.Sum64String(image), 4*tokens)
			c.Write(text)
			c.Write(text)
		})
	}
	large, other, none := with(strings.Repeat("A", 500<<10), 576), with("B", 576), with("C", 0)
	assert.Len(t, large, (3*100+4*576)/64)
	assert.Len(t, other, len(large), "whatever their size")
	assert.Len(t, none, 3*100/64)
	assert.Equal(t, large, with(strings.Repeat("A", 500<<10), 576))
	assert.Equal(t, large[0], other[0], "the text before")
	for i := range large[1:] {
		assert.NotEqual(t, large[1+i], other[1+i])
	}
	assert.NotEqual(t, none[1], hashes(1, 1000, func(c *Chain) { c.Write(text); c.Write(text) })[1], "media without tokens count, too")
	assert.Equal(t, large[:10], hashes(1, 10, func(c *Chain) { c.Write(text); c.WriteValue(xxhash.Sum64String(strings.Repeat("A", 500<<10)), 4*576) }))
}

func TestChain_StopsAtItsLimit(t *testing.T) {
	t.Parallel()
	ids := []byte(strings.Repeat("1,", 1<<20))
	for name, write := range map[string]func(c *Chain){
		"text":   func(c *Chain) { c.Write(ids) },
		"ids":    func(c *Chain) { c.WriteIDs(ids) },
		"packed": func(c *Chain) { c.WritePacked(ids) },
		"value":  func(c *Chain) { c.WriteValue(1, 4<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Chain
			for range 2 {
				c.Reset(1, 1000)
				write(&c)
				write(&c)
				assert.Len(t, c.Hashes, 1000)
				assert.Equal(t, 1000, cap(c.Hashes))
				assert.LessOrEqual(t, cap(c.rest), 2*blockBytes)
			}
			c.Reset(1, 0)
			write(&c)
			assert.Empty(t, c.Hashes)
		})
	}
}

func TestChain_DropsOnlyLargeMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ limit, want int }{{limit: pooledBlocks, want: pooledBlocks}, {limit: pooledBlocks + 1}} {
		var c Chain
		c.Reset(1, tt.limit)
		c.Write(make([]byte, 1<<20))
		c.DropLarge()
		assert.Equal(t, tt.want, cap(c.Hashes))
		c.Reset(1, 10)
		c.Write(make([]byte, 1<<20))
		assert.Len(t, c.Hashes, 10)
	}
}

func TestSeed(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, Seed("a", 1), Seed("b", 1))
	assert.NotEqual(t, Seed("a", 1), Seed("a", 2))
}

func BenchmarkChain(b *testing.B) {
	text := []byte(strings.Repeat("word ", 67_000/5))
	var c Chain
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		c.Reset(1, 8192)
		c.Write(text)
	}
}

// TestChain_WriteHash has blocks of which only hashes are known.
func TestChain_WriteHash(t *testing.T) {
	t.Parallel()
	chain := func(seed uint64, limit, n int, hashes ...uint64) []uint64 {
		var c Chain
		c.Reset(seed, limit)
		for _, h := range hashes {
			c.WriteHash(h, n)
		}
		return c.Hashes
	}
	whole := chain(1, 100, 1, 7, 8, 9)
	assert.Len(t, whole, 3)
	assert.Equal(t, whole[:2], chain(1, 100, 1, 7, 8, 10)[:2])
	assert.NotEqual(t, whole[2], chain(1, 100, 1, 7, 8, 10)[2])
	assert.NotEqual(t, whole[2], chain(1, 100, 1, 6, 8, 9)[2], "a block stands for all before it, too")
	assert.NotEqual(t, whole[0], chain(2, 100, 1, 7)[0], "another model")
	large := chain(1, 100, 4, 7, 8)
	assert.Len(t, large, 8)
	assert.NotEqual(t, large[0], large[1])
	assert.Len(t, chain(1, 6, 4, 7, 8), 6, "the limit is within a block")
	seed := Seed("m", 0)
	assert.NotEqual(t, seed, SeedHashes(seed))
}
