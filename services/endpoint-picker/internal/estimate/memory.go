package estimate

import (
	"math"
	"sync"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// kvMemory is the KV cache memory of a server that its requests hold, in tokens. Engines admit a request when there is memory for its
// prompt, in the order of arrival, so one that does not fit waits for the end of others, and all after it do too.
//
// What our own requests hold is known at any time. A page knows the memory in use, but as of an earlier time: as far as its number of
// requests is that of our own, the difference between both is what prefixes share, or what engines round up.
type kvMemory struct {
	size       atomic.Int64  // 0 if unknown
	held       atomic.Int64  // by our requests, with the answers that are expected
	prefilling atomic.Int64  // the part of those without a first token
	usage      movingAverage // memory in use to held
	correction atomicFloat   // memory in use beyond that, on the last page that was believed
}

// observePage corrects the memory in use by that of a page. It is called one at a time. The requests of others are assumed to be like ours.
func (m *kvMemory) observePage(next *endpoint.Sample, prefills int64) {
	if next.Blocks > 0 {
		m.size.Store(int64(next.Blocks) * prefixindex.BlockTokens)
	}
	size, held := float64(m.size.Load()), float64(next.Held)
	if size == 0 || next.KVUsage <= 0 {
		return
	}
	inUse := next.KVUsage * size
	if all := held * next.RequestCount() / max(next.OwnRequests(), 1); next.Waiting == 0 && held > leastHeld*size {
		m.usage.addSample(min(max(inUse/all, minUsage), maxUsage), usageWeight)
	}
	waiting := 0.0 // requests without memory
	if prefills > 0 {
		waiting = float64(m.prefilling.Load()) * min(next.Waiting/float64(prefills), 1)
	}
	m.correction.Store(inUse - m.usage.Load()*(held-waiting))
}

// boundTokens returns the memory of one request. No engine admits one that needs more than all, whatever its client claims.
func (m *kvMemory) boundTokens(prompt, answer float64) float64 {
	if size := float64(m.size.Load()); size > 0 {
		return min(prompt+answer, size)
	}
	return prompt + answer
}

// neededTokens returns the memory that the requests of a server need together with another one.
func (m *kvMemory) neededTokens(prompt, answer float64) float64 {
	return max(m.usage.Load()*(float64(m.held.Load())+m.boundTokens(prompt, answer))+m.correction.Load(), 0)
}

// leavingRequests returns how many of n requests must end before another one has memory. The size is known.
func (m *kvMemory) leavingRequests(n, prompt, answer float64) float64 {
	needed, size := m.neededTokens(prompt, answer), float64(m.size.Load())
	if needed <= size {
		return 0
	}
	each := m.neededTokens(0, 0) / n
	return max(math.Ceil((needed-size)/each-leavingSlack), 1)
}

// isCrowded reports whether another request may have to wait for memory.
func (m *kvMemory) isCrowded(prompt, answer float64) bool {
	size := float64(m.size.Load())
	return size > 0 && m.neededTokens(prompt, answer) > crowdedMemory*size
}

// answerTime learns how long answers take, from their first content to their end. Gateways may hold back all between.
type answerTime struct {
	mu           sync.Mutex
	mean, square movingAverage // seconds
}

func newAnswerTime() *answerTime {
	t := &answerTime{}
	t.mean.Store(usualAnswer * usualGap)
	t.square.Store(2 * t.mean.Load() * t.mean.Load())
	return t
}

// observeAnswer records one answer. A client that reads slowly holds no memory of the server, so one answer counts for a bounded time.
func (t *answerTime) observeAnswer(seconds float64) {
	seconds = min(max(seconds, 0), maxLonger*t.remaining())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mean.addSample(seconds, answerTimeWeight)
	t.square.addSample(seconds*seconds, answerTimeWeight)
}

// remaining returns the mean seconds until the end of an answer that is seen at any moment: half of it if all take as long, and more the
// more they vary, because a long one is seen more often.
func (t *answerTime) remaining() float64 {
	mean := t.mean.Load()
	if mean <= 0 {
		return 0
	}
	return t.square.Load() / (2 * mean)
}
