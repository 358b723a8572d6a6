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
	if err := validateNodes(s); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d := newDecider(s)
	if err := d.problem.Validate(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d.plan = optimizer.Solve(d.problem)
	d.report = optimizer.NewReport(d.problem)
	d.relax()
	d.wanted = optimizer.Wanted(d.problem, d.plan)
	d.desired = optimizer.Act(d.problem, d.plan)
	d.room = d.report.Room(d.desired)
	for g := range s.Groups {
		d.saturate(g)
		d.start(g)
		d.try(g)
	}
	for g := range s.Groups {
		d.keepRatio(g)
	}
	d.fit()
	return d.decision(), nil
}

// decider makes one decision. Variants are numbered over all groups.
type decider struct {
	snapshot   *snapshot.Snapshot
	capacities []capacity
	bounds     []bounds
	first      []int // variant of each group, and the number of all variants
	held       []Reason
	places     []place // their limits follow those of the snapshot

	problem *optimizer.Problem
	report  *optimizer.Report
	within  *optimizer.Report // of the problem in which only what meets the targets serves. Nil: that is problem
	relaxed []bool            // groups for which the two differ
	room    *optimizer.Room
	plan    *optimizer.Plan
	wanted  []int
	desired []int
	why     []Reason // of replicas beyond the wanted ones
	trial   []bool   // variants of which a replica shows what it serves
}

func newDecider(s *snapshot.Snapshot) *decider {
	d := &decider{snapshot: s, first: []int{0}}
	clock := schedule.At(s.Time)
	for g := range s.Groups {
		d.first = append(d.first, d.first[g]+len(s.Groups[g].Variants))
		for i := range s.Groups[g].Variants {
			v := &s.Groups[g].Variants[i]
			d.bounds = append(d.bounds, boundsOf(v, clock.Last(v.Schedule)))
		}
	}
	d.why, d.trial = make([]Reason, len(d.bounds)), make([]bool, len(d.bounds))
	d.capacities = capacities(s)
	d.problem = &optimizer.Problem{
		Split: optimizer.Split(s.Settings.Split), HeadroomPercent: s.Settings.HeadroomPercent, SavingPercent: s.Settings.SavingPercent,
	}
	for _, l := range s.Limits {
		d.problem.Limits = append(d.problem.Limits, optimizer.Limit{
			Unit: optimizer.Unit(l.Unit), Accelerator: l.Accelerator, Namespace: l.Namespace, Priority: l.Priority, Amount: l.Amount,
		})
	}
	d.places = places(s)
	for range d.places {
		d.problem.Limits = append(d.problem.Limits, optimizer.Limit{Unit: optimizer.UnitPlaces})
	}
	for g := range s.Groups {
		d.held = append(d.held, holds(&s.Groups[g]))
		d.problem.Groups = append(d.problem.Groups, d.group(g))
	}
	d.limitPlaces()
	return d
}

// relax plans replicas that miss the targets for a stable load: a target that nobody can meet must not stop the scaling of a model. What
// meets the targets keeps what the plan gives it. The others serve the rest, and go if there is none.
func (d *decider) relax() {
	p := *d.problem
	p.Groups = slices.Clone(p.Groups)
	d.relaxed = make([]bool, len(p.Groups))
	for g := range p.Groups {
		variants := slices.Clone(p.Groups[g].Variants)
		for i := range variants {
			v, c := &variants[i], &d.capacities[d.first[g]+i]
			switch {
			case d.held[g] != "":
			case c.stable > 0:
				c.rate, d.relaxed[g] = c.stable, true
				*v = d.variant(g, i)
			case v.Capacity > 0:
				v.Min = max(v.Min, d.plan.Replicas[d.first[g]+i])
			}
		}
		if d.relaxed[g] {
			p.Groups[g].Variants = variants
		}
	}
	if slices.Contains(d.relaxed, true) {
		d.within = d.report
		d.problem = &p
		d.plan = optimizer.Solve(d.problem)
		d.report = optimizer.NewReport(d.problem)
	}
}

// holds returns why a group keeps what it has, or nothing.
func holds(g *snapshot.Group) Reason {
	if g.Load.State != snapshot.Found {
		return NoMetrics
	}
	return ""
}

// group returns a group in the form of the optimizer.
func (d *decider) group(g int) optimizer.Group {
	in := &d.snapshot.Groups[g]
	made := optimizer.Group{
		Namespace: in.Namespace, Pool: in.Pool, Model: in.Model, Priority: in.Priority, Rate: demand(in), KeepOne: d.keepsOne(g),
	}
	for i := range in.Variants {
		made.Variants = append(made.Variants, d.variant(g, i))
	}
	if d.held[g] == "" {
		d.probe(g, made.Variants)
	} else {
		made.Rate = 0
		keepOne(&made, in)
	}
	return made
}

// drainSeconds is the time in which requests that wait are to be served, beside those that arrive. With half, a queue of a few seconds
// costs a replica. With double, a replica that just keeps up lets all requests wait for as long as the load lasts.
const drainSeconds = 60

