package optimizer

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

func newSolver(p *Problem) *solver {
	s := &solver{problem: p}
	var priorities []int
	for i := range p.Groups {
		priorities = append(priorities, p.Groups[i].Priority)
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)
	for i := range p.Groups {
		g := &p.Groups[i]
		first := len(s.variants)
		made := group{
			first: first, end: first + len(g.Variants), tier: slices.Index(priorities, g.Priority), keepOne: g.KeepOne,
			demand: divideUp(g.Rate, 100+p.HeadroomPercent, 100), //nolint:mnd // percent
		}
		s.variants = append(s.variants, newVariants(p.Split, g, &made)...)
		for n := range g.Variants {
			made.order = append(made.order, n)
		}
		slices.SortFunc(made.order, func(a, b int) int { return cmp.Compare(g.Variants[a].Name, g.Variants[b].Name) })
		s.groups = append(s.groups, made)
	}
	s.plan = make([]int, len(s.variants))
	s.setLimits()
	s.setOrder()
	return s
}

func newVariants(split Split, g *Group, made *group) []variant {
	weights := weightsOf(split, g.Variants)
	all := make([]variant, len(g.Variants))
	var most int64 // weight with which every variant may be used
	for i := range g.Variants {
		v := &g.Variants[i]
		w := variant{cost: v.Cost, capacity: v.Capacity, weight: weights[i], low: v.Min, max: v.Max, now: v.Now, held: v.Held}
		if v.Max == 0 {
			w.max = MaxReplicas
		}
		if w.capacity == 0 {
			w.aside, w.low = true, min(max(v.Now, v.Min), w.max)
		} else {
			most = max(most, w.need(made, made.demand))
		}
		all[i] = w
	}
	for i := range all {
		w := &all[i]
		w.high = w.low
		if !w.aside {
			w.high = max(w.low, int(min(divideUp(most, 1, w.weight), int64(w.max))))
		}
	}
	return all
}

// need returns the weight that a group needs if the variant is used, and the group serves a load.
func (v *variant) need(g *group, served int64) int64 {
	if g.demand == 0 && g.keepOne {
		return 1 // any replica will do
	}
	return divideUp(served, v.weight, v.capacity)
}

// weightsOf returns the weights by which the picker divides the load of a group.
func weightsOf(split Split, variants []Variant) []int64 {
	all := make([]int64, len(variants))
	var seen, able int64
	for i := range variants {
		v := &variants[i]
		all[i] = 1
		if split != SplitEqual {
			all[i] = v.Capacity
		}
		if split == SplitObserved && v.Weight > 0 && v.Capacity > 0 {
			all[i] = v.Weight
			seen += v.Weight
			able += v.Capacity
		}
	}
	if seen == 0 {
		return all
	}
	for i := range variants {
		if v := &variants[i]; v.Weight == 0 && v.Capacity > 0 { // as busy as those that were seen
			all[i] = max(1, divide(v.Capacity, seen, able))
		}
	}
	return all
}

// setLimits raises limits to what the least replicas take: they are there, whatever the plan.
func (s *solver) setLimits() {
	for l := range s.problem.Limits {
		limit := &s.problem.Limits[l]
		var least int64
		for g := range s.groups {
			in := &s.problem.Groups[g]
			for i := range s.own(g) {
				v := &s.own(g)[i]
				if v.takes == nil {
					v.takes = make([]int64, len(s.problem.Limits))
				}
				if limit.matches(in, &in.Variants[i]) {
					v.takes[l] = limit.takenBy(&in.Variants[i])
					least += v.takes[l] * int64(v.low)
				}
			}
		}
		s.limits = append(s.limits, max(limit.Amount, least))
	}
}

func (s *solver) setOrder() {
	of := make([]int, 0, len(s.variants)) // group of each variant
	for g := range s.groups {
		for i := s.groups[g].first; i < s.groups[g].end; i++ {
			of = append(of, g)
			s.order = append(s.order, i)
		}
	}
	groups := s.problem.Groups
	slices.SortFunc(s.order, func(a, b int) int {
		x, y := of[a], of[b]
		return cmp.Or(cmp.Compare(groups[x].Namespace, groups[y].Namespace),
			cmp.Compare(groups[x].Variants[a-s.groups[x].first].Name, groups[y].Variants[b-s.groups[y].first].Name))
	})
}

// share returns the part of its demand, in millionths, that a group can serve while every variant in use keeps its targets.
func (s *solver) share(g int, replicas []int) int64 {
	of, own := &s.groups[g], s.own(g)
	var weight, used int64
	for i, n := range replicas {
		if !own[i].aside {
			weight += own[i].weight * int64(n)
			used += int64(n)
		}
	}
	if of.demand == 0 {
		if of.keepOne && used == 0 {
			return 0
		}
		return Million
	}
	if used == 0 {
		return 0
	}
	served := of.demand
	for i, n := range replicas {
		if v := &own[i]; !v.aside && n > 0 {
			served = min(served, divide(v.capacity, weight, v.weight))
		}
	}
	return divide(served, Million, of.demand)
}

// servedAt returns the least load that counts as a share.
func (g *group) servedAt(share int64) int64 { return divideUp(share, g.demand, Million) }

// huge stands for quotients that do not fit.
const huge = math.MaxInt64 / 4

// divide returns a·b/c rounded down.
func divide(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return huge
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, huge))
}

// divideUp returns a·b/c rounded up.
func divideUp(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return huge
	}
	quotient, rest := bits.Div64(high, low, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, huge))
}
