package decision

import (
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
)

// trialTime is how long a trial lasts at most: a replica of a large model starts in ten minutes, and then needs some passes under load. It
// bounds the cost of a replica that never serves.
const trialTime = 30 * time.Minute

// startTrial gives a replica, once and for a time, to a variant at zero of which nothing says what it serves: others serve the load, so the
// plan never needs it, and cannot know that it is cheaper. It costs less than a replica in the plan, and at most half of what the plan
// costs. A group has one trial at a time.
func (d *decider) startTrial(g int) {
	served := !d.groups[g].frozen && d.plan.Shares[g] == optimizer.Million
	if d.continueTrial(g, served) || !d.snapshot.Settings.Trials || !served || d.snapshot.Groups[g].Load.Rate == 0 {
		return
	}
	best := d.trialCandidate(g)
	if best < 0 {
		return
	}
	dearest, total := d.planCosts(g)
	if c := d.variantCost(g, best); c < dearest && 2*c <= total && d.raiseDesired(g, best, 1, Probing) { // half
		d.variants[g][best].trial = true
	}
}

// planCosts returns the largest cost of a replica in the plan of a group, and the cost of all of them.
func (d *decider) planCosts(g int) (dearest, total int64) {
	for i := range d.snapshot.Groups[g].Variants {
		if n := d.planned[g][i]; n > 0 && d.snapshot.Groups[g].Variants[i].Problem == nil && !d.variants[g][i].isUnknown() {
			dearest, total = max(dearest, d.variantCost(g, i)), total+d.variantCost(g, i)*int64(n)
		}
	}
	return dearest, total
}

// continueTrial ends the trial of a group that took too long while others serve the load, and reports whether the group had one.
func (d *decider) continueTrial(g int, served bool) bool {
	for i := range d.snapshot.Groups[g].Variants {
		v := &d.variants[g][i]
		if !v.Trying || !v.isUnknown() {
			continue
		}
		late := !d.snapshot.Settings.Trials || d.snapshot.Time.Sub(v.Tried) >= trialTime
		if v.trial = !served || !late; !v.trial {
			d.desired[g][i] = v.bounds.clampReplicas(0)
			d.wanted[g][i] = d.desired[g][i]
		}
		return true
	}
	return false
}

// trialCandidate returns the cheapest variant of a group at zero of which nothing is known, and that was never tried, or -1.
func (d *decider) trialCandidate(g int) int {
	best, variants := -1, d.problem.Groups[g].Variants
	for i := range variants {
		v := &d.variants[g][i]
		free := v.Problem == nil && v.isUnknown() && v.Tried.IsZero() && v.Now == 0 && d.desired[g][i] == 0 && !v.delayed
		if free && (best < 0 || isCheaper(&variants[i], &variants[best])) {
			best = i
		}
	}
	return best
}

// isUnknown reports whether nothing says what a replica of a variant serves.
func (v *variantState) isUnknown() bool {
	return v.capacity.rate == 0 && v.capacity.reason == NoCapacity
}

// hasUnknown reports whether nothing says what replicas of a variant of a group serve, so that it is not in the choice.
func (d *decider) hasUnknown(g int) bool {
	return slices.ContainsFunc(d.variants[g], func(v variantState) bool { return v.isUnknown() })
}
