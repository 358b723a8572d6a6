package balancer

import "fairlead.dev/services/endpoint-picker/internal/fading"

const (
	// smoothing is how much one request counts in the mean of all.
	smoothing = 0.01
	// leastTurns is the part of the requests that go on with a conversation from which on every request may be one's first.
	leastTurns = 0.2
)

// reuse is how much of prompts has come before, as far as this picker has seen it.
type reuse struct {
	known fading.Mean // tokens of a prompt that are in some cache
	total fading.Mean // tokens of a prompt
	turns fading.Mean // 1 for each request that goes on with a conversation, else 0
	all   fading.Mean // 1 for each request
}

// see takes a prompt: how much of it is in some cache, how much is a conversation's history, and how much there is.
func (r *reuse) see(known, history, total int) {
	r.known.See(float64(known), smoothing)
	r.total.See(float64(total), smoothing)
	turn := 0.0
	if history > 0 {
		turn = 1
	}
	r.turns.See(turn, smoothing)
	r.all.See(1, smoothing)
}

// again is how many times a token that is new will be missed where it is not expected: once at most, if it comes again at
// all, and once more if it is said in a conversation, which most likely goes on if most requests go on with one.
func (r *reuse) again() float64 {
	known, total := r.known.Value(), r.total.Value()
	return min(known/max(total-known, 1), 1) + r.going()
}

// going is the part of the requests that go on with a conversation, also while few have been seen.
func (r *reuse) going() float64 { return r.turns.Value() / max(r.all.Value(), smoothing) }

// conversing reports whether a request is to be expected to go on.
func (r *reuse) conversing() bool { return r.going() > leastTurns }
