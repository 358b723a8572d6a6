package estimate

import (
	"math"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Costs are the learned costs of a pool's model, which the debug page shows: seconds per unit, and hit rates of cached tokens that are only
// expected.
type Costs struct {
	Base            float64 `json:"baseSeconds"`        // minimum TTFT
	PerDecoding     float64 `json:"perDecodingSeconds"` // increase per decoding request
	PerOther        float64 `json:"perOtherSeconds"`    // increase per request of other replicas
	PerToken        float64 `json:"perTokenSeconds"`    // increase per uncached prompt token
	PerPair         float64 `json:"perPairSeconds"`     // increase per pair of an uncached prompt token and one before it: attention
	ExpectedHitRate float64 `json:"expectedFound"`      // share of the tokens expected at the owner that is in its cache
	HistoryHitRate  float64 `json:"historyFound"`       // the same for tokens of a conversation's history
}

// A Prefill is the work for a request before its first token.
type Prefill struct {
	Tokens   int // not known to be in the server's cache
	Expected int // of them, in its cache if other replicas sent their requests to the owner
	History  int // the same, for tokens of a previous prompt and its answer that the server or other replicas have computed
	Context  int // tokens of the prompt in the cache, before the others
}

// pairCount returns the number of pairs of a token to compute and one before it, with as many tokens to compute.
func (p *Prefill) pairCount(tokens float64) float64 {
	return tokens * (float64(p.Context+p.Tokens) - tokens/2)
}

// uncachedTokens estimates the number of prompt tokens to compute: at least one.
func (c *Costs) uncachedTokens(p *Prefill) float64 {
	return max(c.estimateUncached(float64(p.Tokens), float64(p.Expected), float64(p.History)), 1)
}

func (c *Costs) estimateUncached(tokens, expected, history float64) float64 {
	return tokens - c.ExpectedHitRate*expected - c.HistoryHitRate*history
}

// prefillWork returns the work of a prefill, as the number of tokens of a short prompt that cost as much.
func (c *Costs) prefillWork(p *Prefill) float64 {
	tokens := c.uncachedTokens(p)
	return tokens + p.pairCount(tokens)*c.PerPair/c.PerToken
}

// estimateTTFT returns the TTFT for an amount of work, without a slowdown.
func (c *Costs) estimateTTFT(decoding, others, work float64) float64 {
	return c.Base + c.PerDecoding*decoding + c.PerOther*others + c.PerToken*work
}

// An arrival is a request that may be placed on a server.
type arrival struct {
	now     endpoint.Monotonic
	costs   *Costs
	ours    float64 // share of the pool's load that this picker places
	prefill Prefill // on the server
	work    float64 // for the prefill
}

// arrivalAt describes a request without a prompt that arrives now.
func (x *Estimator) arrivalAt(now endpoint.Monotonic) arrival {
	return arrival{now: now, costs: x.learner.currentCosts(), ours: 1 - x.share.placedByOthers()}
}

// setPrefill sets the prefill on a server.
func (a *arrival) setPrefill(p Prefill) {
	a.prefill = p
	a.work = a.costs.prefillWork(&a.prefill)
}

// serverLoad is the load of a server according to its page, for all its requests.
type serverLoad struct {
	others   float64 // requests of other replicas
	requests float64 // all requests, updated with our own that began or ended since
	waiting  float64 // requests in its queue, if there was a queue; updated in the same way
	kvUsage  float64 // share of its KV cache in use
}

// estimateTTFT estimates the seconds to first token of a request that is placed now.
func (s *Server) estimateTTFT(a *arrival, l *endpoint.Load) float64 {
	load := serverLoad{others: l.OtherRequests(), requests: max(l.Sample.RequestCount()+l.Since, 0), kvUsage: l.KVUsage}
	if l.Waiting > 0 {
		load.waiting = max(l.Waiting+l.Since, 0)
	}
	return s.computeTTFT(a, load)
}

// computeTTFT computes estimateTTFT. If there is a queue, it adds the cost for others: the prompt delays later requests, and while a queue
// lasts as many requests arrive as are in it.
func (s *Server) computeTTFT(a *arrival, l serverLoad) float64 {
	c, slowdown := a.costs, s.slowdownFactor()
	work, prefills, decoding := float64(s.work.Load()), float64(s.prefills.Load()), float64(s.decoding.Load())
	later := max(prefills, l.waiting, 1) - 1
	compute := slowdown*(c.estimateTTFT(decoding, l.others, work+a.work)+later*c.PerToken*a.work) + s.unobservedBacklog(a.now).Seconds()
	room := s.secondsToRoom(&a.prefill, l, prefills)
	if prefills <= 0 {
		return compute + room
	}
	// Credit a part of the time since the last first token as progress on the next prompt. Time beyond its expected duration is
	// delay, which may last as long again.
	next := slowdown * c.estimateTTFT(decoding, l.others, float64(s.pending.next.Load()))
	elapsed := max(a.now.Sub(s.lastProgress.Load()).Seconds(), 0)
	return compute - progressCredit*min(elapsed, next) + max(elapsed-next, room)
}

// mutualDelay returns the part of the delay of whole answers that counts. A request that is placed now and those that are there delay each
// other: its prompt holds up their tokens, and each of its own tokens comes with theirs. And its answer takes the longer, the more of its
// time the server spends on prompts. The more requests other replicas place, the less it counts: they do not know of a prompt that went
// elsewhere because of it.
func (s *Server) mutualDelay(a *arrival, l *endpoint.Load) float64 {
	learner, there := s.estimator.learner, max(l.Sample.RequestCount()+l.Since, 0)
	held := there * (a.costs.PerToken*a.work + a.costs.PerDecoding*learner.answer.Load())
	return delayWeight * a.ours * (s.slowdownFactor()*held + learner.times.mean.Load()*s.share.delayFactor(a.now, a.ours))
}

// secondsToRoom estimates the seconds until the batch and the KV cache have room for one more request: some of those that are there must
// end. Of n requests that take as long as each other in the mean, the first one ends after an n-th of that time. A queue in front of a
// batch with room waits for the prefill of earlier prompts, which is counted separately.
func (s *Server) secondsToRoom(p *Prefill, l serverLoad, prefills float64) float64 {
	learner := s.estimator.learner
	there := max(l.requests, 1)
	leaving := s.batch.excessRequests(l.requests + 1)
	if s.memory.size.Load() > 0 {
		leaving = max(leaving, s.memory.leavingRequests(there, float64(p.Context+p.Tokens), learner.answer.Load()))
	} else if l.kvUsage >= crowdedCache {
		leaving = max(leaving, l.waiting-prefills)
	}
	if leaving <= 0 {
		return 0
	}
	return meanEnds(there, min(leaving, maxLeaving)) * learner.times.remaining() * s.slowdownFactor()
}

// harmonicSums are the sums of 1/i for i up to the index.
var harmonicSums = func() (sums [512]float64) {
	for i := 1; i < len(sums); i++ {
		sums[i] = sums[i-1] + 1/float64(i)
	}
	return sums
}()

// harmonicSum returns the sum of 1/i for i up to n.
func harmonicSum(n float64) float64 {
	const euler = 0.5772156649
	if i := int(n); i < len(harmonicSums) {
		return harmonicSums[i]
	}
	return math.Log(n+0.5) + euler
}

// meanEnds returns the time until leaving of n requests have ended, in that of one. From the last one on, each takes as long as one alone.
// Every pick asks for it for each server.
func meanEnds(n, leaving float64) float64 {
	switch {
	case leaving <= 0:
		return 0
	case leaving > n-1:
		return meanEnds(n, n-1) + leaving - (n - 1)
	}
	return harmonicSum(n) - harmonicSum(n-leaving)
}
