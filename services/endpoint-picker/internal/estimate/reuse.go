package estimate

// reuseStats measures how often prompts recur and conversations continue, among the requests of this picker.
type reuseStats struct {
	known    movingAverage // tokens of a prompt in any cache
	total    movingAverage // tokens of a prompt
	turns    movingAverage // 1 for each request that continues a conversation, else 0
	requests movingAverage // 1 for each request
}

// observePrompt records a prompt: the tokens in any cache, the tokens of the conversation's history, and all tokens.
func (r *reuseStats) observePrompt(known, history, total int) {
	r.known.addSample(float64(known), reuseWeight)
	r.total.addSample(float64(total), reuseWeight)
	turn := 0.0
	if history > 0 {
		turn = 1
	}
	r.turns.addSample(turn, reuseWeight)
	r.requests.addSample(1, reuseWeight)
}

// recomputationRate estimates how often a new token will be computed again if its prompt is not placed on its owner: the
// probability that the prompt recurs, plus the probability that its conversation continues.
func (r *reuseStats) recomputationRate() float64 {
	known, total := r.known.Load(), r.total.Load()
	return min(known/max(total-known, 1), 1) + r.continuationRate()
}

// continuationRate returns the share of requests that continue a conversation, also after few requests.
func (r *reuseStats) continuationRate() float64 {
	return r.turns.Load() / max(r.requests.Load(), reuseWeight)
}

// isConversational reports whether any request may begin a conversation.
func (r *reuseStats) isConversational() bool { return r.continuationRate() > minContinuation }
