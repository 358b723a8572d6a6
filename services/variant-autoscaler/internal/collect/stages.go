package collect

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/sample"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Decode servers have no room from this many requests that wait for it at each server, if they are also this part of the batch or the KV
// cache is this full: arrivals wait a moment for the next step, too. Package learn takes a batch for full at the first two numbers. The third
// is for prefill servers that can keep few KV caches, so that few requests reach decode servers.
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
	held     bool  // by servers of another role: its own do not show what they can do
}

// hasRoles reports whether a variant of a group has a role.
func (g *Group) hasRoles() bool {
	return slices.ContainsFunc(g.Variants, func(v Variant) bool { return v.Role != snapshot.Aggregated })
}

// window returns what figures say about the pods of a group.
func (c *Collector) window(g *Group, f figures, now time.Time) *window {
	w := &window{Options: &c.options, now: now, group: g, figures: f}
	w.sort()
	return w
}

// stages returns the roles of a group, in order. A group without roles is one stage.
func (c *Collector) stages(whole *window) []*stage {
	g := whole.group
	if !g.hasRoles() {
		only := &stage{window: whole}
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
	var all []*stage
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		s := byRole[role]
		s.window = c.window(s.group, whole.figures, whole.now)
		all = append(all, s)
	}
	if prefill, decode := byRole[snapshot.Prefill], byRole[snapshot.Decode]; prefill != nil && decode != nil {
		if decode.crowded() && !prefill.answers() {
			prefill.held = true
			prefill.withoutWaiting()
		}
		if other := byRole[snapshot.Aggregated]; other != nil { // the requests that no server has yet need a pair
			other.withoutPicker()
		}
	}
	return all
}

// crowded reports whether requests wait for room in the servers. Prefill servers keep the KV caches of those, and so look full, too: more
// of them would not help.
func (w *window) crowded() bool {
	waits, runs := w.figures.sum(waiting, w.measured), w.figures.sum(running, w.measured)
	full := waits >= crowdedPart*runs || w.figures.mean(kvUsage, w.measured) >= crowdedCache
	return waits > 0 && waits >= crowdedWaiting*float64(len(w.measured)) && full
}

// answers reports whether prefill servers answer requests themselves, which needs no decode servers.
func (w *window) answers() bool {
	return w.figures.ratio(outputTokens, outputs, w.measured) > snapshot.MostPrefillOutput
}

// withoutPicker removes the requests that the picker has or refused.
func (w *window) withoutPicker() {
	w.refused = 0
	w.figures = maps.Clone(w.figures)
	delete(w.figures, queued)
}

// withoutWaiting removes the requests that wait.
func (w *window) withoutWaiting() {
	w.figures = maps.Clone(w.figures)
	for _, figure := range []string{waiting, waitingNow} {
		none := map[string]float64{}
		for pod := range w.figures[figure] {
			none[pod] = 0
		}
		w.figures[figure] = none
	}
}

// sampleOf returns the sample of a variant, nil if it would teach something wrong. The time to the first token at a decode server can include
// that of the prefill server. Some engines do not count the token of a prefill.
func (s *stage) sampleOf(variant int) *sample.Sample {
	made := s.sample(variant)
	switch {
	case made == nil || s.held:
		return nil
	case s.role == snapshot.Decode:
		made.TTFT = 0
	case s.role == snapshot.Prefill:
		made.Output = max(made.Output, 1)
	}
	return made
}

// loads returns the load of each role. Decode servers get at least the requests that prefill servers get now: those that wait there will
// come. That is not true if the latter answer requests themselves.
func loads(stages []*stage) map[snapshot.Role]snapshot.Load {
	all := map[snapshot.Role]snapshot.Load{}
	for _, s := range stages {
		all[s.role] = s.load()
	}
	prefill, decode := all[snapshot.Prefill], all[snapshot.Decode]
	if prefill.State == snapshot.Found && decode.State == snapshot.Found && prefill.Output <= snapshot.MostPrefillOutput {
		decode.Rate = max(decode.Rate, prefill.Rate)
		all[snapshot.Decode] = decode
	}
	return all
}
