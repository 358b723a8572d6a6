package learn

import (
	"cmp"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// A server that only prefills has no decode steps. Its capacity follows from one number, the tokens without those in a prefix cache that it
// computes in a second. Nothing has to be explored: a queue in front of it shows the number as it is.

// measurePrefill sets what replicas that only prefill serve under the current traffic.
func (l *Learner) measurePrefill(m *snapshot.Measured, picker *snapshot.PickerSample) {
	m.Input, m.Output, m.Tail = l.traffic.uncachedInput(), 1, 1
	rate := l.prefillRate(picker)
	if rate <= 0 {
		return
	}
	profile := &snapshot.Profile{Delta: perSecond / rate, MaxBatch: prefillBatch}
	if _, err := queueing.New(*profile, queueing.Traffic{Input: max(m.Input, 1), Output: 1}); err != nil {
		return
	}
	m.Profile, m.Limit = profile, toMicro(maxRate) // the profile is its own limit
}

// prefillRate returns the tokens that a replica computes per second, or 0 if nothing shows it. Prompts like those of now count, if there
// are any: short ones take longer for each token.
func (l *Learner) prefillRate(picker *snapshot.PickerSample) float64 {
	similar := slices.DeleteFunc(slices.Clone(l.points), func(p point) bool { return !p.isSimilar(l.traffic) })
	rate := cmp.Or(l.fastestRate(similar), l.fastestRate(l.points))
	if picker != nil && picker.PrefillRate > 0 {
		rate = picker.PrefillRate
	}
	if rate > 0 {
		rate = min(rate, l.saturatedTokens())
	}
	return rate
}

// fastestRate returns the tokens per second that replicas showed at points. Each point shows a part of it: what it served in a time with
// pauses, and the time of a prefill beside others.
func (l *Learner) fastestRate(points []point) float64 {
	times := prefillTimes(points, l.last, func(p *point, prefill float64) float64 {
		return 1 / max(p.Rate*p.uncachedInput(), p.uncachedInput()/prefill*perSecond)
	})
	if len(times) == 0 {
		return 0
	}
	return 1 / weightedQuantile(times, lowerQuartile)
}

// saturatedTokens is saturatedRate in tokens per second, whatever a single prefill takes: the transfer of KV caches can be the slower part.
func (l *Learner) saturatedTokens() float64 {
	return l.saturatedRate(func(p *point) float64 { return p.Rate * p.uncachedInput() },
		func(p *point) bool { return p.Waiting >= prefillQueue })
}

// forgetBeginning removes what was seen while a queue began, as soon as a sample shows the whole window: the rate was that of a part of it,
// and an average would keep it for half an hour.
func (l *Learner) forgetBeginning(p *point) {
	if p.isStarting() {
		return
	}
	l.points = slices.DeleteFunc(l.points, func(old point) bool { return old.isStarting() })
}

// isStarting reports whether requests wait, and the rate does not follow from those in the server by Little's law: the window is not full.
func (p *point) isStarting() bool {
	const near = 1.5 // the gauge is read a few times in a window
	return p.Waiting >= 1 && p.Running > near*p.Rate*p.serviceTime()/perSecond
}

// judgePrefill is judge for servers that only prefill. A prefill takes longer beside others, so only what is longer than alone is known.
func (l *Learner) judgePrefill(p *point) {
	if rate := l.prefillRate(l.freshPicker()); rate > 0 && len(l.points) > 0 {
		l.recordError(p.uncachedInput()/rate*perSecond, p.ownPrefill())
	}
}
