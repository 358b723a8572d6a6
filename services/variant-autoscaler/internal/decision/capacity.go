package decision

import (
	"cmp"

	"fairlead.dev/services/variant-autoscaler/internal/learn"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// capacity is what a replica of a variant serves within the targets.
type capacity struct {
	rate       int64
	stable     int64 // what it serves at a stable load, if the targets are out of reach
	source     CapacitySource
	confidence float64
	reason     Reason          // why the rate is zero
	model      *queueing.Model // nil: nothing predicts figures
	tail       float64         // of a Measured
}

// TrafficOf returns the requests of a group as its servers see them: prefill servers compute the prompt without what a prefix cache has,
// and one token.
func TrafficOf(g *snapshot.Group) queueing.Traffic {
	if g.Role == snapshot.Prefill {
		return queueing.Traffic{Input: max(g.Load.UncachedInput(), 1), Output: 1}
	}
	return queueing.Traffic{Input: g.Load.Input, Output: max(g.Load.Output, 1)}
}

// capacityOf returns the capacity of a variant. Without traffic it is that for the smallest requests: no load needs it, and a variant that
// is not set aside can keep the group above zero.
func capacityOf(v *snapshot.Variant, g *snapshot.Group, percentile float64, headroom int64) capacity {
	if v.Problem != nil {
		return capacity{reason: Excluded}
	}
	t, wanted := TrafficOf(g), g.Targets.ForRole(g.Role)
	within := func(measured *snapshot.Measured, targets snapshot.Targets) capacity {
		q := queueing.Targets{TTFT: targets.TTFT, ITL: targets.ITL, Percentile: percentile}
		if !targets.IsSet() {
			q.TPS = 1 // a stable load
		}
		c := capacityWithin(v, measured, t, q)
		if v.Profile == nil && v.Measured != nil {
			c.rate = max(c.rate, observedMinimum(v, g, targets, headroom))
		}
		return c
	}
	if v.Profile != nil && g.Role == snapshot.Decode {
		t.Input = 0 // the prompt is computed elsewhere; what was measured has the part of it that is not
	}
	c := within(v.Measured, wanted)
	if c.rate > 0 || !wanted.IsSet() {
		return c
	}
	if c = within(cmp.Or(v.Stable, v.Measured), snapshot.Targets{}); c.rate > 0 {
		c.stable, c.rate, c.reason = c.rate, 0, OutOfReach
	}
	return c
}

// capacityWithin returns the capacity of a variant within targets, from its profile or else from what was measured.
func capacityWithin(v *snapshot.Variant, measured *snapshot.Measured, t queueing.Traffic, targets queueing.Targets) capacity {
	c := capacity{reason: NoCapacity}
	profile := v.Profile
	switch {
	case profile != nil:
		c.source, c.confidence = FromProfile, 1
	case measured == nil:
		return c
	default:
		profile = measured.Profile
		c.source, c.confidence, c.tail = CapacitySource(measured.Source), learn.Confidence(measured), measured.Tail
		c.rate = learn.Capacity(measured, t, targets)
	}
	if profile == nil {
		return c
	}
	if model, err := queueing.New(*profile, t); err == nil {
		c.model = model
		if v.Profile != nil {
			c.rate = model.Capacity(targets)
		}
	}
	return c
}

// fewSamples is how many samples a measured capacity needs before replicas are added because of it alone.
const fewSamples = 3

// observedMinimum returns what replicas with few samples serve at least: their present load with headroom, if no request waits and the
// targets are far. It is 0 otherwise.
func observedMinimum(v *snapshot.Variant, g *snapshot.Group, targets snapshot.Targets, headroom int64) int64 {
	if v.Measured.Samples >= fewSamples || v.Ready <= 0 || !isServedWell(&g.Load, &targets) {
		return 0
	}
	for i := range g.Variants {
		if o := &g.Variants[i]; o.Ready > 0 && o.Name != v.Name {
			return 0 // what part of the load it has is not sure
		}
	}
	ready, percent := int64(v.Ready), 100+max(headroom, 0)
	demand := min(max(g.Load.Rate, 0), optimizer.MaxRate)*percent/100 + 1 // percent
	return (demand + ready - 1) / ready
}

// isServedWell reports whether no request waits, and the targets are far.
func isServedWell(l *snapshot.Load, t *snapshot.Targets) bool {
	const far = 0.5 // of a target: means say little about a percentile
	near := func(mean, target float64) bool { return target > 0 && mean > far*target }
	known := l.ITL > 0 || l.TTFT > 0
	return known && l.Waiting <= 0 && l.Queued <= 0 && !near(l.TTFT, t.TTFT) && !near(l.ITL, t.ITL)
}
