package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRequestsBeyondTheRunningLimitQueue(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.MaxNumSeqs = 2
	e := New(spec)
	a, b, c := newRequest(text(1, 10), 2), newRequest(text(2, 10), 5), newRequest(text(3, 10), 1)
	submit(t, e, 0, a, b, c)
	e.Advance(12 * ms)
	s := e.Stats()
	assert.Equal(t, []int{2, 1}, []int{s.Running, s.Waiting})
	e.Advance(23 * ms) // a has its second token, c took its place
	s = e.Stats()
	assert.True(t, a.progress().Ended)
	assert.Equal(t, []int{2, 0}, []int{s.Running, s.Waiting})
	drain(t, e)
	assert.InDelta(t, (23 * ms).Seconds(), c.started.Seconds(), 1e-9)
	s = e.Stats()
	assert.InDelta(t, 0.023+0.011, s.QueueTime.Sum, 1e-9, "c and b waited")
	assert.EqualValues(t, 3, s.QueueTime.Count())
}

func TestDecodingGoesBeforePrefill(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.MaxNumBatchedTokens = 40
	e := New(spec)
	a, b := newRequest(text(1, 10), 10), newRequest(text(2, 100), 1)
	submit(t, e, 0, a, b)
	drain(t, e)
	// Each step has one token of a and up to 39 tokens of b's prompt: 39, 39, 22.
	assert.Equal(t, 11*ms+2*(11*ms+3900*time.Microsecond)+11*ms+2200*time.Microsecond, b.progress().Times[0])
	assert.Equal(t, 11*ms+14900*time.Microsecond, a.progress().Times[1])
}

func TestAbortFreesBlocksAndPlace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		at    time.Duration
		abort int
		want  []bool // the request gets all tokens
	}{
		{"before its first token", 5 * ms, 0, []bool{false, true, true}},
		{"while it decodes", 30 * ms, 0, []bool{false, true, true}},
		{"while it waits", 5 * ms, 2, []bool{true, true, false}},
		{"after its end", time.Hour, 1, []bool{true, true, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := testSpec
			spec.MaxNumSeqs = 2
			e := New(spec)
			all := []*Request{newRequest(text(1, 100), 6), newRequest(text(2, 100), 6), newRequest(text(3, 100), 6)}
			submit(t, e, 0, all...)
			e.Advance(tt.at)
			before, _ := e.Next()
			e.Abort(tt.at, all[tt.abort])
			checkInvariants(t, e)
			after, _ := e.Next()
			assert.Equal(t, before, after, "the length of the current step does not change")
			drain(t, e)
			aborted := uint64(0)
			for i, r := range all {
				assert.Equal(t, tt.want[i], r.progress().Made == 6, "request %d", i)
				if !tt.want[i] {
					aborted++
					assert.Equal(t, ReasonAbort, r.progress().Reason)
				}
			}
			s := e.Stats()
			assert.Equal(t, aborted, s.Finished[ReasonAbort])
			assert.Equal(t, 3-aborted, s.Finished[ReasonLength])
			assert.Equal(t, []int{0, 0, 0}, []int{s.Running, s.Waiting, s.BlocksUsed})
		})
	}
}

func TestNobodyStartsInAFullStep(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.MaxNumBatchedTokens = 40
	e := New(spec)
	a, b := newRequest(text(1, 60), 1), newRequest(text(2, 10), 1)
	submit(t, e, 0, a, b)
	e.Advance(13 * ms) // a is in its first chunk of 40 tokens
	s := e.Stats()
	assert.Equal(t, []int{1, 1}, []int{s.Running, s.Waiting})
	e.Advance(14 * ms) // and now in its second, of 20
	s = e.Stats()
	assert.Equal(t, []int{2, 0}, []int{s.Running, s.Waiting})
	drain(t, e)
}

func TestPreemptedRequestGoesBeforeThoseThatNeverRan(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.NumBlocks, spec.MaxModelLen, spec.MaxNumSeqs = 6, 96, 2
	e := New(spec)
	a, b, c := newRequest(text(1, 40), 50), newRequest(text(2, 40), 20), newRequest(text(3, 10), 1)
	submit(t, e, 0, a, b, c)
	drain(t, e)
	assert.EqualValues(t, 1, e.Stats().Preemptions)
	assert.Equal(t, a.progress().Times[49], c.started, "c waits, although the blocks of b would be enough")
}

func TestPreemptionGivesMemoryToTheOldest(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.NumBlocks, spec.MaxModelLen = 6, 96
	e := New(spec)
	a, b := newRequest(text(1, 40), 50), newRequest(text(2, 40), 20)
	submit(t, e, 0, a, b)
	drain(t, e)
	assert.Equal(t, []int{50, 20}, []int{a.progress().Made, b.progress().Made})
	s := e.Stats()
	assert.EqualValues(t, 1, s.Preemptions)
	assert.EqualValues(t, 70, s.GenerationTokens)
	assert.EqualValues(t, 80, s.PrefixCacheQueries, "a request queries the cache once")
	// a never waits: each step makes one of its tokens, and at most b also decodes.
	times := a.progress().Times
	for i := 2; i < len(times); i++ {
		assert.LessOrEqual(t, times[i]-times[i-1], 12*ms)
	}
}

func TestAdapterWithoutPlaceLetsOthersPass(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.MaxLoRAs = 1
	e := New(spec)
	with := func(adapter string, seed int) *Request {
		return NewRequest(Params{Prompt: text(seed, 10), Output: text(-1, 3), Adapter: adapter}, spec.BlockSize)
	}
	a, b, base := with("a", 1), with("b", 2), with("", 3)
	submit(t, e, 0, a, b, base)
	e.Advance(11 * ms)
	s := e.Stats()
	assert.Equal(t, []string{"a"}, s.RunningAdapters)
	assert.Equal(t, []string{"b"}, s.WaitingAdapters)
	assert.Equal(t, 2, s.Running, "the request for the base model passed")
	drain(t, e)
	assert.Equal(t, a.arrived+a.progress().Times[2], b.started)
}

func TestTooLongRequestIsRefused(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	require.ErrorIs(t, e.Submit(0, newRequest(text(1, 1599), 2)), ErrTooLong)
	require.NoError(t, e.Submit(0, newRequest(text(1, 1599), 1)))
	drain(t, e)
}
