package decision

import (
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
)

// bridgeFactor is how much sooner a replica of another variant must serve to be worth its start. With 1, a variant that starts a second
// sooner is bought for that second. With 4, a cold pod of 4 minutes does not get help from one of 2.
const bridgeFactor = 2

// coverStarts changes what is acted on while replicas of a group start: those that serve stay until the others are ready, and variants that
// start much faster fill the gap. Both end by themselves when the replicas are ready. A plan that a limit binds is left as it is.
func (d *decider) coverStarts(g int) {
	if d.groups[g].frozen {
		return
	}
	plan := d.desired[g]
	serving := d.servingReplicas(g, plan)
	goal := d.report.Share(g, plan)
	if d.report.Share(g, serving) >= goal {
		return
	}
	d.keepServing(g, serving, goal)
	if d.report.Share(g, d.servingReplicas(g, plan)) < goal {
		d.bridgeGap(g)
	}
}

// servingReplicas returns the replicas of a plan that serve already. A variant without capacity is not counted on, and keeps its replicas.
func (d *decider) servingReplicas(g int, plan []int) []int {
	serving := slices.Clone(plan)
	for i := range serving {
		serving[i] = min(serving[i], d.snapshot.Groups[g].Variants[i].Ready)
	}
	return serving
}

// keepServing keeps replicas that serve and are not in the plan, as long as those of the plan that serve do not have their share: the
// cheapest ones, one by one, while each of them helps.
func (d *decider) keepServing(g int, serving []int, goal int64) {
	for d.report.Share(g, serving) < goal {
		best, share := -1, d.report.Share(g, serving)
		for i := range serving {
			if v := &d.snapshot.Groups[g].Variants[i]; d.variants[g][i].capacity.rate == 0 || serving[i] >= min(v.Ready, v.Now) {
				continue
			}
			serving[i]++
			after := d.report.Share(g, serving)
			serving[i]--
			if after > share || after == share && best >= 0 && d.variantCost(g, i) < d.variantCost(g, best) {
				best, share = i, after
			}
		}
		if best < 0 {
			return
		}
		serving[best]++
		if !d.raiseDesired(g, best, serving[best], Starting) {
			return
		}
	}
}

func (d *decider) variantCost(g, i int) int64 { return d.snapshot.Groups[g].Variants[i].Cost }

// bridgeGap adds replicas of variants that start faster than those for which the group waits: the best plan in which the slow ones have no
// more than what serves.
func (d *decider) bridgeGap(g int) {
	slowest := time.Duration(0) // that the group waits for
	for i := range d.snapshot.Groups[g].Variants {
		if v := &d.snapshot.Groups[g].Variants[i]; d.desired[g][i] > v.Ready {
			slowest = max(slowest, v.Start)
		}
	}
	p := *d.problem
	group := p.Groups[g]
	group.Variants = slices.Clone(group.Variants)
	fast := false
	for i := range group.Variants {
		v, in := &group.Variants[i], &d.snapshot.Groups[g].Variants[i]
		switch serves := min(in.Ready, d.desired[g][i]); {
		case v.Capacity == 0:
		case in.Start > 0 && in.Start*bridgeFactor <= slowest:
			fast = true
		case serves == 0:
			v.Capacity, v.Min, v.Now, v.Held = 0, 0, 0, 0
		default:
			v.Min, v.Max = serves, serves
		}
	}
	if !fast {
		return
	}
	p.Groups = []optimizer.Group{group}
	for i, n := range optimizer.Solve(&p).Replicas {
		if v := &d.snapshot.Groups[g].Variants[i]; v.Start*bridgeFactor <= slowest {
			d.raiseDesired(g, i, n, Bridging)
		}
	}
}

// raiseDesired raises what is acted on for a variant, if the limits permit it, and reports whether they do.
func (d *decider) raiseDesired(g, i, n int, why Reason) bool {
	if n <= d.desired[g][i] {
		return true
	}
	if !d.room.Reserve(d.variants[g][i].number, n-d.desired[g][i]) {
		return false
	}
	d.desired[g][i], d.variants[g][i].why = n, why
	return true
}
