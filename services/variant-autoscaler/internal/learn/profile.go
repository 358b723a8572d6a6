package learn

import (
	"math"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// buildProfile returns the profile that stands for the law under the current traffic, or nil if it would say nothing, and the ratio of the
// time to the first token at the percentile to its mean. This time grows faster than the batch. The profile has the line through an
// empty replica and the batch at which a target is reached: in between, it is cautious.
func (s *state) buildProfile(l *law, targets queueing.Targets, picker *snapshot.PickerSample) (profile *snapshot.Profile, tail float64) {
	t, ratio := s.Traffic, 1.0
	p := &snapshot.Profile{Alpha: l.alpha, Beta: l.stepGrowth(t), MaxBatch: s.maxBatch(picker)}
	if t.Input > 0 {
		most := min(float64(p.MaxBatch), max(exploration*s.largestSeen(), smallest))
		low, high := 1.0, max(l.largestBatch(targets, t, most), 2) // a line needs two points
		first, last := l.firstToken(low, t), l.firstToken(high, t)
		slope := min(max((last-first)/(high-low), 0), first) // γ must not be negative
		p.Gamma, p.Delta = first-slope, slope/t.Input
		if last > 0 {
			ratio = max(l.firstTokenAt(targets.Percentile, high, t)/last, 1)
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
func (s *state) rateLimit(l *law) float64 {
	n, t := max(exploration*s.largestSeen(), smallest), s.Traffic
	service := l.firstToken(n, t) + t.decodeSteps()*l.tokenLatency(n, t)
	if service <= 0 {
		return 0
	}
	return min(n/service*perSecond, s.saturatedRate(func(p *point) float64 { return p.Rate }, (*point).isFull), maxRate)
}

// saturatedRate returns the rate beyond which requests only queue: what replicas served while requests waited all the time, or what they
// served without, if that was more. It is infinite if no replica was saturated.
func (s *state) saturatedRate(rateOf func(p *point) float64, isSaturated func(p *point) bool) float64 {
	queued, most := false, 0.0
	for i := range s.Points {
		p := &s.Points[i]
		if !p.isSimilar(s.Traffic) || p.Count < 2 { // one sample may be wrong
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
func (s *state) largestSeen() float64 {
	seen := 0.0
	for i := range s.Points {
		p := &s.Points[i]
		seen = max(seen, p.Batch*min(p.Count, certain)/certain)
	}
	return seen
}

// maxBatch returns the largest batch that a replica may have under the current traffic.
func (s *state) maxBatch(picker *snapshot.PickerSample) int {
	most := max(usualSlots, s.largestSeen())
	usage, weights, filled := 0.0, 0.0, 0.0
	for i := range s.Points {
		p := &s.Points[i]
		if !p.isSimilar(s.Traffic) {
			continue
		}
		if p.KVUsage >= cacheSeen {
			w := p.sampleWeight(s.Last)
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
	case s.KV > 0 && s.Traffic.contextTokens() > 0:
		most = min(most, cacheUse*s.KV/s.Traffic.contextTokens())
	}
	if picker != nil && picker.BatchCapacity >= 1 {
		most = min(most, picker.BatchCapacity)
	}
	if filled > 0 {
		most = min(most, max(filled, s.largestWithoutQueue()))
	}
	return int(min(max(most, 1), maxRunning))
}

// largestWithoutQueue returns the largest batch under traffic like the current one with which no request waited.
func (s *state) largestWithoutQueue() float64 {
	most := 0.0
	for i := range s.Points {
		if p := &s.Points[i]; p.isSimilar(s.Traffic) && !p.isFull() && !p.isQueuing() {
			most = max(most, math.Ceil(p.Running))
		}
	}
	return most
}
