package estimate

import "fairlead.dev/services/endpoint-picker/internal/ewma"

// reuse measures how often prompts recur and conversations continue, among the requests of this picker.
type reuse struct {
	known ewma.Mean // tokens of a prompt in any cache
	total ewma.Mean // tokens of a prompt
	turns ewma.Mean // 1 for each request that continues a conversation, else 0
	all   ewma.Mean // 1 for each request
}

// observe records a prompt: the tokens in any cache, the tokens of the conversation's history, and all tokens.
func (r *reuse) observe(known, history, total int) {
	r.known.Observe(float64(known), reuseWeight)
	r.total.Observe(float64(total), reuseWeight)
	turn := 0.0
	if history > 0 {
		turn = 1
	}
	r.turns.Observe(turn, reuseWeight)
	r.all.Observe(1, reuseWeight)
}

// recomputations estimates how often a new token will be computed again if its prompt is not placed on its owner: the
// probability that the prompt recurs, plus the probability that its conversation continues.
func (r *reuse) recomputations() float64 {
	known, total := r.known.Value(), r.total.Value()
	return min(known/max(total-known, 1), 1) + r.continuation()
}

// continuation returns the share of requests that continue a conversation, also after few requests.
func (r *reuse) continuation() float64 { return r.turns.Value() / max(r.all.Value(), reuseWeight) }

// conversational reports whether any request may begin a conversation.
func (r *reuse) conversational() bool { return r.continuation() > minContinuation }
