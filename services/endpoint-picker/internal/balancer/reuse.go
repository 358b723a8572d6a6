package balancer

import (
	"math"
	"sync/atomic"
)

// smoothing is how much one request counts in the mean of all.
const smoothing = 0.01

// reuse is how much of prompts has come before, as far as this picker has seen it. Of two picks at once one may be lost.
type reuse struct {
	known atomic.Uint64 // bits of a float: mean tokens of a prompt that are in some cache
	total atomic.Uint64 // likewise, tokens of a prompt
	turns atomic.Uint64 // likewise, part of the requests that go on with a conversation
}

// see takes a prompt: how much of it is in some cache, how much is a conversation's history, and how much there is.
func (r *reuse) see(known, history, total int) {
	fade(&r.known, float64(known))
	fade(&r.total, float64(total))
	turn := 0.0
	if history > 0 {
		turn = 1
	}
	fade(&r.turns, turn)
}

func fade(mean *atomic.Uint64, value float64) {
	last := math.Float64frombits(mean.Load())
	mean.Store(math.Float64bits(last + smoothing*(value-last)))
}

// again is how many times a token that is new will be missed where it is not expected: once at most, if it comes again at
// all, and once more if it is said in a conversation, which most likely goes on if most requests go on with one.
func (r *reuse) again() float64 {
	known, total := math.Float64frombits(r.known.Load()), math.Float64frombits(r.total.Load())
	return min(known/max(total-known, 1), 1) + math.Float64frombits(r.turns.Load())
}
