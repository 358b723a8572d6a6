package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A decoding request reads its whole context: the prompt and the answer so far. A prompt token attends to itself and to all
// tokens before it.
func TestStepGrowsWithTheContext(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.Law.PerContext, spec.Law.PerMegaPair = 100*time.Microsecond, 1000*ms
	e := New(spec)
	r := newRequest(text(1, 50), 3)
	submit(t, e, 0, r)
	drain(t, e)
	pairs := time.Duration(50*51/2) * time.Microsecond
	first := 15*ms + pairs
	assert.Equal(t, []time.Duration{first, first + 11*ms + 5100*time.Microsecond, first + 22*ms + 10300*time.Microsecond}, r.progress().Times)

	start, _ := e.Next()
	again := newRequest(text(1, 50), 1) // 48 of its tokens are cached
	submit(t, e, start, again)
	drain(t, e)
	assert.Equal(t, 10200*time.Microsecond+time.Duration(2*48+3)*time.Microsecond, again.progress().Times[0])
}

func TestNoiseFollowsTheSeed(t *testing.T) {
	t.Parallel()
	times := func(seed uint64) []time.Duration {
		spec := testSpec
		spec.Law.Noise, spec.Seed = 0.1, seed
		e := New(spec)
		r := newRequest(text(1, 50), 20)
		submit(t, e, 0, r)
		drain(t, e)
		return r.progress().Times
	}
	assert.Equal(t, times(1), times(1))
	assert.NotEqual(t, times(1), times(2))
	assert.InEpsilon(t, 15*ms+19*11*ms, times(1)[19], 0.1)
}

// Stale gauges show changes during a step only after the step.
func TestStaleGauges(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.StaleGauges, spec.MaxNumSeqs = true, 2
	e := New(spec)
	requests := []*Request{newRequest(text(1, 50), 3), newRequest(text(2, 50), 3), newRequest(text(3, 50), 3)}
	shown := func(at time.Duration) []int {
		e.Advance(at)
		s := e.Stats()
		return []int{s.Running, s.Waiting, s.BlocksUsed}
	}
	submit(t, e, 0, requests...)
	assert.Equal(t, []int{0, 0, 0}, shown(14*ms), "the first step has not ended")
	assert.Equal(t, []int{1, 0, 4}, shown(15*ms), "the step started with one request")
	assert.Equal(t, []int{1, 0, 4}, shown(30*ms))
	assert.Equal(t, []int{2, 1, 8}, shown(31*ms), "15 ms and another 10 + 1 + 5 ms")
	e.Abort(32*ms, requests[2])
	assert.Equal(t, []int{2, 1, 8}, shown(33*ms), "the step has not ended")
	e.Abort(34*ms, requests[1])
	e.Abort(34*ms, requests[0])
	assert.Equal(t, []int{0, 0, 0}, shown(34*ms), "an idle engine shows no requests")
}
