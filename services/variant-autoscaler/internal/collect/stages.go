package collect

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Decode servers have no room from this many requests that wait for it at each server, if they are also this part of the batch or the KV
// cache is this full: arrivals wait a moment for the next step, too. Package learn takes a batch for full at the first two numbers. The
// third is for prefill servers that can keep few KV caches, so that few requests reach decode servers.
const (
	crowdedWaiting = 0.8
	crowdedPart    = 0.2
	crowdedCache   = 0.9
)

// stage is the variants of a group that have one role, and what an answer says about their pods.
type stage struct {
	*window

	role     snapshot.Role
	variants []int // positions of its variants in the whole group
	blocked  bool  // by servers of another role: its own servers do not show what they can do
}

// hasRoles reports whether a variant of a group has a role.
func (g *Group) hasRoles() bool {
	return slices.ContainsFunc(g.Variants, func(v Variant) bool { return v.Role != snapshot.Aggregated })
}

// newWindow returns what figures say about the pods of a group.
func (c *Collector) newWindow(g *Group, f figures, now time.Time) *window {
	w := &window{Options: &c.options, now: now, group: g, figures: f}
	w.classifyPods()
	return w
}

// splitStages returns the roles of a group, in order. A group without roles is one stage.
func (c *Collector) splitStages(groupWindow *window) []*stage {
	g := groupWindow.group
	if !g.hasRoles() {
		only := &stage{window: groupWindow}
		for i := range g.Variants {
			only.variants = append(only.variants, i)
		}
		return []*stage{only}
	}
	byRole := map[snapshot.Role]*stage{}
	for i, v := range g.Variants {
		s := byRole[v.Role]
		if s == nil {
			part := *g
			part.Variants = nil
			s = &stage{role: v.Role, window: &window{group: &part}}
			byRole[v.Role] = s
		}
		s.group.Variants = append(s.group.Variants, v)
		s.variants = append(s.variants, i)
	}
	var stages []*stage
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		s := byRole[role]
		s.window = c.newWindow(s.group, groupWindow.figures, groupWindow.now)
		stages = append(stages, s)
	}
	if prefill, decode := byRole[snapshot.Prefill], byRole[snapshot.Decode]; prefill != nil && decode != nil {
		if decode.isCrowded() && !prefill.isAnswering() {
			prefill.blocked = true
			prefill.removeWaiting()
		}
		if other := byRole[snapshot.Aggregated]; other != nil { // the requests that no server has yet need a pair
			other.removePicker()
		}
	}
	return stages
}

// isCrowded reports whether requests wait for room in the servers. Prefill servers keep the KV caches of those, and so look full, too: more
// of them would not help.
func (w *window) isCrowded() bool {
	waits, runs := w.figures.podSum(waiting, w.measured), w.figures.podSum(running, w.measured)
	full := waits >= crowdedPart*runs || w.figures.podMean(kvUsage, w.measured) >= crowdedCache
	return waits > 0 && waits >= crowdedWaiting*float64(len(w.measured)) && full
}

// isAnswering reports whether prefill servers answer requests themselves, which needs no decode servers.
func (w *window) isAnswering() bool {
	return w.figures.podRatio(outputTokens, outputs, w.measured) > snapshot.MostPrefillOutput
}

// removePicker removes the requests that the picker has or refused.
func (w *window) removePicker() {
	w.refused = 0
	w.figures = maps.Clone(w.figures)
	delete(w.figures, queued)
}

// removeWaiting removes the requests that wait.
func (w *window) removeWaiting() {
	w.figures = maps.Clone(w.figures)
	for _, figure := range []string{waiting, waitingNow} {
		none := map[string]float64{}
		for pod := range w.figures[figure] {
			none[pod] = 0
		}
		w.figures[figure] = none
	}
}

// roleSample returns the sample of a variant, or nil if package learn would learn something wrong from it. The time to the first token at a
// decode server can include that of the prefill server. Some engines do not count the token of a prefill.
func (s *stage) roleSample(variant int) *snapshot.Sample {
	mean := s.meanSample(variant)
	switch {
	case mean == nil || s.blocked:
		return nil
	case s.role == snapshot.Decode:
		mean.TTFT = 0
	case s.role == snapshot.Prefill:
		mean.Output = max(mean.Output, 1)
	}
	return mean
}

// loadsByRole returns the load of each role. Decode servers get at least the requests that prefill servers get now: those that wait there
// will come. That is not true if the latter answer requests themselves.
func loadsByRole(stages []*stage) map[snapshot.Role]snapshot.Load {
	loadOf := map[snapshot.Role]snapshot.Load{}
	for _, s := range stages {
		loadOf[s.role] = s.computeLoad()
	}
	prefill, decode := loadOf[snapshot.Prefill], loadOf[snapshot.Decode]
	if prefill.State == snapshot.Found && decode.State == snapshot.Found && prefill.Output <= snapshot.MostPrefillOutput {
		decode.Rate = max(decode.Rate, prefill.Rate)
		loadOf[snapshot.Decode] = decode
	}
	return loadOf
}
