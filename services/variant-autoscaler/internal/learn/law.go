package learn

import (
	"cmp"
	"math"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// law explains what servers show. Times are in milliseconds. n is the batch that a request meets, with itself.
type law struct {
	alpha   float64 // decode step of an empty batch
	batch   float64 // of a decode step, for each request
	context float64 // of a decode step, for each token in the KV cache
	chunk   float64 // of a decode step, for each prompt token that is computed in it

	fixed float64 // of a prefill, beside a decode step
	own   float64 // of a prefill, for each of its tokens
	crowd float64 // of a prefill, for each of its tokens and request of the batch
	wait  float64 // for the prefills of others, for each token: times busy/(1 − busy)

	token float64 // time in which a server computes a prompt token
}

// stepSlope returns the growth of a decode step with each request, without prompts.
func (l *law) stepSlope(t traffic) float64 { return l.batch + l.context*t.contextTokens() }

// stepGrowth returns the growth of a decode step with each request: for each that ends, one begins, and its prompt is computed beside the
// decode steps of the others.
func (l *law) stepGrowth(t traffic) float64 {
	return l.stepSlope(t) + l.chunk*t.uncachedInput()/t.decodeSteps()
}

// tokenLatency returns the mean time between two tokens.
func (l *law) tokenLatency(n float64, t traffic) float64 { return l.alpha + l.stepGrowth(t)*n }

// busyPart returns the part of the time that prefills take at a rate.
func (l *law) busyPart(rate float64, t traffic) float64 {
	return min(rate/perSecond*t.uncachedInput()*l.token, maxBusy)
}

// busyAt returns the part of the time that prefills take at a batch. Its rate follows from Little's law.
func (l *law) busyAt(n float64, t traffic) float64 {
	service := l.prefillTime(n, t) + t.decodeSteps()*l.tokenLatency(n, t)
	if service <= 0 {
		return maxBusy
	}
	return l.busyPart(n/service*perSecond, t)
}

// prefillTime returns the time of a prefill that no other delays.
func (l *law) prefillTime(n float64, t traffic) float64 {
	return l.alpha + l.stepSlope(t)*n + l.fixed + l.own*t.uncachedInput()
}

// promptContention returns how much longer the first token takes because of the prompts of others.
func (l *law) promptContention(n float64, t traffic) (crowd, wait float64) {
	busy := l.busyAt(n, t)
	return l.crowd * t.uncachedInput() * n, l.wait * t.uncachedInput() * busy / (1 - busy)
}

// firstToken returns the mean time to the first token of a request that need not wait for a place in the batch.
func (l *law) firstToken(n float64, t traffic) float64 {
	crowd, wait := l.promptContention(n, t)
	return l.prefillTime(n, t) + crowd + wait
}

// firstTokenAt is firstToken at a percentile. Prompts vary by sizeSpread, the batch like a Poisson variable, and the wait for prefills
// like that of a server with one place.
func (l *law) firstTokenAt(percentile, n float64, t traffic) float64 {
	crowd, wait := l.promptContention(n, t)
	if percentile <= 0 {
		return l.prefillTime(n, t) + crowd + wait
	}
	late := 1 - percentile/100 // percent
	deviations := max(math.Sqrt2*math.Erfinv(1-2*late), 0)
	times := tailFactor(percentile)
	if busy := l.busyAt(n, t); busy > math.E*late {
		times = max(math.Log(busy/late)/busy, 1)
	}
	return l.prefillTime(n, t) + deviations*(sizeSpread*l.own*t.uncachedInput()+crowd/math.Sqrt(n)) + crowd + wait*times
}

// center is the weighted mean of the points: where priors apply.
type center struct{ batch, context, uncached, decodes, itl, first float64 }

func fitLaw(points []point, now time.Time, picker *snapshot.PickerSample) *law {
	l := &law{}
	c := centerOf(points, now)
	l.token = tokenTime(points, now)
	if picker != nil && picker.PrefillRate > 0 {
		l.token = perSecond / picker.PrefillRate
	}
	l.fitDecode(points, now, &c)
	l.fitPrefill(points, now, &c)
	return l
}

func (l *law) fitDecode(points []point, now time.Time, c *center) {
	if c.itl <= 0 {
		return
	}
	rows := make([]row, 0, len(points)+3) // priors
	for i := range points {
		p := &points[i]
		if p.ITL <= 0 {
			continue
		}
		rows = append(rows, row{
			x: [terms]float64{1 / p.ITL, p.Batch / p.ITL, p.Batch * p.contextTokens() / p.ITL,
				p.Batch * p.uncachedInput() / p.decodeSteps() / p.ITL},
			y: 1, w: p.sampleWeight(now),
		})
	}
	strength := math.Sqrt(c.batch) / c.itl
	rows = append(rows,
		// A request makes the step longer by a small part,
		row{x: [terms]float64{-priorSlope * strength, strength, c.context * strength}, w: priorWeight, prior: true},
		// half of it by its context,
		row{x: [terms]float64{0, -strength, c.context * strength}, w: priorWeight, prior: true},
		// and a prompt token in a step takes as long as elsewhere.
		row{
			x: [terms]float64{3: c.uncached / c.decodes * strength}, y: l.token * c.uncached / c.decodes * strength, w: priorWeight,
			prior: true,
		},
	)
	k := fitCoefficients(rows)
	l.alpha, l.batch, l.context, l.chunk = k[0], k[1], k[2], k[3]
}

func (l *law) fitPrefill(points []point, now time.Time, c *center) {
	if c.first <= 0 {
		return
	}
	rows := make([]row, 0, len(points)+terms)
	for i := range points {
		p := &points[i]
		first := p.firstToken()
		if first <= 0 {
			continue
		}
		u, busy := p.uncachedInput(), l.busyPart(p.Rate, p.traffic)
		rows = append(rows, row{
			x: [terms]float64{1 / first, u / first, u * p.Batch / first, u * busy / (1 - busy) / first},
			y: 1 - min((l.alpha+l.stepSlope(p.traffic)*p.Batch)/first, 1), w: p.sampleWeight(now),
		})
	}
	const usualWait = 0.4 // busy/(1 − busy) where a third of the time is for prefills
	prior := func(i int, x, value float64) {
		r := row{y: x * value, w: priorWeight, prior: true}
		r.x[i] = x
		rows = append(rows, r)
	}
	prior(0, 1/c.first, 0)
	prior(1, c.uncached/c.first, l.token)
	prior(2, c.uncached*c.batch/c.first, 0)
	prior(3, c.uncached*usualWait/c.first, l.token) // index
	k := fitCoefficients(rows)
	l.fixed, l.own, l.crowd, l.wait = k[0], k[1], k[2], k[3]
}

func centerOf(points []point, now time.Time) center {
	var c center
	var all, decoding, prefilling float64
	for i := range points {
		p := &points[i]
		w := p.sampleWeight(now)
		all += w
		c.batch += w * p.Batch
		c.context += w * p.contextTokens()
		c.uncached += w * p.uncachedInput()
		c.decodes += w * p.decodeSteps()
		if p.ITL > 0 {
			decoding += w
			c.itl += w * p.ITL
		}
		if first := p.firstToken(); first > 0 {
			prefilling += w
			c.first += w * first
		}
	}
	for _, f := range []*float64{&c.batch, &c.context, &c.uncached, &c.decodes} {
		*f /= max(all, math.SmallestNonzeroFloat64)
	}
	if decoding > 0 {
		c.itl /= decoding
	}
	if prefilling > 0 {
		c.first /= prefilling
	}
	return c
}

// tokenTime returns the time in which a server computes a prompt token: the lower quartile of what prefills took beside a decode step,
// because the prompts of others only make it longer.
func tokenTime(points []point, now time.Time) float64 {
	return weightedQuantile(prefillTimes(points, now, func(p *point, prefill float64) float64 {
		return (prefill - min(p.ITL, prefill/2)) / p.uncachedInput() // at least half of it
	}), lowerQuartile)
}

// prefillTimes returns a time of each point whose prefills are known.
func prefillTimes(points []point, now time.Time, timeOf func(p *point, prefill float64) float64) []weighted {
	var times []weighted
	for i := range points {
		p := &points[i]
		if prefill := p.ownPrefill(); prefill > 0 && p.uncachedInput() >= 1 {
			times = append(times, weighted{timeOf(p, prefill), p.sampleWeight(now)})
		}
	}
	return times
}

// lowerQuartile is the part of numbers that are below it.
const lowerQuartile = 0.25

// weighted is a number that counts by its weight.
type weighted struct{ value, w float64 }

// weightedQuantile returns the number below which a part of the weight of all numbers is, or 0 without any.
func weightedQuantile(numbers []weighted, part float64) float64 {
	total := 0.0
	for _, x := range numbers {
		total += x.w
	}
	slices.SortFunc(numbers, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	sum := 0.0
	for _, x := range numbers {
		if sum += x.w; sum >= total*part {
			return x.value
		}
	}
	return 0
}
