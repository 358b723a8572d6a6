package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkInvariants fails if a block is lost or has a wrong number of references, or a limit is exceeded.
func checkInvariants(t testing.TB, e *Engine) {
	t.Helper()
	require.LessOrEqual(t, len(e.running), e.spec.MaxNumSeqs)
	require.False(t, !e.stepping && len(e.waiting)+len(e.running) > 0, "engine is idle, but has requests")

	scheduled := 0
	refs := make([]int, e.cache.size())
	for _, r := range e.running {
		scheduled += r.scheduled
		require.GreaterOrEqual(t, len(r.held), e.spec.blocksFor(r.computed+r.scheduled))
		for _, i := range r.held {
			refs[i]++
		}
	}
	require.LessOrEqual(t, scheduled, e.spec.MaxNumBatchedTokens)
	for _, r := range e.waiting {
		require.Empty(t, r.held)
	}
	checkCache(t, e.cache, refs)
}

func checkCache(t testing.TB, c *blockCache, refs []int) {
	t.Helper()
	found := 0
	for i, want := range refs {
		require.Equal(t, want, c.blocks[i].refs, "references of block %d", i)
		if hash := c.blocks[i].hash; hash != 0 {
			found++
			require.Equal(t, int32(i), c.byHash[hash])
		}
	}
	require.Len(t, c.byHash, found)

	ring := 0
	for i := c.blocks[c.head()].next; i != c.head(); i = c.blocks[i].next {
		ring++
		require.LessOrEqual(t, ring, c.size(), "the ring of free blocks is broken")
		require.Zero(t, c.blocks[i].refs)
		require.Equal(t, i, c.blocks[c.blocks[i].next].prev)
	}
	require.Equal(t, c.free, ring)
	held := 0
	for _, n := range refs {
		if n > 0 {
			held++
		}
	}
	require.Equal(t, c.size(), held+ring, "a block is lost")
}

// FuzzEngine interprets bytes as requests, aborts, slowdowns and waits on a server that is too small for them. It checks that each
// request that is not aborted gets all tokens, and that all blocks are free in the end.
func FuzzEngine(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07"))
	f.Add([]byte("zipf zipf zipf, and then an abort; and so on until all is said"))
	f.Add([]byte{0xff, 0, 0xff, 0, 0xff, 0, 3, 9, 3, 9, 3, 9, 250, 250, 250})
	f.Fuzz(func(t *testing.T, script []byte) {
		spec := testSpec
		spec.NumBlocks, spec.MaxModelLen, spec.MaxNumBatchedTokens, spec.MaxLoRAs = 12, 128, 48, 1
		e := New(spec)
		var all []*Request
		now := time.Duration(0)
		for i := 0; i+2 < len(script) && i < 600; i += 3 {
			now += time.Duration(script[i]%32) * ms
			switch kind := script[i] >> 5; {
			case kind == 0 && len(all) > 0:
				e.Abort(now, all[int(script[i+1])%len(all)])
			case kind == 1:
				e.SetSlowdown(float64(1 + script[i+1]%4))
			default:
				r := scriptedRequest(spec, script[i], script[i+1], script[i+2])
				require.NoError(t, e.Submit(now, r))
				all = append(all, r)
			}
			checkInvariants(t, e)
		}
		drain(t, e)
		for _, r := range all {
			p := r.progress()
			require.True(t, p.Ended)
			require.Len(t, p.Times, p.Made)
			require.True(t, p.Reason == ReasonAbort || p.Made == len(r.Output))
		}
		require.Zero(t, e.Stats().BlocksUsed)
	})
}

func scriptedRequest(spec Spec, kind, length, group byte) *Request {
	prompt := join(text(int(group%4), 1+int(length)%64), text(int(group), 1+int(group)%16))
	p := Params{Prompt: prompt, Output: text(-1, 1+int(length)%48), Reason: ReasonLength}
	if kind>>5 == 7 {
		p.Adapter = string(rune('a' + group%3))
	}
	return NewRequest(p, spec.BlockSize)
}
