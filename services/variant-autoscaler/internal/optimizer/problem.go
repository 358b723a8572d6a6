package optimizer

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func newSolver(p *Problem) *solver {
	s := &solver{problem: p, steps: maxSteps, listSteps: maxListSteps}
	var priorities []int
	for i := range p.Groups {
		priorities = append(priorities, p.Groups[i].Priority)
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)
	for i := range p.Groups {
		g := &p.Groups[i]
		first := len(s.variants)
		tier, _ := slices.BinarySearch(priorities, g.Priority)
		built := group{
			first: first, end: first + len(g.Variants), tier: tier, needsReplica: g.NeedsReplica,
			demand: mulDivUp(g.Rate, 100+p.HeadroomPercent, 100), // percent
		}
		s.variants = append(s.variants, newVariants(p.Split, g, &built)...)
		built.order = snapshot.SortedPositions(len(g.Variants),
			func(a, b int) int { return cmp.Compare(g.Variants[a].Name, g.Variants[b].Name) })
		s.groups = append(s.groups, built)
	}
	s.plan = make([]int, len(s.variants))
	s.setLimits()
	s.setOrder()
	return s
}

func newVariants(split Split, g *Group, target *group) []variant {
	weights := weightsOf(split, g.Variants)
	variants := make([]variant, len(g.Variants))
	var most int64 // weight with which every variant may be used
	for i := range g.Variants {
		v := &g.Variants[i]
		w := variant{
			cost: v.Cost, capacity: v.Capacity, weight: weights[i], low: v.Min, max: cmp.Or(v.Max, MaxReplicas), now: v.Now, held: v.Held,
		}
		if w.capacity == 0 {
			w.aside, w.low = true, min(max(v.Now, v.Min), w.max)
		} else {
			most = max(most, w.neededWeight(target, target.demand))
			target.clipped = target.clipped || most > huge || w.weight >= huge
		}
		variants[i] = w
	}
	for i := range variants {
		w := &variants[i]
		w.high = w.low
		if !w.aside {
			w.high = max(w.low, int(min(mulDivUp(most, 1, w.weight), int64(w.max))))
		}
	}
	return variants
}

// neededWeight returns the weight that a group needs if the variant is used, and the group serves a load.
func (v *variant) neededWeight(g *group, served int64) int64 {
	if g.demand == 0 && g.needsReplica {
		return 1 // any replica will do
	}
	return mulDivUp(served, v.weight, v.capacity)
}

// weightsOf returns the weights by which the picker divides the load of a group.
func weightsOf(split Split, variants []Variant) []int64 {
	weights := make([]int64, len(variants))
	var seen, able uint64 // at most MaxVariants times MaxRate
	for i := range variants {
		v := &variants[i]
		weights[i] = 1
		if split != SplitEqual {
			weights[i] = v.Capacity
		}
		if split == SplitObserved && v.Weight > 0 && v.Capacity > 0 {
			weights[i] = v.Weight
			seen += uint64(v.Weight)
			able += uint64(v.Capacity)
		}
	}
	if seen == 0 {
		return weights
	}
	for i := range variants {
		if v := &variants[i]; v.Weight == 0 && v.Capacity > 0 { // as busy as those that were seen
			high, low := bits.Mul64(uint64(v.Capacity), seen)
			weights[i] = huge
			if high < able {
				quotient, _ := bits.Div64(high, low, able)
				weights[i] = int64(min(max(quotient, 1), huge))
			}
		}
	}
	return weights
}

// setLimits adds the limits, and raises them to what the least replicas take: they are there, whatever the plan.
func (s *solver) setLimits() {
	position, scopes := s.addLimits()
	places := s.addPlaces()
	least := make([]int64, len(s.limits))
	for g := range s.groups {
		in := &s.problem.Groups[g]
		for i := range s.groupVariants(g) {
			v := &s.groupVariants(g)[i]
			for fields := range scopes {
				v.addLimitUses(in, &in.Variants[i], fields, position)
			}
			for _, p := range in.Variants[i].Places {
				if p.Amount > 0 {
					v.limitUses = append(v.limitUses, limitUse{limit: places[p.Limit], amount: p.Amount})
				}
			}
			slices.SortFunc(v.limitUses, func(a, b limitUse) int { return cmp.Compare(a.limit, b.limit) })
			for _, t := range v.limitUses {
				least[t.limit] += t.amount * int64(v.low)
			}
		}
	}
	for l := range s.limits {
		s.limits[l].amount = max(s.limits[l].amount, least[l])
	}
}

