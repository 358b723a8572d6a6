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
}

// see takes a prompt and how much of it is in some cache.
func (r *reuse) see(known, total int) {
	fade(&r.known, float64(known))
	fade(&r.total, float64(total))
}

func fade(mean *atomic.Uint64, value float64) {
	last := math.Float64frombits(mean.Load())
	mean.Store(math.Float64bits(last + smoothing*(value-last)))
}

// again is how many times a token that is new comes again, on the average.
func (r *reuse) again() float64 {
	known, total := math.Float64frombits(r.known.Load()), math.Float64frombits(r.total.Load())
	return known / max(total-known, 1)
}
