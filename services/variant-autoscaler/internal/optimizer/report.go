package optimizer

import "slices"

// Report says how a plan serves the groups of a problem: any plan, not only the best one.
type Report struct{ solver *solver }

// NewReport returns a Report about a valid problem.
func NewReport(p *Problem) *Report { return &Report{solver: newSolver(p)} }

// Demand returns the rate of a group with headroom.
func (r *Report) Demand(group int) int64 { return r.solver.groups[group].demand }

// Share returns the part of its demand, in millionths, that a group serves with replicas of its variants.
func (r *Report) Share(group int, replicas []int) int64 { return r.solver.share(group, replicas) }

// Cost returns the cost of replicas of the variants of a group.
func (r *Report) Cost(group int, replicas []int) int64 { return r.solver.costOf(group, replicas) }

// Loads returns the rate that one replica of each variant of a group gets. It is zero for variants that are set aside.
func (r *Report) Loads(group int, replicas []int, rate int64) []int64 {
	var weight int64
	for i, v := range r.solver.own(group) {
		if !v.aside {
			weight += v.weight * int64(replicas[i])
		}
	}
	loads := make([]int64, len(replicas))
	for i, v := range r.solver.own(group) {
		if !v.aside && weight > 0 && replicas[i] > 0 {
			loads[i] = divide(rate, v.weight, weight)
		}
	}
	return loads
}

// Fits reports whether a plan of all variants keeps the limits.
func (r *Report) Fits(plan []int) bool { return len(r.solver.exceeded(plan)) == 0 }

// Counts reports whether a limit of the problem counts a variant of a group.
func (r *Report) Counts(index, group int) bool {
	return slices.ContainsFunc(r.solver.limits, func(l limit) bool { return l.index == index && r.solver.takes(group, l.position) })
}
