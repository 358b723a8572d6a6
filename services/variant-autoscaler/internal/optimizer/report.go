package optimizer

import "slices"

// Report says how a plan serves the groups of a problem: any plan, not only the best one.
type Report struct{ solver *solver }

// NewReport returns a Report about a valid problem.
func NewReport(p *Problem) *Report { return &Report{solver: newSolver(p)} }

// Demand returns the rate of a group with headroom.
func (r *Report) Demand(group int) int64 { return r.solver.groups[group].demand }

// Share returns the part of its demand, in millionths, that a group serves with replicas of its variants.
func (r *Report) Share(group int, replicas []int) int64 { return r.solver.servedShare(group, replicas) }

// ReplicaLoads returns the rate that one replica of each variant of a group gets. It is zero for variants that are set aside.
func (r *Report) ReplicaLoads(group int, replicas []int, rate int64) []int64 {
	var weight int64
	for i, v := range r.solver.groupVariants(group) {
		if !v.aside {
			weight += v.weight * int64(replicas[i])
		}
	}
	loads := make([]int64, len(replicas))
	for i, v := range r.solver.groupVariants(group) {
		if !v.aside && weight > 0 && replicas[i] > 0 {
			loads[i] = mulDiv(rate, v.weight, weight)
		}
	}
	return loads
}

// Room is what the limits leave beside a plan.
type Room struct {
	solver *solver
	taken  []int64
}

// RoomBeside returns the room beside a plan of all variants.
func (r *Report) RoomBeside(plan []int) *Room {
	return &Room{solver: r.solver, taken: r.solver.usage(plan)}
}

// Reserve reserves room for further replicas of a variant, numbered over all groups. If a limit leaves too little, it reserves nothing and
// returns false.
func (r *Room) Reserve(variant, replicas int) bool {
	takes := r.solver.variants[variant].limitUses
	for _, t := range takes {
		if r.taken[t.limit]+t.amount*int64(replicas) > r.solver.limits[t.limit].amount {
			return false
		}
	}
	for _, t := range takes {
		r.taken[t.limit] += t.amount * int64(replicas)
	}
	return true
}

// CountsGroup reports whether a limit of the problem counts a variant of a group.
func (r *Report) CountsGroup(index, group int) bool {
	l := slices.IndexFunc(r.solver.limits, func(l limit) bool { return l.index == index })
	return l >= 0 && r.solver.usesLimit(group, l)
}
