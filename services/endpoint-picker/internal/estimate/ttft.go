package estimate

import (
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Costs are the learned costs of a pool's model: seconds per unit, and hit rates of cached tokens that are only expected.
type Costs struct {
	Base            float64 // minimum TTFT
	PerDecoding     float64 // increase per decoding request
	PerOther        float64 // increase per request of other replicas
	PerToken        float64 // increase per uncached prompt token
	PerPair         float64 // increase per pair of an uncached prompt token and one before it: attention
	ExpectedHitRate float64 // share of the tokens expected at the owner that is in its cache
	HistoryHitRate  float64 // the same for tokens of a conversation's history
}

// A Prefill is the work for a request before its first token.
type Prefill struct {
	Tokens   int // not known to be in the server's cache
	Expected int // of them, in its cache if other replicas sent their requests to the owner
	History  int // the same, for tokens of a previous prompt and its answer
	Context  int // tokens of the prompt in the cache, before the others
}

// pairCount returns the number of pairs of a token to compute and one before it, with as many tokens to compute.
func (p *Prefill) pairCount(tokens float64) float64 {
	return tokens * (float64(p.Context+p.Tokens) - tokens/2)
}

// uncachedTokens estimates the number of prompt tokens to compute: at least one.
func (c *Costs) uncachedTokens(p Prefill) float64 {
	return max(c.estimateUncached(float64(p.Tokens), float64(p.Expected), float64(p.History)), 1)
}

func (c *Costs) estimateUncached(tokens, expected, history float64) float64 {
	return tokens - c.ExpectedHitRate*expected - c.HistoryHitRate*history
}

// prefillWork returns the work of a prefill, as the number of tokens of a short prompt that cost as much.
func (c *Costs) prefillWork(p Prefill) float64 {
	tokens := c.uncachedTokens(p)
	return tokens + p.pairCount(tokens)*c.PerPair/c.PerToken
}

// estimateTTFT returns the TTFT for an amount of work, without a slowdown.
func (c *Costs) estimateTTFT(decoding, others, work float64) float64 {
	return c.Base + c.PerDecoding*decoding + c.PerOther*others + c.PerToken*work
}

// serverLoad is the load of a server according to its page, for all its requests.
type serverLoad struct {
	others   float64 // requests of other replicas
	requests float64 // all requests, updated with our own that began or ended since
	waiting  float64 // requests in its queue, if there was a queue; updated in the same way
	running  float64 // requests in its batch
	kvUsage  float64 // share of its KV cache in use
	rate     float64 // finished requests per second; 0 if unknown
}

// estimateTTFT estimates the seconds to first token of a request that is placed now.
func (s *Server) estimateTTFT(now endpoint.Monotonic, c *Costs, p Prefill, l *endpoint.Load) float64 {
	load := serverLoad{
		others: l.OtherRequests(), requests: max(l.Sample.RequestCount()+l.Since, 0), running: l.Running, kvUsage: l.KVUsage,
		rate: s.completions.Load(),
	}
	if l.Waiting > 0 {
		load.waiting = max(l.Waiting+l.Since, 0)
	}
	return s.computeTTFT(now, c, p, load)
}

// computeTTFT computes estimateTTFT. If there is a queue, it adds the cost for others: the prompt delays later requests, and while a queue
// lasts as many requests arrive as are in it.
func (s *Server) computeTTFT(now endpoint.Monotonic, c *Costs, p Prefill, l serverLoad) float64 {
	work, prefills, decoding := float64(s.work.Load()), float64(s.prefills.Load()), float64(s.decoding.Load())
	queued := max(l.waiting-prefills, 0) // of other replicas, or of our unobserved requests
	slowdown, own := s.slowdownFactor(), c.prefillWork(p)
	later := max(prefills, l.waiting, 1) - 1
	compute := slowdown*(c.estimateTTFT(decoding, l.others, work+own)+later*c.PerToken*own) + s.unobservedBacklog(now).Seconds()
	room := s.secondsToRoom(queued, l)
	if prefills <= 0 {
		return compute + room
	}
	// Credit a part of the time since the last first token as progress on the next prompt. Time beyond its expected duration is
	// delay, which may last as long again.
	next := slowdown * c.estimateTTFT(decoding, l.others, float64(s.pending.next.Load()))
	elapsed := max(now.Sub(s.lastProgress.Load()).Seconds(), 0)
	return compute - progressCredit*min(elapsed, next) + max(elapsed-next, room)
}

// mutualDelay returns the part of the delay by each other of a request that is placed now and of the requests that are there: its prompt
// holds up their tokens, and each of its own tokens comes with theirs. The more requests other replicas place, the less it counts: they do
// not know of a prompt that went elsewhere because of it.
func (s *Server) mutualDelay(c *Costs, p Prefill, l *endpoint.Load) float64 {
	x, there := s.estimator, max(l.Sample.RequestCount()+l.Since, 0)
	weight := delayWeight * (1 - x.share.placedByOthers()) * s.slowdownFactor()
	return weight * there * (c.PerToken*c.prefillWork(p) + c.PerDecoding*x.learner.answer.Load())
}

// secondsToRoom estimates the seconds until the batch has room for one more request. A request without room waits for the end
// of another one. A queue in front of a batch with room waits for the prefill of earlier prompts, which is counted separately.
func (s *Server) secondsToRoom(queued float64, l serverLoad) float64 {
	if l.rate <= 0 {
		return 0
	}
	if l.kvUsage < crowdedCache && !s.batch.isFull(l.running) {
		queued = 0
	}
	return max(queued, s.batch.excessRequests(l.requests+1)) / l.rate
}
