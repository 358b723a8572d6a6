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
	variants map[snapshot.VariantKey]*Variant
	groups   map[snapshot.GroupKey]*Group
}

// New returns an empty memory with a stabilization window.
func New(window time.Duration) *Memory {
	return &Memory{window: window, variants: map[snapshot.VariantKey]*Variant{}, groups: map[snapshot.GroupKey]*Group{}}
}

// Variant is what is known of a variant.
type Variant struct {
	// Previous is the last decision, if Decided is true.
	Previous int
	Decided  bool
	// Tried is when a trial began, zero if there was none, and Trying reports whether it goes on.
	Tried  time.Time
	Trying bool

	window   time.Duration  // of stabilization
	since    time.Time      // the first pass that saw it
	wanted   []wantedSample // falling, as a smaller number that is older never counts
	pods     map[string]bool
	starts   []time.Duration
	restored bool // starts is, and no pods were seen since
}

// wantedSample is a number of replicas that was wanted at a time.
type wantedSample struct {
	at time.Time
	n  int
}

// Group is what is known of a group.
type Group struct {
	// Changed is when its replicas last changed. A group that was never decided on has just changed: nothing says how long it has been
	// without requests.
	Changed time.Time
	// Standby is the variant that starts first by the last decision, empty if there is none.
	Standby string

	total  int       // replicas decided
	serves time.Time // since when a replica has been ready; zero: none is
	// since when there are replicas, of which none is ready, or the last of them was decided; zero: there are none, or one is
	starts time.Time
	idle   idleness
	load   trend
}

// VariantFor returns what is known of a variant that was seen at a time.
func (m *Memory) VariantFor(k snapshot.VariantKey, now time.Time) *Variant {
	v, found := m.variants[k]
	if !found {
		v = &Variant{window: m.window, since: now, pods: map[string]bool{}}
		m.variants[k] = v
	}
	return v
}

// RestoreStart sets how long a replica takes to start, if the memory has seen no start, to what another replica of the program saw. That
// one saw the pods that are ready by now, too: since then, they may have been unready for a while.
func (v *Variant) RestoreStart(d time.Duration) {
	if len(v.starts) == 0 {
		v.starts, v.restored = []time.Duration{d}, true
	}
}

// StabilizedReplicas returns the replicas of a variant that stabilization keeps: the most that were wanted in the time that a replica takes
// to start, and up to a quarter more if more were wanted in the stabilization window. So the window covers the noise of a load. It does not
// keep replicas for a load that fell: they can be back in the time for which they were kept. What was wanted before the memory began is not
// known, so until a window has passed the replicas that are there count as wanted.
func (v *Variant) StabilizedReplicas(present int, now time.Time) int {
	v.wanted = slices.DeleteFunc(v.wanted, func(w wantedSample) bool { return w.at.Before(now.Add(-v.window)) })
	held := v.mostSince(now.Add(-v.window))
	if now.Sub(v.since) < v.window {
		return max(held, present)
	}
	if start := v.medianStart(); start > 0 {
		recent := v.mostSince(now.Add(-max(start, leastHold)))
		held = min(held, recent+(recent+noise-1)/noise)
	}
	return held
}

// mostSince returns the most replicas that were wanted at a time or later.
func (v *Variant) mostSince(at time.Time) int {
	for _, w := range v.wanted {
		if !w.at.Before(at) {
			return w.n
		}
	}
	return 0
}

// RecordDecision records a decision on a variant, and what was wanted before stabilization.
func (v *Variant) RecordDecision(wants, desired int, now time.Time) {
	v.Previous, v.Decided = desired, true
	for len(v.wanted) > 0 && v.wanted[len(v.wanted)-1].n <= wants {
		v.wanted = v.wanted[:len(v.wanted)-1]
	}
	v.wanted = append(v.wanted, wantedSample{at: now, n: wants})
}

// StartTrial records that a trial of a variant goes on.
func (v *Variant) StartTrial(now time.Time) {
	if v.Trying = true; v.Tried.IsZero() {
		v.Tried = now
	}
}

// GroupFor returns what is known of a group that was seen at a time.
func (m *Memory) GroupFor(k snapshot.GroupKey, now time.Time) *Group {
	g, found := m.groups[k]
	if !found {
		g = &Group{Changed: now, total: unknownTotal}
		m.groups[k] = g
	}
	return g
}

// unknownTotal is the total of a group on which nothing was decided.
const unknownTotal = -1

// RecordDecision records the replicas decided for a group, and the variant that starts first when it has none. Further replicas of a
// group that starts have as much time to become ready as the ones before.
func (g *Group) RecordDecision(total int, standby string, now time.Time) {
	if g.total != total && g.total != unknownTotal {
		g.Changed = now
		if total > g.total && !g.starts.IsZero() {
			g.starts = now
		}
	}
	g.total, g.Standby = total, standby
}

// RecordServing records that a group has a ready replica, and returns since when. since is what its pods say, zero if they are not known.
func (g *Group) RecordServing(since, now time.Time) time.Time {
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
func (g *Group) RecordStarting(present int, now time.Time) time.Time {
	g.serves = time.Time{}
	if present == 0 {
		g.starts = time.Time{}
	} else if g.starts.IsZero() {
		g.starts = now
	}
	return g.starts
}

// ObserveStarts records the pods of a variant, and returns how long a replica takes to start, as the median of the last ones. It is 0 while
// no start was seen. Each pod counts once, with the first time at which it was ready.
func (v *Variant) ObserveStarts(pods []snapshot.Pod) time.Duration {
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
func (v *Variant) medianStart() time.Duration {
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
func (g *Group) RecordLoad(rate int64, window, ahead time.Duration, now time.Time) Load {
	g.load.addRate(now, float64(rate))
	load := Load{Steady: rate, Ahead: max(rate, int64(g.load.rateAfter(ahead)))}
	if rate > 0 && window > 0 { // none at all is told apart from few by the requests of the retention period
		load.Steady = int64(math.Round(g.load.steadyMean(window)))
	}
	return load
}

// RetainOnly forgets all variants and groups but these.
func (m *Memory) RetainOnly(variants map[snapshot.VariantKey]bool, groups map[snapshot.GroupKey]bool) {
	maps.DeleteFunc(m.variants, func(k snapshot.VariantKey, _ *Variant) bool { return !variants[k] })
	maps.DeleteFunc(m.groups, func(k snapshot.GroupKey, _ *Group) bool { return !groups[k] })
}
