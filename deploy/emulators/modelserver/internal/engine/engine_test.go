package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/steptime"
)

// testSpec has round numbers: a step takes 10 ms, plus 1 ms for each decoding request and 0.1 ms for each prompt token.
var testSpec = Spec{
	MaxNumSeqs: 4, MaxNumBatchedTokens: 1000, NumBlocks: 100, BlockSize: 16, MaxModelLen: 1600, MaxLoRAs: 2,
	Law:   steptime.Law{Base: 10 * time.Millisecond, PerSeq: time.Millisecond, PerToken: 100 * time.Microsecond},
	Speed: 1,
}

const ms = time.Millisecond

// text returns n tokens that are different for each seed.
func text(seed, n int) []uint32 { return tokens.FourBytes{}.Generate(uint64(seed), n) }

func newRequest(prompt []uint32, out int) *Request {
	return NewRequest(Params{Prompt: prompt, Output: text(-1, out), Reason: ReasonLength, Choices: 1}, testSpec.BlockSize)
}

// submit enqueues requests at time at.
func submit(t *testing.T, e *Engine, at time.Duration, requests ...*Request) {
	t.Helper()
	for _, r := range requests {
		require.NoError(t, e.Submit(at, r))
	}
}

// drain runs the engine until it is idle, and returns the end of the last step.
func drain(t *testing.T, e *Engine) time.Duration {
	t.Helper()
	end := time.Duration(0)
	for range 100_000 {
		next, busy := e.Next()
		if !busy {
			return end
		}
		end = next
		e.Advance(next)
		checkInvariants(t, e)
	}
	require.FailNow(t, "engine did not become idle")
	return 0
}

func TestOneRequestTakesTheTimeOfTheFormula(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		prompt, out int
		change      func(*Spec)
		slowdown    float64
		want        []time.Duration
	}{
		{"prefill then decode", 50, 3, func(*Spec) {}, 1, []time.Duration{15 * ms, 26 * ms, 37 * ms}},
		{"one token ends with the prefill", 1, 1, func(*Spec) {}, 1, []time.Duration{10*ms + 100*time.Microsecond}},
		{"prefill in chunks", 50, 2, func(s *Spec) { s.MaxNumBatchedTokens = 20 }, 1, []time.Duration{35 * ms, 46 * ms}},
		{"a quarter of the speed", 50, 2, func(s *Spec) { s.Speed = 0.25 }, 1, []time.Duration{60 * ms, 104 * ms}},
		{"slowed down", 50, 2, func(*Spec) {}, 3, []time.Duration{45 * ms, 78 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := testSpec
			tt.change(&spec)
			e := New(spec)
			e.SetSlowdown(tt.slowdown)
			r := newRequest(text(1, tt.prompt), tt.out)
			submit(t, e, 0, r)
			drain(t, e)
			assert.Equal(t, Progress{Made: tt.out, Times: tt.want, Ended: true, Reason: ReasonLength}, r.progress())
		})
	}
}

func TestStepGrowsWithTheDecodingRequests(t *testing.T) {
	t.Parallel()
	for n := 1; n <= testSpec.MaxNumSeqs; n++ {
		e := New(testSpec)
		var all []*Request
		for i := range n {
			all = append(all, newRequest(text(i, 10), 3))
		}
		submit(t, e, 0, all...)
		drain(t, e)
		// The first request starts alone. Prefill of the others is in its second step. All requests decode in the third step.
		times := all[n-1].progress().Times
		assert.Equal(t, 10*ms+time.Duration(n)*ms, times[1]-times[0], "%d requests", n)
	}
}