// addLimits adds the limits of what variants have in common, and returns their positions and which fields they have. Of several limits on
// the same, only the first of the smallest ones counts. So a variant has a small number of limits, however many there are.
func (s *solver) addLimits() (position map[snapshot.Limit]int, scopes map[[3]bool]bool) {
	smallest := map[snapshot.Limit]int{} // by what is limited
	for l := range s.problem.Limits {
		key := s.problem.Limits[l].ScopeKey()
		if key.Unit == UnitPlaces {
			continue
		}
		if other, found := smallest[key]; !found || s.problem.Limits[l].Amount < s.problem.Limits[other].Amount {
			smallest[key] = l
		}
	}
	position, scopes = map[snapshot.Limit]int{}, map[[3]bool]bool{}
	for _, l := range slices.Sorted(maps.Values(smallest)) {
		key := s.problem.Limits[l].ScopeKey()
		scopes[[3]bool{key.Accelerator != "", key.Namespace != "", key.Priority != 0}] = true
		position[key] = len(s.limits)
		s.limits = append(s.limits, limit{index: l, amount: s.problem.Limits[l].Amount})
	}
	return position, scopes
}

// addPlaces adds the limits of places, and returns their positions by those in the problem.
func (s *solver) addPlaces() map[int]int {
	positions := map[int]int{}
	for l := range s.problem.Limits {
		if s.problem.Limits[l].Unit == UnitPlaces {
			positions[l] = len(s.limits)
			s.limits = append(s.limits, limit{index: l, amount: s.problem.Limits[l].Amount})
		}
	}
	return positions
}

// addLimitUses adds what a replica takes of the limits that have some fields: accelerator, namespace, priority.
func (v *variant) addLimitUses(g *Group, declared *Variant, fields [3]bool, position map[snapshot.Limit]int) {
	if fields[0] && declared.Accelerator == "" || fields[1] && g.Namespace == "" {
		return
	}
	var key snapshot.Limit
	if fields[0] {
		key.Accelerator = declared.Accelerator
	}
	if fields[1] {
		key.Namespace = g.Namespace
	}
	if fields[2] {
		key.Priority = g.Priority
	}
	for _, counted := range []struct {
		unit   snapshot.Unit
		amount int64
	}{{snapshot.Cards, declared.Cards}, {snapshot.Replicas, 1}, {snapshot.Cost, declared.Cost}} {
		key.Unit = counted.unit
		if l, found := position[key]; found && counted.amount > 0 {
			v.limitUses = append(v.limitUses, limitUse{limit: l, amount: counted.amount})
		}
	}
}

func (s *solver) setOrder() {
	groupOf := make([]int, 0, len(s.variants)) // of each variant
	for g := range s.groups {
		groupOf = append(groupOf, slices.Repeat([]int{g}, s.groups[g].end-s.groups[g].first)...)
	}
	groups := s.problem.Groups
	order := snapshot.SortedPositions(len(s.variants), func(a, b int) int {
		x, y := groupOf[a], groupOf[b]
		return cmp.Or(cmp.Compare(groups[x].Namespace, groups[y].Namespace),
			cmp.Compare(groups[x].Variants[a-s.groups[x].first].Name, groups[y].Variants[b-s.groups[y].first].Name))
	})
	s.rank = make([]int, len(order))
	for rank, v := range order {
		s.rank[v] = rank
	}
}

// servedShare returns the part of its demand, in millionths, that a group can serve while every variant in use keeps its targets.
func (s *solver) servedShare(g int, replicas []int) int64 {
	members, variants := &s.groups[g], s.groupVariants(g)
	var weight, used int64
	for i, n := range replicas {
		if !variants[i].aside {
			weight = addWeights(weight, scaleWeight(variants[i].weight, int64(n)))
			used += int64(n)
		}
	}
	if members.demand == 0 {
		if members.needsReplica && used == 0 {
			return 0
		}
		return Million
	}
	if used == 0 {
		return 0
	}
	served := members.demand
	for i, n := range replicas {
		if v := &variants[i]; !v.aside && n > 0 {
			served = min(served, mulDiv(v.capacity, weight, v.weight))
		}
	}
	return mulDiv(served, Million, members.demand)
}

// servedAt returns the least load that counts as a share.
func (g *group) servedAt(share int64) int64 { return mulDivUp(share, g.demand, Million) }

// huge is the most that weights of replicas add up to. Only numbers that no model server has reach it: the plan is then good, but not
// proven to be the best.
const huge = math.MaxInt64 / 4

// addWeights returns a sum of weights.
func addWeights(a, b int64) int64 { return min(a+b, huge) }

// scaleWeight returns the weight of replicas.
func scaleWeight(weight, replicas int64) int64 {
	high, low := bits.Mul64(uint64(weight), uint64(replicas))
	if high > 0 {
		return huge
	}
	return int64(min(low, huge))
}

// mulDiv returns a·b/c rounded down.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return huge
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, huge))
}

// mulDivUp returns a·b/c rounded up, or more than huge.
func mulDivUp(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return huge + 1
	}
	quotient, rest := bits.Div64(high, low, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, huge+1))
}

// isProductLess reports whether a·b is less than c·d.
func isProductLess(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	otherHigh, otherLow := bits.Mul64(uint64(c), uint64(d))
	return high < otherHigh || high == otherHigh && low < otherLow
}
