package balancer

import "fairlead.dev/services/endpoint-picker/internal/fading"

const (
	// smoothing is the weight of one request in the means.
	smoothing = 0.01
	// leastTurns is the share of requests that continue a conversation above which any request may start one.
	leastTurns = 0.2
)

// reuse measures the share of prompts that this picker has seen before.
type reuse struct {
	known fading.Mean // tokens of a prompt in any cache
	total fading.Mean // tokens of a prompt
	turns fading.Mean // 1 for each request that continues a conversation, else 0
	all   fading.Mean // 1 for each request
}

// see records a prompt: the tokens in any cache, the tokens of the conversation's history, and all tokens.
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

// again estimates how often a new token will be missed if it is not at its home: once if its prompt is repeated, and once
// more if it belongs to a conversation that will probably continue.
func (r *reuse) again() float64 {
	known, total := r.known.Value(), r.total.Value()
	return min(known/max(total-known, 1), 1) + r.going()
}

// going returns the share of requests that continue a conversation, also after few requests.
func (r *reuse) going() float64 { return r.turns.Value() / max(r.all.Value(), smoothing) }

// conversing reports whether requests are expected to continue as conversations.
func (r *reuse) conversing() bool { return r.going() > leastTurns }
