package decision

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// wakeUp is the variants that start first when a request waits for a model: one for whole requests, or one of each role.
type wakeUp struct {
	starters       []starter
	startCandidate // the greatest rank, and the costs and names of all
}

// starter is a variant of a group.
type starter struct{ group, variant int }

// wakeUpOf returns the variants of groups that start first, or nil if limits leave no room for all of them together.
func (d *decider) wakeUpOf(groups []int) *wakeUp {
	w := &wakeUp{startCandidate: startCandidate{rank: rankChosen}}
	if len(groups) == 0 {
		return w
	}
	before := slices.Clone(d.usedRoom())
	defer func() { d.used = before }()
	for _, g := range groups {
		first, c := d.firstToWake(g)
		switch {
		case first != noVariant:
			d.reserveRoom(g, first)
			w.starters = append(w.starters, starter{g, first})
			w.rank, w.cost, w.name = max(w.rank, c.rank), w.cost+c.cost, w.name+c.name
		case d.isPlannable(g) && !d.hasStarted(g):
			return nil
		}
	}
	return w
}

// hasStarter reports whether a variant of a group starts.
func (w *wakeUp) hasStarter(g int) bool {
	return slices.ContainsFunc(w.starters, func(s starter) bool { return s.group == g })
}

// starterNames returns the names of the variants that start, for messages.
func (d *decider) starterNames(w *wakeUp) string {
	var names []string
	for _, s := range w.starters {
		names = append(names, d.snapshot.Groups[s.group].Variants[s.variant].Name)
	}
	return strings.Join(names, " and ")
}

// servingSides returns the groups of a model, from first to before end, that serve it together: prefill and decode servers, and those of
// whole requests if they stand beside such a pair.
func (d *decider) servingSides(first, end int) (sides [][]int) {
	var aggregated, others []int
	for g := first; g < end; g++ {
		if d.hasPair(g) {
			aggregated = append(aggregated, g)
		} else {
			others = append(others, g)
		}
	}
	if sides = append(sides, others); len(aggregated) > 0 {
		sides = append(sides, aggregated)
	}
	return sides
}

// keeperSide returns the groups of a model that keep it from zero: those that serve it, start, or would start at the least cost.
func (d *decider) keeperSide(sides [][]int) []int {
	if len(sides) == 1 {
		return sides[0]
	}
	for _, side := range sides {
		if d.areUp(side) {
			return side
		}
	}
	for _, side := range sides {
		if slices.ContainsFunc(side, d.hasStarted) {
			return side
		}
	}
	keeper, best := sides[0], d.wakeUpOf(sides[0])
	for _, side := range sides[1:] {
		if w := d.wakeUpOf(side); w != nil && (best == nil || w.compareTo(best.startCandidate) < 0) {
			keeper, best = side, w
		}
	}
	return keeper
}

// planSleep finds out whether a model, the groups from first to before end, has no servers that are ready, and which variants start first
// then. Without it, the plan for a few requests can be one replica of each variant, and each of them would load the model for nothing. All
// others start when these are ready and the plan wants them.
func (d *decider) planSleep(first, end int) {
	sides := d.servingSides(first, end)
	keeper, served := d.keeperSide(sides), slices.ContainsFunc(sides, d.areUp)
	for g := first; g < end; g++ {
		d.groups[g].keeper, d.groups[g].standby = slices.Contains(keeper, g), noVariant
		d.groups[g].asleep = d.snapshot.Groups[g].Zero.Enabled && !served && !d.isUp(g)
	}
	if w := d.wakeUpOfKeeper(sides, keeper); w != nil {
		for _, s := range w.starters {
			d.groups[s.group].standby = s.variant
		}
	}
	for g := first; g < end; g++ {
		if d.groups[g].asleep {
			d.delayOthers(g)
		}
	}
}

// wakeUpOfKeeper returns the variants that start first of the groups that keep a model from zero. If one of these groups does not become
// ready, and has no other variant to start, another side of the model wakes, too, and keeps it from zero beside them.
func (d *decider) wakeUpOfKeeper(sides [][]int, keeper []int) *wakeUp {
	start := d.dueGroups(keeper)
	w := d.wakeUpOf(start)
	if w == nil || !slices.ContainsFunc(start, func(g int) bool { return d.hasStarted(g) && !w.hasStarter(g) }) {
		return w
	}
	for _, side := range sides {
		if d.groups[side[0]].keeper || !d.areAll(side, d.isPlannable) {
			continue
		}
		if wider := d.wakeUpOf(slices.Concat(start, d.dueGroups(side))); wider != nil {
			for _, g := range side {
				d.groups[g].keeper = true
			}
			return wider
		}
	}
	return w
}

// dueGroups returns those of some groups that need a replica which starts: they have none, or none that becomes ready.
func (d *decider) dueGroups(groups []int) (due []int) {
	for _, g := range groups {
		if d.groups[g].asleep && (!d.hasStarted(g) || d.isStuck(g)) {
			due = append(due, g)
		}
	}
	return due
}

func (*decider) areAll(groups []int, property func(g int) bool) bool {
	return !slices.ContainsFunc(groups, func(g int) bool { return !property(g) })
}

// delayOthers marks the variants of a group that start after another one.
func (d *decider) delayOthers(g int) {
	for i, v := range d.snapshot.Groups[g].Variants {
		d.variants[g][i].delayed = v.Problem == nil && i != d.groups[g].standby && !hasStarted(v)
	}
}

