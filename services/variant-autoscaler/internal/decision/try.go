package decision

import (
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
)

// trialTime is how long a trial lasts at most: a replica of a large model starts in ten minutes, and then needs some passes under load. It
// bounds the cost of a replica that never serves.
const trialTime = 30 * time.Minute

// try gives a replica, once and for a time, to a variant at zero of which nothing says what it serves: others serve the load, so the plan
// never needs it, and cannot know that it is cheaper. It costs less than a replica in the plan, and at most half of what the plan costs. A
// group has one trial at a time.
func (d *decider) try(g int) {
	in := &d.snapshot.Groups[g]
	served := d.held[g] == "" && d.plan.Shares[g] == optimizer.Million
	best, dearest, cost := -1, int64(0), int64(0)
	for i := range in.Variants {
		v, at := &in.Variants[i], d.first[g]+i
		switch {
		case v.Problem != nil:
		case !d.isUnknown(at):
			if n := d.plan.Replicas[at]; n > 0 {
				dearest, cost = max(dearest, v.Cost), cost+v.Cost*int64(n)
			}
		case v.Trying && served && (!d.snapshot.Settings.Trials || d.snapshot.Time.Sub(v.Tried) >= trialTime):
			d.desired[at] = d.bounds[at].clamp(0)
			d.wanted[at] = d.desired[at]
			return
		case v.Trying:
			d.trial[at] = true
			return
		case v.Tried.IsZero() && v.Now == 0 && d.desired[at] == 0 && d.bounds[at].clamp(1) == 1:
			if best < 0 || cheaper(&d.problem.Groups[g].Variants[i], &d.problem.Groups[g].Variants[best]) {
				best = i
			}
		}
	}
	if !d.snapshot.Settings.Trials || !served || in.Load.Rate == 0 || best < 0 {
		return
	}
	if c := d.cost(g, best); c < dearest && 2*c <= cost && d.raise(g, best, 1, Probing) { //nolint:mnd // half
		d.trial[d.first[g]+best] = true
	}
}

// isUnknown reports whether nothing says what a replica of a variant serves.
func (d *decider) isUnknown(at int) bool {
	return d.capacities[at].rate == 0 && d.capacities[at].reason == NoCapacity
}

// hasUnknown reports whether nothing says what replicas of a variant of a group serve, so that it is not in the choice.
func (d *decider) hasUnknown(g int) bool {
	for at := d.first[g]; at < d.first[g+1]; at++ {
		if d.isUnknown(at) {
			return true
		}
	}
	return false
}
