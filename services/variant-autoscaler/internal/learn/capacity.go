package learn

import (
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Capacity returns what a replica serves within the targets, in whole micro-requests per second: what the profile says within its
// limit, but not less than what replicas were seen to serve. It is 0 if nothing is known.
func Capacity(m *snapshot.Measured, t queueing.Traffic, targets queueing.Targets) int64 {
	if m == nil {
		return 0
	}
	capacity, limit := m.Proven, m.Limit
	if worth := workRatio(traffic{Input: m.Input, Output: m.Output}, traffic{Input: t.Input, Output: t.Output}); worth < 1 {
		capacity, limit = int64(float64(capacity)*worth), int64(float64(limit)*worth)
	}
	if m.Profile == nil {
		return capacity
	}
	model, err := queueing.New(*m.Profile, t)
	if err != nil {
		return capacity
	}
	if m.Tail > 1 {
		targets.TTFT /= m.Tail
	}
	return max(capacity, min(model.Capacity(targets), limit))
}

// Confidence returns how sure a measured capacity is, from 0 to 1:
//
//	samples/(samples + 8) × 1/(1 + 4·error)
//
// It is 0.5 after 20 samples whose predictions were off by 10 %, for example.
func Confidence(m *snapshot.Measured) float64 {
	const usualSamples, perError = 8, 4
	if m == nil || m.Samples <= 0 || !(m.Error >= 0) {
		return 0
	}
	samples := float64(m.Samples)
	return samples / (samples + usualSamples) / (1 + perError*m.Error)
}

// provenRate returns the largest rate that a replica was seen to serve within the targets. A rate that it served with other requests counts
// less.
func (l *Learner) provenRate(targets queueing.Targets) float64 {
	most := 0.0
	for i := range l.points {
		p := &l.points[i]
		if p.Count >= 2 && p.meetsTargets(targets) { // one sample may be wrong
			most = max(most, p.sustainedRate()*workRatio(p.traffic, l.traffic))
		}
	}
	return most
}

// workRatio returns the part of a rate of some requests that a replica serves of others at least. Twice the tokens take at most twice the
// time, and at most twice the place in the KV cache. Shorter requests earn nothing.
func workRatio(seen, now traffic) float64 {
	part := 1.0
	for _, r := range [][2]float64{{seen.Output, now.Output}, {seen.uncachedInput(), now.uncachedInput()},
		{seen.contextTokens(), now.contextTokens()}} {
		if r[1] > r[0] {
			part *= r[0] / r[1]
		}
	}
	return part
}

func toMicro(rate float64) int64 { return int64(rate * microPerUnit) }
