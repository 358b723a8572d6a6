package decision

import (
	"fmt"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// noVariant is the index where there is no variant.
const noVariant = -1

// hasStarted reports whether a variant that takes part in the choice has replicas, or will have them by the last decision.
func hasStarted(v snapshot.Variant) bool {
	return v.Problem == nil && (v.Now > 0 || v.Decided && v.Previous > 0)
}

// hasRoom reports whether all limits, and the free cards of nodes, leave a replica of a variant of a group beside those that count.
func (d *decider) hasRoom(g, i int) bool {
	if d.isCounted(g, i) {
		return true
	}
	used, fits := d.usedRoom(), true
	d.visitUsage(g, i, func(l int, amount int64) { fits = fits && used[l]+amount <= d.limits[l].room })
	return fits
}

// isCounted reports whether a replica of a variant of a group counts already.
func (d *decider) isCounted(g, i int) bool {
	return d.snapshot.Groups[g].Variants[i].Now > 0 || d.desired != nil && d.desired[g][i] > 0
}

// reserveRoom counts a replica of a variant of a group.
func (d *decider) reserveRoom(g, i int) {
	if used := d.usedRoom(); !d.isCounted(g, i) {
		d.visitUsage(g, i, func(l int, amount int64) { used[l] += amount })
	}
}

// usedRoom returns what replicas take of the limits.
func (d *decider) usedRoom() []int64 {
	if d.used == nil {
		d.used = d.countUsage()
	}
	return d.used
}

// countUsage returns how much of each limit all variants use, with their present or decided replicas. Placed pods use no free cards of
// nodes, and admitted pods use nothing of what quotas have left.
func (d *decider) countUsage() []int64 {
	used := make([]int64, len(d.limits))
	for g := range d.snapshot.Groups {
		for i := range d.snapshot.Groups[g].Variants {
			v := &d.snapshot.Groups[g].Variants[i]
			n := int64(min(max(v.Now, 0), optimizer.MaxReplicas))
			if d.desired != nil {
				n = max(n, int64(d.desired[g][i]))
			}
			unplaced, unadmitted := n, n
			if v.Pods != nil {
				unplaced, unadmitted = max(n-v.Pods.Placed/v.Pods.Count, 0), max(n-v.Pods.Admitted/v.Pods.Count, 0)
			}
			d.visitUsage(g, i, func(l int, amount int64) {
				switch {
				case d.limits[l].Limit >= 0:
					used[l] += amount * n
				case d.limits[l].Quota == nil:
					used[l] += amount * unplaced
				default:
					used[l] += amount * unadmitted
				}
			})
		}
	}
	return used
}

// visitUsage visits the limits, those of places and quotas too, that a replica of a variant uses.
func (d *decider) visitUsage(g, i int, visit func(l int, amount int64)) {
	v := &d.snapshot.Groups[g].Variants[i]
	for l := range d.snapshot.Limits {
		if amount := d.replicaUsage(l, g, v); amount > 0 {
			visit(l, amount)
		}
	}
	for _, t := range d.limitUsage(v.Pods) {
		visit(t.Limit, t.Amount)
	}
}

// replicaUsage returns how much of a limit a replica of a variant uses.
func (d *decider) replicaUsage(l, g int, v *snapshot.Variant) int64 {
	limit := &d.snapshot.Limits[l]
	switch {
	case !limit.CountsVariant(v, d.snapshot.Groups[g].Priority):
		return 0
	case limit.Unit == snapshot.Cards:
		return v.Cards
	case limit.Unit == snapshot.Cost:
		return v.Cost
	}
	return 1
}

// wakeGroup gives the variant of a group that starts first a replica, if a request waits. One that starts already goes on.
func (d *decider) wakeGroup(g int, group *optimizer.Group) {
	in := &d.snapshot.Groups[g]
	for i := range group.Variants {
		v := &group.Variants[i]
		// Without a known capacity the plan cannot want it, and beside one that does not become ready, it need not.
		asks := i == d.groups[g].standby && group.NeedsReplica && (v.Capacity == 0 || d.hasStarted(g))
		if asks || group.NeedsReplica && hasStarted(in.Variants[i]) {
			v.Min, v.Now, v.Held = max(v.Min, 1), max(v.Now, 1), max(v.Held, 1)
		}
	}
}

// releaseUnknown lets variants go of which nothing is known, if their group may have no replicas now. They keep theirs otherwise. They stay
// while the stabilization window holds other replicas of the model: if a role went before another one, the model would have changed, and
// need it again.
func (d *decider) releaseUnknown(g int, group *optimizer.Group) {
	if d.anyStage(g, d.isStabilized) {
		return
	}
	for i := range group.Variants {
		in := &d.snapshot.Groups[g].Variants[i]
		if v := &group.Variants[i]; v.Capacity == 0 && in.Problem == nil {
			least := d.variants[g][i].bounds.clampReplicas(0)
			v.Min, v.Now, v.Held = least, least, least
		}
	}
}

// isStabilized reports whether the stabilization window holds replicas of a group.
func (d *decider) isStabilized(g int) bool {
	return slices.ContainsFunc(d.variants[g], func(v variantState) bool { return v.capacity.rate > 0 && min(v.Now, v.Held) > v.bounds.Min })
}

// canStop reports whether a group may have no replicas now.
func (d *decider) canStop(g int) bool {
	group := &d.problem.Groups[g]
	return d.snapshot.Groups[g].Zero.Enabled && !d.groups[g].frozen && !group.NeedsReplica && group.Rate == 0
}

// mustWake reports whether a group at zero needs a replica: a request waits or was refused, or nothing would see one, or no request would
// wait.
func (d *decider) mustWake(g int) bool {
	in := &d.snapshot.Groups[g]
	z := &in.Zero
	arrives := in.Load.State == snapshot.Found && (in.Load.Queued > 0 || in.Load.Rate > 0)
	unseen := z.Requests == nil && in.Load.State == snapshot.Missing && !z.Watched
	return arrives || z.Waiting > 0 || z.Requests != nil && *z.Requests > 0 || unseen || d.neighborOf(in) != ""
}

// retentionReason returns why a group with replicas that may go to zero keeps one, empty if it need not. The groups of the roles of a model
// go to zero together. They must never sleep without something that sees the next request, nor before a replica could answer those that
// woke it.
func (d *decider) retentionReason(g int) string {
	first, end := d.snapshot.ModelGroups(g)
	for i := first; i < end; i++ {
		if i != g && d.snapshot.Groups[i].Load.State != snapshot.Found && d.hasReplicas(i) {
			return "the load of the servers with another role is not known"
		}
		if why := d.retentionReasonAlone(i); why != "" {
			return why
		}
	}
	if w := d.compareWarm(g); w != nil && w.Keeps {
		return "waking costs more: " + w.String()
	}
	return ""
}

func (d *decider) retentionReasonAlone(g int) string {
	in := &d.snapshot.Groups[g]
	z := &in.Zero
	recent := func(t time.Time) bool { return d.snapshot.Time.Sub(t) < z.Retention }
	switch {
	case z.Requests == nil:
		return fmt.Sprintf("the requests of the last %s are not known: %s", z.Retention, z.RequestsMessage)
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
func (d *decider) reasonAsleep(g, i int) (Reason, string) {
	in, n := &d.snapshot.Groups[g], d.desired[g][i]
	started := hasStarted(in.Variants[i])
	switch {
	case !d.groups[g].asleep || !d.problem.Groups[g].NeedsReplica || d.groups[g].frozen && (d.variants[g][i].delayed || started):
		return "", ""
	case d.variants[g][i].delayed && !d.anyStage(g, func(i int) bool { return d.groups[i].standby != noVariant || d.hasStarted(i) }):
		return Waking, "Requests wait, and limits, quotas or the free accelerators of nodes leave no room for a first replica: raise a limit, or add nodes"
	case d.variants[g][i].delayed:
		return Waking, "No replica starts before the one that wakes the model is ready"
	case n == 0:
		return "", ""
	case started:
		return Waking, fmt.Sprintf("%s of the variant that wakes the model: wait until it is ready, or see why its pods do not start",
			formatReplicas(n))
	}
	return Waking, fmt.Sprintf("%s: requests wait, and this variant costs least from a cold start until the model can have no replicas again",
		formatReplicas(n))
}
