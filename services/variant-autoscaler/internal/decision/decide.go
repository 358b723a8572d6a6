package decision

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/schedule"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Decide returns the decision on a snapshot, or an error that names a number that is out of range.
func Decide(s *snapshot.Snapshot) (*Decision, error) {
	if err := cmp.Or(validateNodes(s), validateQuotas(s)); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d := newDecider(s)
	if err := d.problem.Validate(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d.solveProblem()
	d.relaxTargets()
	wanted, desired := optimizer.Stabilize(d.problem, d.plan)
	d.wanted, d.desired, d.room = d.splitByGroup(wanted), d.splitByGroup(desired), d.report.RoomBeside(desired)
	for g := range s.Groups {
		d.applySaturation(g)
		d.coverStarts(g)
		d.startTrial(g)
	}
	for g := range s.Groups {
		d.keepRatio(g)
	}
	d.fitToRoom()
	return d.buildDecision(), nil
}

// variantState is what the decider knows of a variant.
type variantState struct {
	*snapshot.Variant

	group, position int // of the variant in the snapshot
	number          int // of the variant over all groups, as in the slices of an optimizer.Plan

	bounds   bounds
	capacity capacity
	why      Reason // of replicas beyond the wanted ones
	trial    bool   // a replica shows what the variant serves
	delayed  bool   // it starts no replica before another one of its group is ready
}

// groupState is what the decider knows of a group.
type groupState struct {
	frozen      bool   // its load is not known: it keeps its replicas
	relaxed     bool   // its replicas that miss the targets serve, too
	asleep      bool   // it has no ready replica
	keeper      bool   // it keeps its model from zero; others only have what their load needs
	standby     int    // its variant that starts first when a request waits, or noVariant: one starts already
	standbyName string // as decided; empty: none
}

// decider makes one decision.
type decider struct {
	snapshot *snapshot.Snapshot
	variants [][]variantState // by group
	groups   []groupState
	served   map[snapshot.PoolKey][]string
	places   []placeLimit // their limits follow those of the snapshot
	quotas   *quotaTree
	// quotaLimits follow those of places.
	quotaLimits []quotaLimit
	limits      []limitState // of the problem

	problem *optimizer.Problem
	report  *optimizer.Report
	within  *optimizer.Report // of the problem in which only what meets the targets serves. Nil: that is problem
	room    *optimizer.Room
	plan    *optimizer.Plan
	planned [][]int // replicas of the plan, by group
	wanted  [][]int
	desired [][]int
	used    []int64 // by limit, by the replicas that count; nil: not counted yet
}

func newDecider(s *snapshot.Snapshot) *decider {
	d := &decider{snapshot: s, variants: newVariantStates(s), groups: make([]groupState, len(s.Groups))}
	d.problem = &optimizer.Problem{
		Split: optimizer.Split(s.Settings.Split), HeadroomPercent: s.Settings.HeadroomPercent, SavingPercent: s.Settings.SavingPercent,
		Limits: slices.Clone(s.Limits),
	}
	d.served, d.places = d.servedModels(), placeLimits(s)
	d.quotas = newQuotaTree(s.Quotas)
	d.quotaLimits = d.quotas.buildLimits(s)
	d.limits = d.limitStates()
	for range len(d.places) + len(d.quotaLimits) {
		d.problem.Limits = append(d.problem.Limits, snapshot.Limit{Unit: optimizer.UnitPlaces})
	}
	for g := range s.Groups {
		d.groups[g].frozen = s.Groups[g].Load.State != snapshot.Found
		if first, end := s.ModelGroups(g); first == g {
			d.planSleep(first, end)
		}
		d.problem.Groups = append(d.problem.Groups, d.buildGroup(g))
	}
	d.limitPlaces()
	return d
}

// newVariantStates returns the variants of each group, with their bounds and capacities.
func newVariantStates(s *snapshot.Snapshot) [][]variantState {
	clock, states := schedule.NewClock(s.Time), make([][]variantState, len(s.Groups))
	var all []*variantState
	for g := range s.Groups {
		states[g] = make([]variantState, len(s.Groups[g].Variants))
		for i := range states[g] {
			v := &s.Groups[g].Variants[i]
			states[g][i] = variantState{
				Variant: v, group: g, position: i, number: len(all), bounds: boundsOf(v, clock.LastInForce(v.Schedule)),
			}
			all = append(all, &states[g][i])
		}
	}
	optimizer.ParallelFor(len(all), func(n int) {
		v := all[n]
		v.capacity = capacityOf(v.Variant, &s.Groups[v.group], s.Settings.Percentile, s.Settings.HeadroomPercent)
		for _, rate := range []*int64{&v.capacity.rate, &v.capacity.stable} {
			*rate = min(max(*rate, 0), optimizer.MaxRate) // a profile can say anything, and costs only its variant
		}
	})
	return states
}

// solveProblem sets the plan and the report of the problem.
func (d *decider) solveProblem() {
	d.plan, d.report = optimizer.Solve(d.problem), optimizer.NewReport(d.problem)
	d.planned = d.splitByGroup(d.plan.Replicas)
}

// splitByGroup returns numbers of all variants by group. The groups share the memory of the numbers.
func (d *decider) splitByGroup(numbers []int) [][]int {
	groups := make([][]int, len(d.variants))
	for g := range d.variants {
		n := len(d.variants[g])
		groups[g], numbers = numbers[:n:n], numbers[n:]
	}
	return groups
}

// relaxTargets plans replicas that miss the targets for a stable load: a target that no variant can meet must not stop the scaling of a
// model. Variants that meet the targets keep the replicas of the plan. The others serve the rest of the demand, and get none if there is no
// rest.
func (d *decider) relaxTargets() {
	p := *d.problem
	p.Groups = slices.Clone(p.Groups)
	for g := range p.Groups {
		variants := slices.Clone(p.Groups[g].Variants)
		for i := range variants {
			v, c := &variants[i], &d.variants[g][i].capacity
			switch {
			case d.groups[g].frozen:
			case c.stable > 0:
				c.rate, d.groups[g].relaxed = c.stable, true
				*v = d.buildVariant(g, i)
			case v.Capacity > 0:
				v.Min = max(v.Min, d.planned[g][i])
			}
		}
		if d.groups[g].relaxed {
			p.Groups[g].Variants = variants
		}
	}
	if slices.ContainsFunc(d.groups, func(g groupState) bool { return g.relaxed }) {
		d.within = d.report
		d.problem = &p
		d.solveProblem()
	}
}

// buildGroup returns a group in the form of the optimizer.
func (d *decider) buildGroup(g int) optimizer.Group {
	in := &d.snapshot.Groups[g]
	group := optimizer.Group{
		Namespace: in.Namespace, Pool: in.Pool, Model: in.Model, Priority: in.Priority, Rate: groupDemand(in),
		NeedsReplica: d.mustKeepOneReplica(g),
	}
	for i := range in.Variants {
		group.Variants = append(group.Variants, d.buildVariant(g, i))
	}
	if d.groups[g].frozen || d.groups[g].asleep && !d.groups[g].keeper { // then others wake
		group.Rate = 0
	}
	switch {
	case d.groups[g].frozen && d.groups[g].asleep:
		d.wakeGroup(g, &group)
	case d.groups[g].frozen:
		d.keepOneReplica(g, &group)
	case in.Zero.Enabled && !group.NeedsReplica && group.Rate == 0:
		d.releaseUnknown(g, &group)
	case d.groups[g].asleep:
		d.wakeGroup(g, &group)
	default:
		d.probeUnknown(g, group.Variants)
	}
	return group
}

// drainSeconds is the time in which requests that wait are to be served, beside those that arrive.
const drainSeconds = 60

// groupDemand returns the rate that a group needs: what arrives or will, and what waits.
func groupDemand(g *snapshot.Group) int64 {
	backlog := (max(g.Load.Queued, 0) + max(g.Load.Waiting, 0)) / drainSeconds * 1e6 // micro-requests
	return min(max(g.Load.Rate, g.Forecast)+int64(min(backlog, optimizer.MaxRate)), optimizer.MaxRate)
}

// buildVariant returns a variant in the form of the optimizer. A variant without capacity keeps its replicas.
func (d *decider) buildVariant(g, i int) optimizer.Variant {
	in, b := &d.snapshot.Groups[g].Variants[i], d.variants[g][i].bounds
	variant := optimizer.Variant{
		Name: in.Name, Accelerator: in.Accelerator, Cards: in.Cards, Cost: in.Cost, Min: b.Min, Max: b.Max, Now: in.Now, Held: in.Held,
		Weight:   in.Weight,
		Capacity: d.variants[g][i].capacity.rate, Places: d.limitUsage(in.Pods),
	}
	switch {
	case d.variants[g][i].delayed && !d.groups[g].frozen:
		variant.Min, variant.Now, variant.Held, variant.Capacity = 0, 0, 0, 0
	case d.groups[g].frozen || variant.Capacity == 0:
		kept := b.clampReplicas(in.Now)
		switch {
		case in.Decided:
			kept = b.clampReplicas(in.Previous)
		case in.Problem != nil: // no number is published, so the minimum adds no replicas
			kept = min(in.Now, optimizer.MaxReplicas)
		}
		variant.Min, variant.Now, variant.Held, variant.Capacity = kept, kept, kept, 0
	}
	return variant
}

// mustKeepOneReplica reports whether a group needs a replica, however small its load is.
func (d *decider) mustKeepOneReplica(g int) bool {
	in := &d.snapshot.Groups[g]
	switch {
	case !in.Zero.Enabled:
		return !d.hasPair(g)
	case !d.groups[g].keeper:
		return false
	case d.anyStage(g, func(i int) bool { return i != g && d.groups[i].keeper && d.hasMinimum(i) }):
		return true
	case d.anyStage(g, d.hasReplicas):
		return d.retentionReason(g) != ""
	}
	return d.anyStage(g, d.mustWake)
}

// hasReplicas reports whether a variant of a group has replicas by the last decision, or has some if nothing was decided. After a decision
// of zero, autoscalers take their time: replicas that are still there must not begin another retention period.
func (d *decider) hasReplicas(g int) bool {
	return slices.ContainsFunc(d.snapshot.Groups[g].Variants, func(v snapshot.Variant) bool {
		if v.Decided {
			return v.Previous > 0
		}
		return v.Problem == nil && (v.Now > 0 || v.Ready > 0)
	})
}

// probeUnknown gives a replica to the cheapest variant of unknown capacity, if the group has no other way to serve: only a running replica
// shows what it serves.
func (d *decider) probeUnknown(g int, variants []optimizer.Variant) {
	in := &d.snapshot.Groups[g]
	if in.Load.Rate == 0 && in.Load.Queued == 0 && !d.mustKeepOneReplica(g) {
		return
	}
	best := d.cheapestUnknown(g, variants)
	if best < 0 {
		return
	}
	v := &variants[best]
	v.Min, v.Now, v.Held = max(v.Min, 1), max(v.Now, 1), max(v.Held, 1)
	d.variants[g][best].why = Probing
}

// cheapestUnknown returns the cheapest variant of unknown capacity, or -1 if such a variant runs already, or if the others can serve the
// load.
func (d *decider) cheapestUnknown(g int, variants []optimizer.Variant) int {
	var able int64 // what the other variants serve at their most
	best := -1
	for i := range variants {
		v := &variants[i]
		switch {
		case v.Capacity > 0 && v.Max == 0:
			return -1
		case v.Capacity > 0:
			able += v.Capacity * int64(v.Max)
		case d.variants[g][i].capacity.reason != NoCapacity:
		case v.Now > 0:
			return -1
		case best < 0 || d.isOnlyReady(g, i, best) || !d.isOnlyReady(g, best, i) && isCheaper(v, &variants[best]):
			best = i
		}
	}
	if able > d.snapshot.Groups[g].Load.Rate {
		return -1
	}
	return best
}

// isOnlyReady reports whether a variant of a group has a ready replica, and the other one has none.
func (d *decider) isOnlyReady(g, i, other int) bool {
	variants := d.snapshot.Groups[g].Variants
	return variants[i].Ready > 0 && variants[other].Ready == 0
}

func isCheaper(a, b *optimizer.Variant) bool { return compareCost(a, b) < 0 }

func compareCost(a, b *optimizer.Variant) int {
	return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Name, b.Name))
}

// keepOneReplica gives a replica to one variant of a frozen group that has none and must not go to zero: a variant that is ready, as it was
// started after the last decision, or else the cheapest.
func (d *decider) keepOneReplica(g int, group *optimizer.Group) {
	if !group.NeedsReplica || slices.ContainsFunc(group.Variants, func(v optimizer.Variant) bool { return v.Now > 0 }) {
		return
	}
	best := noVariant
	for i := range group.Variants {
		if d.snapshot.Groups[g].Variants[i].Problem != nil {
			continue
		}
		if best < 0 || d.isOnlyReady(g, i, best) || !d.isOnlyReady(g, best, i) && isCheaper(&group.Variants[i], &group.Variants[best]) {
			best = i
		}
	}
	if best >= 0 {
		v := &group.Variants[best]
		v.Min, v.Now, v.Held = 1, 1, 1
	}
}
