package optimizer

import "slices"

// Stabilize returns the replicas that are acted on: it applies hysteresis and stabilization to a plan. A group keeps its present replicas
// if they serve as much and the plan saves too little. A replica goes only after it was not wanted for the whole stabilization window,
// unless the group would serve less with it: a slow replica can hold back the others. Groups that take from a limit that this exceeds act
// on the plan.
func Stabilize(p *Problem, plan *Plan) []int {
	s := newSolver(p)
	acted := make([]int, len(s.variants))
	copy(s.plan, plan.Replicas)
	for g := range s.groups {
		members := s.groups[g]
		copy(acted[members.first:members.end], s.stabilizedPlan(g, s.wantedPlan(g, s.groupPlan(g))))
	}
	sums := s.usage(acted)
	firstExceeded := func() int {
		return slices.IndexFunc(s.limits, func(l limit) bool { return sums[l.position] > l.amount })
	}
	for l := firstExceeded(); l >= 0; l = firstExceeded() {
		for g := range s.groups {
			if members := s.groups[g]; s.usesLimit(g, l) {
				s.addUsage(sums, g, acted[members.first:members.end], -1)
				copy(acted[members.first:members.end], s.groupPlan(g))
				s.addUsage(sums, g, acted[members.first:members.end], 1)
			}
		}
	}
	return acted
}

// wantedPlan returns the plan of a group, or its present replicas if the plan is not worth the change.
func (s *solver) wantedPlan(g int, plan []int) []int {
	now := make([]int, len(plan))
	for i, v := range s.groupVariants(g) {
		now[i] = v.now
		if v.now < v.low || v.now > v.max {
			return plan
		}
	}
	before, after := s.costOf(g, now), s.costOf(g, plan)
	if s.servedShare(g, now) >= s.servedShare(g, plan) && (before-after)*100 < s.problem.SavingPercent*before { // percent
		return now
	}
	return plan
}

// stabilizedPlan returns the wanted replicas of a group, and those that stabilization still keeps.
func (s *solver) stabilizedPlan(g int, wanted []int) []int {
	held := make([]int, len(wanted))
	for i, v := range s.groupVariants(g) {
		held[i] = max(wanted[i], min(v.now, v.held, v.max))
	}
	if s.servedShare(g, held) < s.servedShare(g, wanted) {
		return wanted
	}
	return held
}

func (s *solver) usesLimit(g, limit int) bool {
	return slices.ContainsFunc(s.groupVariants(g), func(v variant) bool { return v.limitAmount(limit) > 0 })
}

// WantedReplicas returns what each group wants: the plan, or its present replicas if the plan saves too little. It is what counts as wanted
// in a stabilization window.
func WantedReplicas(p *Problem, plan *Plan) []int {
	s := newSolver(p)
	copy(s.plan, plan.Replicas)
	wanted := make([]int, 0, len(s.variants))
	for g := range s.groups {
		wanted = append(wanted, s.wantedPlan(g, s.groupPlan(g))...)
	}
	return wanted
}
