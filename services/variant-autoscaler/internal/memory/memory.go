// Package memory holds what a pass has to know of earlier ones: what was decided and wanted, when replicas changed, how long they take to
// start, and how the load moves. It is empty when a replica becomes the leader, and then assumes what keeps the replicas that are there.
package memory

import (
	"maps"
	"math"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxStarts is the number of start-up times that count. With 3, one slow pull of an image is the median of two. With 20, a faster image
	// shows after 10 more pods.
	maxStarts = 7
	// maxPods bounds the pods of a variant whose start is remembered.
	maxPods = 10_000

	// leastHold is the least time for which all replicas that were wanted are kept: the window in which rates are counted.
	leastHold = time.Minute
	// noise is the part of the replicas, as a divisor, that random arrivals add and take away. With 2, a drop by a third is held for the
	// whole stabilization window. With 8, few replicas are still held, as one is the least.
	noise = 4

	perSecond = 1e6 // micro-requests
)

// Memory is not safe for concurrent use.
type Memory struct {
	window   time.Duration
	variants map[snapshot.VariantKey]*variant
	groups   map[snapshot.GroupKey]*group
}

// New returns an empty memory with a stabilization window.
func New(window time.Duration) *Memory {
	return &Memory{window: window, variants: map[snapshot.VariantKey]*variant{}, groups: map[snapshot.GroupKey]*group{}}
}

// variant is what is known of a variant.
type variant struct {
	since    time.Time // the first pass that saw it
	decided  bool
	previous int
	wanted   []wantedSample // falling, as a smaller number that is older never counts
	pods     map[string]bool
	starts   []time.Duration
	restored bool      // starts is, and no pods were seen since
	tried    time.Time // when a trial began
	trying   bool
}

// wantedSample is a number of replicas that was wanted at a time.
type wantedSample struct {
	at time.Time
	n  int
}

// group is what is known of a group.
type group struct {
	total   int // replicas decided
	changed time.Time
	serves  time.Time // since when a replica has been ready; zero: none is
	// since when there are replicas, of which none is ready, or the last of them was decided; zero: there are none, or one is
	starts  time.Time
	standby string // variant that starts first
	idle    idleness
	load    trend
}

// variantFor returns what is known of a variant that was seen at a time.
func (m *Memory) variantFor(k snapshot.VariantKey, now time.Time) *variant {
	v, found := m.variants[k]
	if !found {
		v = &variant{since: now, pods: map[string]bool{}}
		m.variants[k] = v
	}
	return v
}

// PreviousDecision returns the last decision on a variant, if there is one.
func (m *Memory) PreviousDecision(k snapshot.VariantKey) (n int, decided bool) {
	if v := m.variants[k]; v != nil {
		return v.previous, v.decided
	}
	return 0, false
}

// RestoreDecision sets the last decision on a variant of which the memory has none: one that another replica made.
func (m *Memory) RestoreDecision(k snapshot.VariantKey, n int, now time.Time) {
	if v := m.variantFor(k, now); !v.decided {
		v.previous, v.decided = n, true
	}
}

// RestoreStart sets how long a replica takes to start, if the memory has seen no start, to what another replica of the program saw. That
// one saw the pods that are ready by now, too: since then, they may have been unready for a while.
func (m *Memory) RestoreStart(k snapshot.VariantKey, d time.Duration, now time.Time) {
	if v := m.variantFor(k, now); len(v.starts) == 0 {
		v.starts, v.restored = []time.Duration{d}, true
	}
}

// StabilizedReplicas returns the replicas of a variant that stabilization keeps: the most that were wanted in the time that a replica takes
// to start, and up to a quarter more if more were wanted in the stabilization window. So the window covers the noise of a load. It does not
// keep replicas for a load that fell: they can be back in the time for which they were kept. What was wanted before the memory began is not
// known, so until a window has passed the replicas that are there count as wanted.
func (m *Memory) StabilizedReplicas(k snapshot.VariantKey, present int, now time.Time) int {
	v := m.variantFor(k, now)
	v.dropWanted(now.Add(-m.window))
	held := v.mostSince(now.Add(-m.window))
	if now.Sub(v.since) < m.window {
		return max(held, present)
	}
	if start := v.medianStart(); start > 0 {
		recent := v.mostSince(now.Add(-max(start, leastHold)))
		held = min(held, recent+(recent+noise-1)/noise)
	}
	return held
}

// mostSince returns the most replicas that were wanted at a time or later.
func (v *variant) mostSince(at time.Time) int {
	for _, w := range v.wanted {
		if !w.at.Before(at) {
			return w.n
		}
	}
	return 0
}

func (v *variant) dropWanted(before time.Time) {
	v.wanted = slices.DeleteFunc(v.wanted, func(w wantedSample) bool { return w.at.Before(before) })
}

// RecordDecision records a decision on a variant, and what was wanted before stabilization.
func (m *Memory) RecordDecision(k snapshot.VariantKey, wants, desired int, now time.Time) {
	v := m.variantFor(k, now)
	v.previous, v.decided = desired, true
	for len(v.wanted) > 0 && v.wanted[len(v.wanted)-1].n <= wants {
		v.wanted = v.wanted[:len(v.wanted)-1]
	}
	v.wanted = append(v.wanted, wantedSample{at: now, n: wants})
}

