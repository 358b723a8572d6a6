package learn

import (
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// A server that only prefills has no decode steps. Its capacity follows from one number, the tokens without those in a prefix cache that it
// computes in a second. Nothing has to be explored: a queue in front of it shows the number as it is.

// measurePrefill sets what replicas that only prefill serve under the current traffic.
func (s *state) measurePrefill(m *snapshot.Measured, picker *snapshot.PickerSample) {
	m.Input, m.Output, m.Tail = s.Traffic.uncachedInput(), 1, 1
	rate := s.prefillRate(picker)
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
func (s *state) prefillRate(picker *snapshot.PickerSample) float64 {
	similar := slices.DeleteFunc(slices.Clone(s.Points), func(p point) bool { return !p.isSimilar(s.Traffic) })
	rate := s.fastestRate(similar)
	if rate == 0 {
		rate = s.fastestRate(s.Points)
	}
	if picker != nil && picker.PrefillRate > 0 {
		rate = picker.PrefillRate
	}
	if rate > 0 {
		rate = min(rate, s.saturatedTokens())
	}
	return rate
}

// fastestRate returns the tokens per second that replicas showed at points. Each point shows a part of it: what it served in a time with
// pauses, and the time of a prefill beside others.
func (s *state) fastestRate(points []point) float64 {
	times := prefillTimes(points, s.Last, func(p *point, prefill float64) float64 {
		return 1 / max(p.Rate*p.uncachedInput(), p.uncachedInput()/prefill*perSecond)
	})
	if len(times) == 0 {
		return 0
	}
	return 1 / weightedQuantile(times, lowerQuartile)
}

// saturatedTokens is saturatedRate in tokens per second, whatever a single prefill takes: the transfer of KV caches can be the slower part.
func (s *state) saturatedTokens() float64 {
	return s.saturatedRate(func(p *point) float64 { return p.Rate * p.uncachedInput() },
		func(p *point) bool { return p.Waiting >= prefillQueue })
}

// forgetBeginning removes what was seen while a queue began, as soon as a sample shows the whole window: the rate was that of a part of it,
// and an average would keep it for half an hour.
func (s *state) forgetBeginning(p *point) {
	if p.isStarting() {
		return
	}
	s.Points = slices.DeleteFunc(s.Points, func(old point) bool { return old.isStarting() })
}

// isStarting reports whether requests wait, and the rate does not follow from those in the server by Little's law: the window is not full.
func (p *point) isStarting() bool {
	const near = 1.5 // the gauge is read a few times in a window
	return p.Waiting >= 1 && p.Running > near*p.Rate*p.serviceTime()/perSecond
}

// judgePrefill is judge for servers that only prefill. A prefill takes longer beside others, so only what is longer than alone is known.
func (s *state) judgePrefill(p *point) {
	if rate := s.prefillRate(s.freshPicker()); rate > 0 && len(s.Points) > 0 {
		s.recordError(p.uncachedInput()/rate*perSecond, p.ownPrefill())
	}
}
