package estimate

// reuse measures how often prompts recur and conversations continue, among the requests of this picker.
type reuse struct {
	known average // tokens of a prompt in any cache
	total average // tokens of a prompt
	turns average // 1 for each request that continues a conversation, else 0
	all   average // 1 for each request
}

// observe records a prompt: the tokens in any cache, the tokens of the conversation's history, and all tokens.
func (r *reuse) observe(known, history, total int) {
	r.known.observe(float64(known), reuseWeight)
	r.total.observe(float64(total), reuseWeight)
	turn := 0.0
	if history > 0 {
		turn = 1
	}
	r.turns.observe(turn, reuseWeight)
	r.all.observe(1, reuseWeight)
}

// recomputations estimates how often a new token will be computed again if its prompt is not placed on its owner: the
// probability that the prompt recurs, plus the probability that its conversation continues.
func (r *reuse) recomputations() float64 {
	known, total := r.known.value(), r.total.value()
	return min(known/max(total-known, 1), 1) + r.continuation()
}

// continuation returns the share of requests that continue a conversation, also after few requests.
func (r *reuse) continuation() float64 { return r.turns.value() / max(r.all.value(), reuseWeight) }

// conversational reports whether any request may begin a conversation.
func (r *reuse) conversational() bool { return r.continuation() > minContinuation }
