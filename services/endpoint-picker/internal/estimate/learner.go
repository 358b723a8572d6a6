package estimate

import (
	"math"
	"sync"
	"sync/atomic"
)

const terms = 7 // of Costs

// costLearner learns the costs of a pool from every observed first token, by least squares with exponential forgetting.
type costLearner struct {
	costs    atomic.Pointer[Costs]
	observed atomicFloat // first tokens that costs follow from

	mu       sync.Mutex
	sums     [terms][terms + 1]float64 // normal equations
	meanTTFT movingAverage             // seconds
	ratio    float64                   // of tokens, in which the sums count

	tokens movingAverage // uncached tokens of a request
	answer movingAverage // tokens of an answer
	times  *answerTime
}

func newLearner() *costLearner {
	l := &costLearner{times: newAnswerTime(), ratio: 1}
	l.meanTTFT.Store(priorCosts.estimateTTFT(priorDecoding, 0, priorTokens))
	l.tokens.Store(usualTokens)
	l.answer.Store(usualAnswer)
	l.costs.Store(solveCosts(l.sums))
	return l
}

// currentCosts returns the current estimate. It must not be changed.
func (l *costLearner) currentCosts() *Costs { return l.costs.Load() }

// observation is the work of one step.
type observation struct {
	decoding, others, tokens, expected, history, pairs float64
}

// observeStep adds the duration of a step in seconds, on a server with the given slowdown. It returns the mean TTFT. It takes 0.4 µs,
// at the first token of an answer and not in a pick: a thousand answers a second hold the lock for 0.04 % of the time.
func (l *costLearner) observeStep(o observation, took, slowdown float64) (meanTTFT float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := [terms]float64{1, o.decoding, o.others, o.tokens, -o.expected, -o.history, o.pairs}
	for i := range terms {
		for j := range terms {
			l.sums[i][j] = l.sums[i][j]*costMemory + x[i]*x[j]
		}
		l.sums[i][terms] = l.sums[i][terms]*costMemory + x[i]*took/slowdown
	}
	l.observed.Store(l.sums[0][0])
	l.meanTTFT.addSample(took, meanTTFTWeight)
	l.costs.Store(solveCosts(l.sums))
	return l.meanTTFT.Load()
}

// followRatio converts what was learned to tokens of another ratio of texts, so that costs are not those of the first, wrong counts until
// they are forgotten.
func (l *costLearner) followRatio(ratio float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := ratio / l.ratio
	if math.Abs(f-1) < ratioStep {
		return
	}
	l.ratio = ratio
	scale := [terms]float64{1, 1, 1, f, f, f, f * f}
	for i := range terms {
		for j := range terms {
			l.sums[i][j] *= scale[i] * scale[j]
		}
		l.sums[i][terms] *= scale[i]
	}
	l.costs.Store(solveCosts(l.sums))
}

// solveCosts computes the coefficients with the least squares of errors. The prior counts as some observations.
func solveCosts(m [terms][terms + 1]float64) *Costs {
	for i, p := range [terms]struct{ scale, value float64 }{
		{1, priorCosts.Base},
		{priorDecoding * priorDecoding, priorCosts.PerDecoding},
		{priorDecoding * priorDecoding, priorCosts.PerOther},
		{priorTokens * priorTokens, priorCosts.PerToken},
		{priorExpected * priorExpected, priorCosts.ExpectedHitRate * priorCosts.PerToken},
		{priorHistory * priorHistory, priorCosts.HistoryHitRate * priorCosts.PerToken},
		{priorPairs * priorPairs, priorCosts.PerPair},
	} {
		m[i][i] += priorWeight * p.scale
		m[i][terms] += priorWeight * p.scale * p.value
	}
	for i := range terms { // Gauss-Jordan elimination; the prior keeps the pivots positive
		pivot := m[i][i]
		for j := i; j <= terms; j++ {
			m[i][j] /= pivot
		}
		for k := range terms {
			if k == i {
				continue
			}
			q := m[k][i]
			for j := i; j <= terms; j++ {
				m[k][j] -= q * m[i][j]
			}
		}
	}
	perToken := max(m[3][terms], minToken)
	return &Costs{
		Base: max(m[0][terms], minBase), PerDecoding: max(m[1][terms], 0), PerOther: max(m[2][terms], 0), PerToken: perToken,
		ExpectedHitRate: min(max(m[4][terms]/perToken, 0), 1), HistoryHitRate: min(max(m[5][terms]/perToken, 0), 1),
		PerPair: min(max(m[6][terms], 0), maxPair*perToken),
	}
}
