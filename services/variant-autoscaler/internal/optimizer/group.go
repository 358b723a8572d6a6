package optimizer

import (
	"cmp"
	"slices"
)

// weightThresholds returns the weights that a group may need to serve a load, ascending: which of them counts depends on the variants in
// use. Variants with replicas that must stay are in use.
func (s *solver) weightThresholds(g int, served int64) []int64 {
	members := &s.groups[g]
	var weights []int64
	var least int64
	for i := range s.groupVariants(g) {
		v := &s.groupVariants(g)[i]
		if v.aside {
			continue
		}
		need := v.neededWeight(members, served)
		weights = append(weights, need)
		if v.low > 0 {
			least = max(least, need)
		}
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	return slices.DeleteFunc(weights, func(need int64) bool { return need < least || need > huge })
}

// highestShare returns the largest share that a group can have within its bounds: the best of the plans that use all replicas of the
// variants with the least needs.
func (s *solver) highestShare(g int) int64 {
	members, variants := &s.groups[g], s.groupVariants(g)
	best := s.servedShare(g, s.lowestPlan(g, make([]int, len(variants))))
	if best == Million {
		return best
	}
	var weight int64
	var tightest *variant // of the variants in use, the first that misses its targets
	addInUse := func(v *variant, replicas int) {
		weight = addWeights(weight, scaleWeight(v.weight, int64(replicas)))
		if tightest == nil || isProductLess(v.capacity, tightest.weight, tightest.capacity, v.weight) {
			tightest = v
		}
	}
	for i := range variants {
		if v := &variants[i]; v.low > 0 && !v.aside {
			addInUse(v, v.low)
		}
	}
	rest := members.byNeed(variants)
	if members.demand == 0 && len(rest) > 0 {
		return Million
	}
	for i, v := range rest {
		addInUse(v, v.high-v.low)
		if i+1 < len(rest) && rest[i+1].neededWeight(members, members.demand) == v.neededWeight(members, members.demand) {
			continue
		}
		served := min(members.demand, mulDiv(tightest.capacity, weight, tightest.weight))
		best = max(best, mulDiv(served, Million, members.demand))
	}
	return best
}

// byNeed returns the variants that can have more replicas, the least need first.
func (g *group) byNeed(own []variant) []*variant {
	var variants []*variant
	for i := range own {
		if v := &own[i]; v.high > v.low {
			variants = append(variants, v)
		}
	}
	slices.SortFunc(variants, func(a, b *variant) int { return cmp.Compare(a.neededWeight(g, g.demand), b.neededWeight(g, g.demand)) })
	return variants
}

// lowestPlan fills in the least replicas of a group.
func (s *solver) lowestPlan(g int, plan []int) []int {
	for i := range plan {
		plan[i] = s.groupVariants(g)[i].low
	}
	return plan
}

// value is what a plan of a group is worth among those with the same share, without the last tie-break.
type value struct{ cost, replicas, moves int64 }

func (v value) compareTo(other value) int {
	return cmp.Or(cmp.Compare(v.cost, other.cost), cmp.Compare(v.replicas, other.replicas), cmp.Compare(v.moves, other.moves))
}

func (s *solver) valueOf(g int, replicas []int) value {
	var sum value
	for i, n := range replicas {
		v := &s.groupVariants(g)[i]
		sum.cost += v.cost * int64(n)
		sum.replicas += int64(n)
		sum.moves += absDiff(n, v.now)
	}
	return sum
}

func absDiff(a, b int) int64 { return int64(max(a-b, b-a)) }

// compareNames is negative if the first plan of a group has fewer replicas of the first variant by name that differs.
func (g *group) compareNames(a, b []int) int {
	for _, i := range g.order {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return 0
}