func TestCacheHitsShortenPrefill(t *testing.T) {
	t.Parallel()
	shared := text(1, 64)
	answer := text(-1, 20)
	tests := []struct {
		name   string
		first  Params
		second Params
		cached int
		ttft   time.Duration
	}{
		{"the same prompt, all but its last block", Params{Prompt: shared}, Params{Prompt: shared}, 48, 10*ms + 1600*time.Microsecond},
		{"a longer prompt", Params{Prompt: shared}, Params{Prompt: join(shared, text(2, 6))}, 64, 10*ms + 600*time.Microsecond},
		{"another prompt", Params{Prompt: shared}, Params{Prompt: text(3, 64)}, 0, 10*ms + 6400*time.Microsecond},
		{"a prompt that differs in its second block", Params{Prompt: shared}, Params{Prompt: join(shared[:17], text(3, 47))}, 16,
			10*ms + 4800*time.Microsecond},
		{"the next turn finds the answer too", Params{Prompt: shared}, Params{Prompt: join(shared, answer, text(4, 6))}, 80,
			11 * ms},
		{"another tenant", Params{Prompt: shared, Salt: "a"}, Params{Prompt: shared, Salt: "b"}, 0, 10*ms + 6400*time.Microsecond},
		{"another adapter", Params{Prompt: shared}, Params{Prompt: shared, Adapter: "a"}, 0, 10*ms + 6400*time.Microsecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := New(testSpec)
			tt.first.Output, tt.second.Output = answer, answer[:1]
			first, second := NewRequest(tt.first, testSpec.BlockSize), NewRequest(tt.second, testSpec.BlockSize)
			submit(t, e, 0, first)
			submit(t, e, drain(t, e), second)
			drain(t, e)
			got := second.progress()
			assert.Equal(t, tt.cached, got.Cached)
			assert.Equal(t, tt.ttft, got.Times[0])
			s := e.Stats()
			assert.EqualValues(t, len(tt.first.Prompt)+len(tt.second.Prompt), s.PrefixCacheQueries)
			assert.EqualValues(t, tt.cached, s.PrefixCacheHits)
		})
	}
}

func TestRequestsOfOneStepShareTheirPrefix(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	shared := text(1, 64)
	first := newRequest(text(9, 1), 1)
	a, b := newRequest(join(shared, text(2, 16)), 2), newRequest(join(shared, text(3, 16)), 2)
	submit(t, e, 0, first, a, b)
	e.Advance(11 * ms) // a and b are in the current step
	assert.Equal(t, 0, a.progress().Cached)
	assert.Equal(t, 64, b.progress().Cached)
	assert.Equal(t, 4+1+1, e.Stats().BlocksUsed, "a shared block counts once")
	drain(t, e)
	assert.Equal(t, 0, e.Stats().BlocksUsed)
}

func TestEvictionTakesTailsOfTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		touch        int // index of the prompt that is requested again before the pressure, or -1
		need         int // blocks of the last request; two blocks are empty
		wantA, wantB int // remaining cached blocks of each prompt
	}{
		{"no pressure", -1, 2, 3, 3},
		{"one block", -1, 3, 2, 3},
		{"two blocks", -1, 4, 1, 3},
		{"four blocks", -1, 6, 0, 2},
		{"two blocks after a was used again", 0, 3, 3, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := testSpec
			spec.NumBlocks, spec.MaxModelLen = 8, 128
			e := New(spec)
			prompts := [][]uint32{text(1, 48), text(2, 48)}
			now := time.Duration(0)
			ask := func(prompt []uint32) {
				submit(t, e, now, newRequest(prompt, 1))
				now = drain(t, e)
			}
			ask(prompts[0])
			ask(prompts[1])
			if tt.touch >= 0 {
				ask(join(prompts[tt.touch], text(5, 1)))
			}
			ask(text(3, tt.need*16))
			assert.Equal(t, tt.wantA, e.cache.match(newRequest(prompts[0], 1).chain))
			assert.Equal(t, tt.wantB, e.cache.match(newRequest(prompts[1], 1).chain))
		})
	}
}

func TestIdleEngineDoesNothing(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	_, busy := e.Next()
	assert.False(t, busy)
	submit(t, e, time.Second, newRequest(text(1, 10), 2))
	drain(t, e)
	steps := e.Stats().Steps
	e.Advance(time.Hour)
	assert.Equal(t, steps, e.Stats().Steps)
	r := newRequest(text(2, 10), 1)
	submit(t, e, 2*time.Hour, r)
	drain(t, e)
	assert.Equal(t, 11*ms, r.progress().Times[0], "an idle engine starts immediately")
}