// keepersOf returns the groups of a model that keep it from zero.
func (d *decider) keepersOf(first, end int) (keepers []int) {
	for g := first; g < end; g++ {
		if d.groups[g].keeper {
			keepers = append(keepers, g)
		}
	}
	return keepers
}

// isUp reports whether a group has a replica that is ready, or always has one.
func (d *decider) isUp(g int) bool {
	return d.hasMinimum(g) || slices.ContainsFunc(d.snapshot.Groups[g].Variants, func(v snapshot.Variant) bool { return v.Ready > 0 })
}

// hasMinimum reports whether a group never goes to zero.
func (d *decider) hasMinimum(g int) bool {
	return slices.ContainsFunc(d.variants[g], func(v variantState) bool { return v.Problem == nil && v.bounds.Min > 0 })
}

// areUp reports whether each of some groups has a replica that is ready.
func (d *decider) areUp(groups []int) bool { return d.areAll(groups, d.isUp) }

// hasStarted reports whether a variant of a group that takes part in the choice has replicas, or will have them by the last decision.
func (d *decider) hasStarted(g int) bool {
	return slices.ContainsFunc(d.snapshot.Groups[g].Variants, hasStarted)
}

// isStuck reports whether the replicas of a group do not become ready.
func (d *decider) isStuck(g int) bool {
	since := d.snapshot.Groups[g].Zero.StartsSince
	return !since.IsZero() && d.snapshot.Time.Sub(since) >= stuckAfter
}

// isPlannable reports whether a variant of a group takes part in the choice.
func (d *decider) isPlannable(g int) bool { return d.snapshot.Groups[g].IsActive() }

// anyStage reports whether a property holds for a group of the model of a group.
func (d *decider) anyStage(g int, property func(g int) bool) bool {
	first, end := d.snapshot.ModelGroups(g)
	for i := first; i < end; i++ {
		if property(i) {
			return true
		}
	}
	return false
}

// firstToWake returns the variant of a group that starts first, or noVariant. While a request waits, it is the one that it was before.
func (d *decider) firstToWake(g int) (int, startCandidate) {
	in, best, slowest := &d.snapshot.Groups[g], noVariant, time.Duration(0)
	for i := range in.Variants {
		slowest = max(slowest, in.Variants[i].Start)
	}
	var least startCandidate
	for i := range in.Variants {
		v := &in.Variants[i]
		if v.Problem != nil || d.groups[g].asleep && hasStarted(*v) || !d.hasRoom(g, i) {
			continue
		}
		c := startCandidate{rank: d.startRank(g, i), cost: coldCost(v, slowest, in.Zero.Retention), name: v.Name}
		if best == noVariant || c.compareTo(least) < 0 {
			best, least = i, c
		}
	}
	return best, least
}

// startCandidate is a variant that can start first.
type startCandidate struct {
	rank int
	cost float64
	name string
}

func (c startCandidate) compareTo(o startCandidate) int {
	return cmp.Or(cmp.Compare(c.rank, o.rank), cmp.Compare(c.cost, o.cost), cmp.Compare(c.name, o.name))
}

// Ranks of variants that can start first.
const (
	rankChosen  = iota - 1 // the request that waits has woken it
	rankServes             // it is known to serve the demand of its group alone
	rankUnknown            // nothing is known of it
	rankOther
)

func (d *decider) startRank(g, i int) int {
	in := &d.snapshot.Groups[g]
	c, most := &d.variants[g][i].capacity, d.variants[g][i].bounds.Max
	switch {
	case in.Zero.Waiting > 0 && in.Variants[i].Name == in.Zero.Standby:
		return rankChosen
	case c.rate > 0 && (most == 0 || c.rate*int64(most) >= groupDemand(in)):
		return rankServes
	case c.rate == 0 && c.reason == NoCapacity:
		return rankUnknown
	}
	return rankOther
}

// coldCost returns what a replica of a variant costs from its creation until the model can sleep again after one request, in micro-units. A
// variant whose start was not seen yet takes as long as the slowest one of its group.
func coldCost(v *snapshot.Variant, slowest, retention time.Duration) float64 {
	return float64(v.Cost) * (cmp.Or(v.Start, slowest) + retention).Hours()
}

// nameStandbys names the variants of a model that start first when a request waits, if it has no replicas. If limits leave no room for all
// of them, it names none. They take the room: requests may wait for all such models before the next pass.
func (d *decider) nameStandbys(first, end int) {
	var starters []starter
	none := true
	for g := first; g < end; g++ {
		if d.groups[g].standby != noVariant {
			starters = append(starters, starter{g, d.groups[g].standby})
		}
		none = none && d.snapshot.Groups[g].Zero.Enabled && d.totalDesired(g) == 0
	}
	if none && len(starters) == 0 { // autoscalers may not have removed the last replicas yet
		if w := d.wakeUpOf(d.keepersOf(first, end)); w != nil {
			starters = w.starters
		}
	}
	if len(starters) == 0 {
		return
	}
	before := slices.Clone(d.usedRoom())
	for _, s := range starters {
		if !d.hasRoom(s.group, s.variant) {
			d.used = before
			return
		}
		d.reserveRoom(s.group, s.variant)
	}
	for _, s := range starters {
		d.groups[s.group].standbyName = d.snapshot.Groups[s.group].Variants[s.variant].Name
	}
}