// demand returns the rate that a group needs: what arrives or will, and what waits.
func demand(g *snapshot.Group) int64 {
	backlog := (max(g.Load.Queued, 0) + max(g.Load.Waiting, 0)) / drainSeconds * 1e6 //nolint:mnd // micro-requests
	return min(max(g.Load.Rate, g.Forecast)+int64(min(backlog, optimizer.MaxRate)), optimizer.MaxRate)
}

// variant returns a variant in the form of the optimizer. A variant without capacity keeps its replicas.
func (d *decider) variant(g, i int) optimizer.Variant {
	in, b := &d.snapshot.Groups[g].Variants[i], d.bounds[d.first[g]+i]
	made := optimizer.Variant{
		Name: in.Name, Accelerator: in.Accelerator, Cards: in.Cards, Cost: in.Cost, Min: b.Min, Max: b.Max, Now: in.Now, Held: in.Held, Weight: in.Weight,
		Capacity: d.capacities[d.first[g]+i].rate, Places: d.takenPlaces(in.Pods),
	}
	if d.held[g] != "" || made.Capacity == 0 {
		keep := b.clamp(in.Now)
		switch {
		case in.Decided:
			keep = b.clamp(in.Previous)
		case in.Problem != nil: // nobody is told a number, so the minimum makes no replicas
			keep = min(in.Now, optimizer.MaxReplicas)
		}
		made.Min, made.Now, made.Held, made.Capacity = keep, keep, keep, 0
	}
	return made
}

// keepsOne reports whether a group may not go to zero replicas: it is not enabled, or someone may still need the model.
func (d *decider) keepsOne(g int) bool {
	in := &d.snapshot.Groups[g]
	return !d.hasPair(g) && (!in.Zero.Enabled || d.retains(g))
}

// retains reports whether the last request of a group that may go to zero is too recent, or not known. The groups of the roles of a model
// go to zero together.
func (d *decider) retains(g int) bool {
	if !d.snapshot.Groups[g].Zero.Enabled || d.hasPair(g) {
		return false
	}
	first, end := d.snapshot.Stages(g)
	for i := first; i < end; i++ {
		if d.retainsAlone(i) || i != g && d.snapshot.Groups[i].Load.State != snapshot.Found {
			return true
		}
	}
	return false
}

func (d *decider) retainsAlone(g int) bool {
	in := &d.snapshot.Groups[g]
	return in.Zero.Enabled && (in.Zero.Requests == nil || *in.Zero.Requests > 0 || in.Load.Queued > 0 || d.snapshot.Time.Sub(in.Zero.Changed) < in.Zero.Retention)
}

// probe gives a replica to a variant of which nothing says what it serves, if the group has no other way to serve: only a replica that
// runs shows what it serves. It is the cheapest one.
func (d *decider) probe(g int, variants []optimizer.Variant) {
	in := &d.snapshot.Groups[g]
	if in.Load.Rate == 0 && in.Load.Queued == 0 && !d.keepsOne(g) {
		return
	}
	best := d.unknown(g, variants)
	if best < 0 {
		return
	}
	v := &variants[best]
	v.Min, v.Now, v.Held = max(v.Min, 1), max(v.Now, 1), max(v.Held, 1)
	d.why[d.first[g]+best] = Probing
}

// unknown returns the cheapest variant of which nothing is known, or -1 if a variant runs that will show what it serves, or if the others
// can serve the load.
func (d *decider) unknown(g int, variants []optimizer.Variant) int {
	var able int64 // what the other variants serve at their most
	best := -1
	for i := range variants {
		v := &variants[i]
		switch {
		case v.Capacity > 0 && v.Max == 0:
			return -1
		case v.Capacity > 0:
			able += v.Capacity * int64(v.Max)
		case d.capacities[d.first[g]+i].reason != NoCapacity:
		case v.Now > 0:
			return -1
		case best < 0 || cheaper(v, &variants[best]):
			best = i
		}
	}
	if able > d.snapshot.Groups[g].Load.Rate {
		return -1
	}
	return best
}

func cheaper(a, b *optimizer.Variant) bool { return compareCost(a, b) < 0 }

func compareCost(a, b *optimizer.Variant) int {
	return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Name, b.Name))
}

// keepOne gives the cheapest variant of a group that keeps what it has a replica, if it has none and must not go to zero.
func keepOne(g *optimizer.Group, in *snapshot.Group) {
	if !g.KeepOne || slices.ContainsFunc(g.Variants, func(v optimizer.Variant) bool { return v.Now > 0 }) {
		return
	}
	best := -1
	for i := range g.Variants {
		if in.Variants[i].Problem == nil && (best < 0 || cheaper(&g.Variants[i], &g.Variants[best])) {
			best = i
		}
	}
	if best >= 0 {
		v := &g.Variants[best]
		v.Min, v.Now, v.Held = 1, 1, 1
	}
}