// StartTrial records that a trial of a variant goes on.
func (m *Memory) StartTrial(k snapshot.VariantKey, now time.Time) {
	v := m.variantFor(k, now)
	if v.trying = true; v.tried.IsZero() {
		v.tried = now
	}
}

// EndTrial records that no trial of a variant goes on.
func (m *Memory) EndTrial(k snapshot.VariantKey) {
	if v := m.variants[k]; v != nil {
		v.trying = false
	}
}

// TrialSince returns when a trial of a variant began, zero if there was none, and whether it goes on.
func (m *Memory) TrialSince(k snapshot.VariantKey) (since time.Time, trying bool) {
	if v := m.variants[k]; v != nil {
		return v.tried, v.trying
	}
	return time.Time{}, false
}

// groupFor returns what is known of a group that was seen at a time.
func (m *Memory) groupFor(k snapshot.GroupKey, now time.Time) *group {
	g, found := m.groups[k]
	if !found {
		g = &group{changed: now, total: unknownTotal}
		m.groups[k] = g
	}
	return g
}

// unknownTotal is the total of a group on which nothing was decided.
const unknownTotal = -1

// RecordGroupDecision records the replicas decided for a group, and the variant that starts first when it has none. Further replicas of a
// group that starts have as much time to become ready as the ones before.
func (m *Memory) RecordGroupDecision(k snapshot.GroupKey, total int, standby string, now time.Time) {
	g := m.groupFor(k, now)
	if g.total != total && g.total != unknownTotal {
		g.changed = now
		if total > g.total && !g.starts.IsZero() {
			g.starts = now
		}
	}
	g.total, g.standby = total, standby
}

// StandbyVariant returns the variant of a group that starts first by the last decision, empty if there is none.
func (m *Memory) StandbyVariant(k snapshot.GroupKey) string {
	if g := m.groups[k]; g != nil {
		return g.standby
	}
	return ""
}

// RecordServing records that a group has a ready replica, and returns since when. since is what its pods say, zero if they are not known.
func (m *Memory) RecordServing(k snapshot.GroupKey, since, now time.Time) time.Time {
	g := m.groupFor(k, now)
	g.starts = time.Time{}
	switch {
	case !since.IsZero():
		g.serves = since
	case g.serves.IsZero():
		g.serves = now
	}
	return g.serves
}

// RecordStarting records that a group has no ready replica, and whether it has others. It returns since when it has had those, zero if it
// has none.
func (m *Memory) RecordStarting(k snapshot.GroupKey, present int, now time.Time) time.Time {
	g := m.groupFor(k, now)
	g.serves = time.Time{}
	if present == 0 {
		g.starts = time.Time{}
	} else if g.starts.IsZero() {
		g.starts = now
	}
	return g.starts
}

// LastChange returns when the replicas of a group last changed. A group that was never decided on has just changed: nothing says how long
// it has been without requests.
func (m *Memory) LastChange(k snapshot.GroupKey, now time.Time) time.Time {
	if g, found := m.groups[k]; found {
		return g.changed
	}
	return now
}

// ObserveStarts records the pods of a variant, and returns how long a replica takes to start, as the median of the last ones. It is 0 while
// no start was seen. Each pod counts once, with the first time at which it was ready.
func (m *Memory) ObserveStarts(k snapshot.VariantKey, pods []snapshot.Pod, now time.Time) time.Duration {
	v := m.variantFor(k, now)
	present := make(map[string]bool, len(pods))
	for _, p := range pods[:min(len(pods), maxPods)] {
		took := p.Ready.Sub(p.Created)
		switch seen := v.pods[p.Name]; {
		case seen, v.restored && !p.Ready.IsZero():
			present[p.Name] = true
		case !p.Ready.IsZero() && took >= 0:
			v.starts = append(v.starts, took)
			present[p.Name] = true
		}
	}
	v.pods, v.restored = present, false
	v.starts = v.starts[max(0, len(v.starts)-maxStarts):]
	return v.medianStart()
}

// medianStart returns how long a replica takes to start, or 0.
func (v *variant) medianStart() time.Duration {
	if len(v.starts) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v.starts))
	return sorted[len(sorted)/2]
}

// Load is what a group gets, in micro-requests per second.
type Load struct {
	Steady int64 // the mean of the last rates that differ by no more than chance
	Ahead  int64 // what the trend says for a time ahead, never below the last rate
}

// RecordLoad records the rate of a group that was counted over a window, and returns what it says together with the last ones. Arrivals are
// random: planning for each rate alone would plan for the highest one in a stabilization window.
func (m *Memory) RecordLoad(k snapshot.GroupKey, rate int64, window, ahead time.Duration, now time.Time) Load {
	g := m.groupFor(k, now)
	g.load.addRate(now, float64(rate))
	load := Load{Steady: rate, Ahead: max(rate, int64(g.load.rateAfter(ahead)))}
	if rate > 0 && window > 0 { // none at all is told apart from few by the requests of the retention period
		load.Steady = int64(math.Round(g.load.steadyMean(window)))
	}
	return load
}

// RetainOnly forgets all variants and groups but these.
func (m *Memory) RetainOnly(variants map[snapshot.VariantKey]bool, groups map[snapshot.GroupKey]bool) {
	maps.DeleteFunc(m.variants, func(k snapshot.VariantKey, _ *variant) bool { return !variants[k] })
	maps.DeleteFunc(m.groups, func(k snapshot.GroupKey, _ *group) bool { return !groups[k] })
}
