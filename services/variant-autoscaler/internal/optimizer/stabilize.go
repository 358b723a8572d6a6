package optimizer

import "slices"

// Stabilize returns what each group wants, and the replicas that are acted on: it applies hysteresis and stabilization to a plan. A group
// wants its present replicas if they serve as much and the plan saves too little. A replica goes only after it was not wanted for the whole
// stabilization window, unless the group would serve less with it: a slow replica can hold back the others. Groups that take from a limit
// that this exceeds act on the plan.
func Stabilize(p *Problem, plan *Plan) (wanted, acted []int) {
	s := newSolver(p)
	copy(s.plan, plan.Replicas)
	wanted, acted = make([]int, 0, len(s.plan)), make([]int, 0, len(s.plan))
	for g := range s.groups {
		wants := s.wantedPlan(g, s.groupPlan(g))
		wanted, acted = append(wanted, wants...), append(acted, s.stabilizedPlan(g, wants)...)
	}
	for exceeded := s.exceededLimits(acted); len(exceeded) > 0; exceeded = s.exceededLimits(acted) {
		for g := range s.groups {
			if members := &s.groups[g]; s.usesLimit(g, exceeded[0]) {
				copy(acted[members.first:members.end], s.groupPlan(g))
			}
		}
	}
	return wanted, acted
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
