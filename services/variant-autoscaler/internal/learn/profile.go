package learn

import (
	"math"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// buildProfile returns the profile that stands for the law under the current traffic, or nil if it would say nothing, and the ratio of the
// time to the first token at the percentile to its mean. This time grows faster than the batch. The profile has the line through an
// empty replica and the batch at which a target is reached: in between, it is cautious.
func (l *Learner) buildProfile(
	fitted *law, targets queueing.Targets, picker *snapshot.PickerSample,
) (profile *snapshot.Profile, tail float64) {
	t, ratio := l.traffic, 1.0
	p := &snapshot.Profile{Alpha: fitted.alpha, Beta: fitted.stepGrowth(t), MaxBatch: l.maxBatch(picker)}
	if t.Input > 0 {
		most := min(float64(p.MaxBatch), max(exploration*l.largestSeen(), smallest))
		low, high := 1.0, max(fitted.largestBatch(targets, t, most), 2) // a line needs two points
		first, last := fitted.firstToken(low, t), fitted.firstToken(high, t)
		slope := min(max((last-first)/(high-low), 0), first) // γ must not be negative
		p.Gamma, p.Delta = first-slope, slope/t.Input
		if last > 0 {
			ratio = max(fitted.firstTokenAt(targets.Percentile, high, t)/last, 1)
		}
		if targets.TTFT > 0 && first > 0 {
			ratio = max(min(ratio, mostTail*targets.TTFT/first), 1)
		}
	}
	if _, err := queueing.New(*p, queueing.Traffic{Input: t.Input, Output: t.Output}); err != nil {
		return nil, 1
	}
	return p, ratio
}

// largestBatch returns the largest batch that meets the targets, from 1 to most.
func (l *law) largestBatch(targets queueing.Targets, t traffic, most float64) float64 {
	meets := func(n float64) bool {
		return (targets.ITL <= 0 || l.tokenLatency(n, t) <= targets.ITL) &&
			(targets.TTFT <= 0 || l.firstTokenAt(targets.Percentile, n, t) <= targets.TTFT)
	}
	low, high := 1.0, most
	if meets(high) {
		return high
	}
	for range 30 {
		if middle := (low + high) / 2; meets(middle) { // bisection
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// rateLimit returns the rate at the largest batch that the law is trusted with, in requests per second.
func (l *Learner) rateLimit(fitted *law) float64 {
	n, t := max(exploration*l.largestSeen(), smallest), l.traffic
	service := fitted.firstToken(n, t) + t.decodeSteps()*fitted.tokenLatency(n, t)
	if service <= 0 {
		return 0
	}
	return min(n/service*perSecond, l.saturatedRate(func(p *point) float64 { return p.Rate }, (*point).isFull), maxRate)
}

// saturatedRate returns the rate beyond which requests only queue: what replicas served while requests waited all the time, or what they
// served without, if that was more. It is infinite if no replica was saturated.
func (l *Learner) saturatedRate(rateOf func(p *point) float64, isSaturated func(p *point) bool) float64 {
	queued, most := false, 0.0
	for i := range l.points {
		p := &l.points[i]
		if !p.isSimilar(l.traffic) || p.Count < 2 { // one sample may be wrong
			continue
		}
		most = max(most, rateOf(p))
		queued = queued || isSaturated(p)
	}
	if !queued {
		return math.Inf(1)
	}
	return saturation * most
}

// largestSeen returns the largest batch that was seen. A point with few samples may be wrong, and counts less.
func (l *Learner) largestSeen() float64 {
	seen := 0.0
	for i := range l.points {
		p := &l.points[i]
		seen = max(seen, p.Batch*min(p.Count, certain)/certain)
	}
	return seen
}

// maxBatch returns the largest batch that a replica may have under the current traffic.
func (l *Learner) maxBatch(picker *snapshot.PickerSample) int {
	most := max(usualSlots, l.largestSeen())
	usage, weights, filled := 0.0, 0.0, 0.0
	for i := range l.points {
		p := &l.points[i]
		if !p.isSimilar(l.traffic) {
			continue
		}
		if p.KVUsage >= cacheSeen {
			w := p.sampleWeight(l.last)
			usage += w * p.KVUsage / p.Running
			weights += w
		}
		switch {
		case p.isFull():
			filled = max(filled, math.Ceil(p.Running))
		case p.isQueuing():
			filled = max(filled, queuing*(p.Running+p.Waiting))
		}
	}
	switch {
	case weights > 0:
		most = min(most, cacheUse*weights/usage)
	case l.kvTokens > 0 && l.traffic.contextTokens() > 0:
		most = min(most, cacheUse*l.kvTokens/l.traffic.contextTokens())
	}
	if picker != nil && picker.BatchCapacity >= 1 {
		most = min(most, picker.BatchCapacity)
	}
	if filled > 0 {
		most = min(most, max(filled, l.largestWithoutQueue()))
	}
	return int(min(max(most, 1), maxRunning))
}

// largestWithoutQueue returns the largest batch under traffic like the current one with which no request waited.
func (l *Learner) largestWithoutQueue() float64 {
	most := 0.0
	for i := range l.points {
		if p := &l.points[i]; p.isSimilar(l.traffic) && !p.isFull() && !p.isQueuing() {
			most = max(most, math.Ceil(p.Running))
		}
	}
	return most
}