// The result must not depend on the delay of calls.
func TestLateCallsChangeNothing(t *testing.T) {
	t.Parallel()
	run := func(punctual bool) string {
		e := New(testSpec)
		var all []*Request
		for i := range 20 {
			r := newRequest(text(i%5, 30+i), 5+i)
			all = append(all, r)
			at := time.Duration(i) * 7 * ms
			for next, busy := e.Next(); punctual && busy && next <= at; next, busy = e.Next() {
				e.Advance(next)
			}
			submit(t, e, at, r)
		}
		e.Advance(time.Hour)
		out := fmt.Sprintf("%+v", e.Stats())
		for _, r := range all {
			out += fmt.Sprintf("%+v", r.progress())
		}
		return out
	}
	assert.Equal(t, run(true), run(false))
}

func TestNotifyFollowsEveryChange(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	var seen []int
	r := newRequest(text(1, 10), 3)
	r.Notify = func() { seen = append(seen, r.made) }
	submit(t, e, 0, r)
	drain(t, e)
	assert.Equal(t, []int{1, 2, 3}, seen)
}

func TestHistogramsCountWhatHappened(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	r := NewRequest(Params{Prompt: text(1, 50), Output: text(2, 3), Reason: ReasonStop, MaxTokens: 7, Choices: 2}, 16)
	submit(t, e, 0, r)
	drain(t, e)
	s := e.Stats()
	sums := map[string]float64{
		"ttft": s.TimeToFirstToken.Sum, "itl": s.InterTokenLatency.Sum, "tpot": s.TimePerOutputToken.Sum, "e2e": s.E2ELatency.Sum,
		"inference": s.InferenceTime.Sum, "prefill": s.PrefillTime.Sum, "decode": s.DecodeTime.Sum, "iteration": s.IterationTokens.Sum,
		"prompt": s.RequestPromptTokens.Sum, "computed": s.RequestComputedTokens.Sum, "generation": s.RequestGenerationTokens.Sum,
		"n": s.RequestN.Sum, "max": s.RequestMaxTokens.Sum,
	}
	want := map[string]float64{
		"ttft": 0.015, "itl": 0.022, "tpot": 0.011, "e2e": 0.037, "inference": 0.037, "prefill": 0.015, "decode": 0.022,
		"iteration": 53, "prompt": 50, "computed": 50, "generation": 3, "n": 2, "max": 7,
	}
	assert.InDeltaMapValues(t, want, sums, 1e-9)
	assert.Equal(t, map[FinishReason]uint64{ReasonStop: 1}, s.Finished)
	assert.EqualValues(t, 1, s.TimeToFirstToken.Counts[3], "15 ms is in the bucket up to 20 ms")
}

func TestStatsAreACopy(t *testing.T) {
	t.Parallel()
	e := New(testSpec)
	before := e.Stats()
	submit(t, e, 0, newRequest(text(1, 10), 2))
	drain(t, e)
	assert.Zero(t, before.TimeToFirstToken.Count())
	assert.Empty(t, before.Finished)
	after := e.Stats()
	assert.EqualValues(t, 1, after.TimeToFirstToken.Count())
	assert.Equal(t, []uint64{10, 2}, []uint64{after.PromptTokens, after.GenerationTokens})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, testSpec.Validate())
	tests := []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"no time passes", func(s *Spec) { s.Law.Base = 0 }, "base time of a step must be positive"},
		{"negative time", func(s *Spec) { s.Law.PerSeq = -1 }, "must not be negative"},
		{"no speed", func(s *Spec) { s.Speed = 0 }, "speed must be positive"},
		{"a batch below the running limit", func(s *Spec) { s.MaxNumBatchedTokens = 3 }, "is below max-num-seqs 4"},
		{"a request larger than the cache", func(s *Spec) { s.NumBlocks = 99 }, "exceeds the KV cache of 1584 tokens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := testSpec
			tt.change(&spec)
			assert.ErrorContains(t, spec.Validate(), tt.want)
		})
	}
}

func join(parts ...[]uint32) []uint32 {
	var all []uint32
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
