package decision

import (
	"fmt"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// nobody is the number of no variant.
const nobody = -1

// sleepers are the groups that may have no replicas, and have none that is ready.
type sleepers struct {
	asleep       []bool   // by group
	keeper       []bool   // groups that keep their model from zero; the others only have what their load needs
	standby      []int    // variant of each group that starts first when a request waits, or nobody: one starts already
	standbyNames []string // by group, as decided; empty: none
	later        []bool   // variants that start no replica before another one of their group is ready
	used         []int64  // by limit, and by place, by the replicas that count; nil: not counted yet
}

func newSleepers(groups, variants int) sleepers {
	return sleepers{
		asleep: make([]bool, groups), keeper: make([]bool, groups), standby: make([]int, groups), standbyNames: make([]string, groups),
		later: make([]bool, variants),
	}
}

// hasStarted reports whether a variant that takes part in the choice has replicas, or will have them by the last decision.
func hasStarted(v snapshot.Variant) bool {
	return v.Problem == nil && (v.Now > 0 || v.Decided && v.Previous > 0)
}

// fits reports whether all limits, and the free cards of nodes, leave a replica of a variant of a group beside those that count.
func (d *decider) fits(g, i int) bool {
	if d.counts(g, i) {
		return true
	}
	used, fits := d.usedRoom(), true
	d.eachTaken(g, i, func(l int, one int64) { fits = fits && used[l]+one <= d.roomOf(l) })
	return fits
}

// counts reports whether a replica of a variant of a group counts already.
func (d *decider) counts(g, i int) bool {
	return d.snapshot.Groups[g].Variants[i].Now > 0 || d.desired != nil && d.desired[d.first[g]+i] > 0
}

// takeRoom counts a replica of a variant of a group.
func (d *decider) takeRoom(g, i int) {
	if used := d.usedRoom(); !d.counts(g, i) {
		d.eachTaken(g, i, func(l int, one int64) { used[l] += one })
	}
}

// usedRoom returns what replicas take of the limits.
func (d *decider) usedRoom() []int64 {
	if d.used == nil {
		d.used = d.taken()
	}
	return d.used
}

// taken returns what all variants take of the limits, with the replicas that they have, or get if that is decided. Of the free cards of nodes,
// pods that are placed take none, and of what quotas have left, those that are admitted.
func (d *decider) taken() []int64 {
	used := make([]int64, len(d.snapshot.Limits)+len(d.places)+len(d.quotaLimits))
	for g := range d.snapshot.Groups {
		for i := range d.snapshot.Groups[g].Variants {
			v, at := &d.snapshot.Groups[g].Variants[i], d.first[g]+i
			n := int64(min(max(v.Now, 0), optimizer.MaxReplicas))
			if d.desired != nil {
				n = max(n, int64(d.desired[at]))
			}
			unplaced, unadmitted := n, n
			if v.Pods != nil {
				unplaced, unadmitted = max(n-v.Pods.Placed/v.Pods.Count, 0), max(n-v.Pods.Admitted/v.Pods.Count, 0)
			}
			d.eachTaken(g, i, func(l int, one int64) {
				switch {
				case l < len(d.snapshot.Limits):
					used[l] += one * n
				case l < len(d.snapshot.Limits)+len(d.places):
					used[l] += one * unplaced
				default:
					used[l] += one * unadmitted
				}
			})
		}
	}
	return used
}

// roomOf returns the amount of a limit, the places that nodes have, or what quotas have left.
func (d *decider) roomOf(l int) int64 {
	if l < len(d.snapshot.Limits) {
		return d.snapshot.Limits[l].Amount
	}
	l -= len(d.snapshot.Limits)
	if l < len(d.places) {
		return d.snapshot.Nodes[d.places[l].set].Places(d.places[l].cards)
	}
	return d.quotaLimits[l-len(d.places)].left(d.quotas)
}

// eachTaken visits the limits, those of places and quotas too, of which a replica of a variant of a group takes something.
func (d *decider) eachTaken(g, i int, visit func(l int, one int64)) {
	v := &d.snapshot.Groups[g].Variants[i]
	for l := range d.snapshot.Limits {
		if one := d.takes(l, g, v); one > 0 {
			visit(l, one)
		}
	}
	for _, t := range d.takenRoom(v.Pods) {
		visit(t.Limit, t.Amount)
	}
}

// takes returns what a replica of a variant of a group takes of a limit.
func (d *decider) takes(l, g int, v *snapshot.Variant) int64 {
	limit := &d.snapshot.Limits[l]
	switch {
	case limit.Accelerator != "" && limit.Accelerator != v.Accelerator, limit.Namespace != "" && limit.Namespace != v.Namespace,
		limit.Priority != 0 && limit.Priority != d.snapshot.Groups[g].Priority:
		return 0
	case limit.Unit == snapshot.Cards:
		return v.Cards
	case limit.Unit == snapshot.Cost:
		return v.Cost
	}
	return 1
}

// wake gives the variant of a group that starts first a replica, if a request waits. One that starts already goes on.
func (d *decider) wake(g int, made *optimizer.Group) {
	in := &d.snapshot.Groups[g]
	for i := range made.Variants {
		v := &made.Variants[i]
		// Without a known capacity the plan cannot want it, and beside one that does not become ready, it need not.
		asks := i == d.standby[g] && made.KeepOne && (v.Capacity == 0 || d.hasStarted(g))
		if asks || made.KeepOne && hasStarted(in.Variants[i]) {
			v.Min, v.Now, v.Held = max(v.Min, 1), max(v.Now, 1), max(v.Held, 1)
		}
	}
}

// release lets variants go of which nothing is known, if their group may have no replicas now. They keep theirs otherwise. They stay while the
// stabilization window holds other replicas of the model: if a role went before another one, the model would have changed, and need it again.
func (d *decider) release(g int, made *optimizer.Group) {
	if d.anyStage(g, d.isStabilized) {
		return
	}
	for i := range made.Variants {
		in := &d.snapshot.Groups[g].Variants[i]
		if v := &made.Variants[i]; v.Capacity == 0 && in.Problem == nil {
			least := d.bounds[d.first[g]+i].clamp(0)
			v.Min, v.Now, v.Held = least, least, least
		}
	}
}

// isStabilized reports whether the stabilization window holds replicas of a group.
func (d *decider) isStabilized(g int) bool {
	for i, v := range d.snapshot.Groups[g].Variants {
		if at := d.first[g] + i; d.capacities[at].rate > 0 && min(v.Now, v.Held) > d.bounds[at].Min {
			return true
		}
	}
	return false
}

// mayStop reports whether a group may have no replicas now.
func (d *decider) mayStop(g int) bool {
	made := &d.problem.Groups[g]
	return d.snapshot.Groups[g].Zero.Enabled && d.held[g] == "" && !made.KeepOne && made.Rate == 0
}

// wakes reports whether a group at zero needs a replica: a request waits or was refused, or nothing would see one, or no request would wait.
func (d *decider) wakes(g int) bool {
	in := &d.snapshot.Groups[g]
	z := &in.Zero
	arrives := in.Load.State == snapshot.Found && (in.Load.Queued > 0 || in.Load.Rate > 0)
	unseen := z.Requests == nil && in.Load.State == snapshot.Missing && !z.Watched
	return arrives || z.Waiting > 0 || z.Requests != nil && *z.Requests > 0 || unseen || d.neighborOf(in) != ""
}

// retained returns why a group with replicas that may go to zero keeps one, empty if it need not. The groups of the roles of a model go to
// zero together. They must never sleep without something that sees the next request, nor before a replica could answer those that woke it.
func (d *decider) retained(g int) string {
	first, end := d.snapshot.Stages(g)
	for i := first; i < end; i++ {
		if i != g && d.snapshot.Groups[i].Load.State != snapshot.Found && d.hasReplicas(i) {
			return "the load of the servers with another role is not known"
		}
		if why := d.retainedAlone(i); why != "" {
			return why
		}
	}
	if w := d.warm(g); w != nil && w.Keeps {
		return "waking costs more: " + w.String()
	}
	return ""
}

func (d *decider) retainedAlone(g int) string {
	in := &d.snapshot.Groups[g]
	z := &in.Zero
	recent := func(t time.Time) bool { return d.snapshot.Time.Sub(t) < z.Retention }
	switch {
	case z.Requests == nil:
		return fmt.Sprintf("the requests of the last %s are not known", z.Retention)
	case *z.Requests > 0:
		return fmt.Sprintf("the last request was less than %s ago", z.Retention)
	case in.Load.Queued > 0 || z.Waiting > 0:
		return "requests wait"
	case z.ServesSince.IsZero():
		return "no replica has been ready yet"
	case recent(z.ServesSince):
		return fmt.Sprintf("the first replica has been ready for less than %s", z.Retention)
	case recent(z.Changed):
		return fmt.Sprintf("the replicas changed, or another replica of this program led, less than %s ago", z.Retention)
	case d.neighborOf(in) != "":
		return fmt.Sprintf("its requests would not wait: the InferencePool has servers of model %.100q, too. Give each model a pool of its own", d.neighborOf(in))
	case !z.Watched:
		return "nothing would see a request that waits: let Prometheus scrape the picker of the InferencePool"
	}
	return ""
}

// reasonAsleep says how the replicas of a variant of a group came about that has none ready, or returns nothing if the plan says it.
func (d *decider) reasonAsleep(g, at int) (Reason, string) {
	in, n := &d.snapshot.Groups[g], d.desired[at]
	started := hasStarted(in.Variants[at-d.first[g]])
	switch {
	case !d.asleep[g] || !d.problem.Groups[g].KeepOne || d.held[g] != "" && (d.later[at] || started):
		return "", ""
	case d.later[at] && !d.anyStage(g, func(i int) bool { return d.standby[i] != nobody || d.hasStarted(i) }):
		return Waking, "Requests wait, and limits, quotas or the free accelerators of nodes leave no room for a first replica: raise a limit, or add nodes"
	case d.later[at]:
		return Waking, "No replica starts before the one that wakes the model is ready"
	case n == 0:
		return "", ""
	case started:
		return Waking, fmt.Sprintf("%s of the variant that wakes the model: wait until it is ready, or see why its pods do not start", replicas(n))
	}
	return Waking, fmt.Sprintf("%s: requests wait, and this variant costs least from a cold start until the model can have no replicas again", replicas(n))
}
