package optimizer

import "slices"

// Act returns what is acted on: hysteresis and stabilization, after the plan. A group keeps its present replicas if they serve as much
// and the plan saves too little. A replica goes only after it was not wanted for the whole stabilization window, unless the group would
// serve less with it: a slow replica can hold back the others. Groups that take from a limit that this exceeds act on the plan.
func Act(p *Problem, plan *Plan) []int {
	s := newSolver(p)
	acted := make([]int, len(s.variants))
	copy(s.plan, plan.Replicas)
	for g := range s.groups {
		of := s.groups[g]
		copy(acted[of.first:of.end], s.held(g, s.wanted(g, s.part(g))))
	}
	sums := s.taken(acted)
	firstExceeded := func() int {
		return slices.IndexFunc(s.limits, func(l limit) bool { return sums[l.position] > l.amount })
	}
	for l := firstExceeded(); l >= 0; l = firstExceeded() {
		for g := range s.groups {
			if of := s.groups[g]; s.takes(g, l) {
				s.addTaken(sums, g, acted[of.first:of.end], -1)
				copy(acted[of.first:of.end], s.part(g))
				s.addTaken(sums, g, acted[of.first:of.end], 1)
			}
		}
	}
	return acted
}

// wanted returns the plan of a group, or its present replicas if the plan is not worth the change.
func (s *solver) wanted(g int, plan []int) []int {
	now := make([]int, len(plan))
	for i, v := range s.own(g) {
		now[i] = v.now
		if v.now < v.low || v.now > v.max {
			return plan
		}
	}
	before, after := s.costOf(g, now), s.costOf(g, plan)
	if s.share(g, now) >= s.share(g, plan) && (before-after)*100 < s.problem.SavingPercent*before { //nolint:mnd // percent
		return now
	}
	return plan
}

// held returns the wanted replicas of a group with those that are not let go yet.
func (s *solver) held(g int, wanted []int) []int {
	held := make([]int, len(wanted))
	for i, v := range s.own(g) {
		held[i] = max(wanted[i], min(v.now, v.held, v.max))
	}
	if s.share(g, held) < s.share(g, wanted) {
		return wanted
	}
	return held
}

func (s *solver) takes(g, limit int) bool {
	return slices.ContainsFunc(s.own(g), func(v variant) bool { return v.amount(limit) > 0 })
}

// Wanted returns what each group wants: the plan, or its present replicas if the plan saves too little. It is what counts as wanted in a
// stabilization window.
func Wanted(p *Problem, plan *Plan) []int {
	s := newSolver(p)
	copy(s.plan, plan.Replicas)
	wanted := make([]int, 0, len(s.variants))
	for g := range s.groups {
		wanted = append(wanted, s.wanted(g, s.part(g))...)
	}
	return wanted
}
