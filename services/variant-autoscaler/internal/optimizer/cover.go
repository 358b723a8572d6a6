package optimizer

import (
	"cmp"
	"math"
	"slices"
)

// bestPlan returns the best plan of a group without limits, and a cost that no plan which serves as much undercuts. For each threshold, it
// is a covering knapsack: the cheapest replicas of the permitted variants with the weight of the threshold. It is searched depth-first,
// with the bound of its relaxation.
func (s *solver) bestPlan(g int) (plan []int, bound int64) {
	members := &s.groups[g]
	served := members.demand
	share := s.highestShare(g)
	if share < Million {
		served = members.servedAt(share)
	}
	c := &coverSearch{solver: s, group: members, variants: s.groupVariants(g), plan: make([]int, members.end-members.first),
		steps: s.stepsFor(g)}
	first := c.steps
	c.ranked = c.rankVariants()
	bound = math.MaxInt64
	thresholds := s.weightThresholds(g, served)
	// The search for a threshold looks at all variants.
	stride := 1 + len(thresholds)*len(c.variants)/maxLooks
	for n, threshold := range thresholds {
		if n%stride != 0 && n != len(thresholds)-1 {
			c.cut, bound = true, 0
			continue
		}
		bound = min(bound, c.searchThreshold(g, threshold, served))
	}
	s.steps -= first - max(c.steps, 0)
	lowest := s.lowestPlan(g, c.plan)
	switch {
	case c.found == nil: // no variant can serve
		return lowest, s.costOf(g, lowest)
	case members.clipped || s.servedShare(g, c.found) < share:
		return c.found, min(s.costOf(g, lowest), c.value.cost-1)
	case c.cut:
		return c.found, min(max(bound, s.costOf(g, lowest)), c.value.cost-1)
	}
	return c.found, c.value.cost
}

// Bounds of the search for the best plan of each group. A step looks at one variant, and takes a few nanoseconds. Each variant has its
// steps, and the groups share what others do not need.
const (
	maxSteps       = 1 << 24
	stepsOfVariant = 200
	maxLooks       = 1 << 22
)

// stepsFor returns the steps for a group: all but what the groups after it have.
func (s *solver) stepsFor(g int) int64 {
	return s.steps - stepsOfVariant*int64(len(s.variants)-s.groups[g].end)
}

// coverSearch searches the best plan of a group that has a weight.
type coverSearch struct {
	solver   *solver
	group    *group
	variants []variant
	plan     []int
	steps    int64 // left
	cut      bool  // there were too few

	ranked []int  // variants, the lowest cost for their weight first
	items  []item // permitted variants that are not decided yet, by name
	cheap  []int  // positions of items, ranked

	found   []int
	value   value
	current bool // found in this search: a later plan with the same value comes after it by name
}

// item is a permitted variant in a search.
type item struct {
	*variant

	index     int   // in the group
	low, high int   // replicas that a plan better than the one that was found may have
	rest      int64 // weight that it and the items after it can add
	widest    int64 // weight of the widest of them
	moves     int64 // of all of them, at their least replicas
	growth    int64 // replicas from the least to the present ones, of all of them
}

func (c *coverSearch) rankVariants() []int {
	all := make([]int, 0, len(c.variants))
	for _, i := range c.group.order {
		if !c.variants[i].aside {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(c.variants[a].unitPrice(), c.variants[b].unitPrice()) })
	return all
}

func (v *variant) unitPrice() float64 { return float64(v.cost) / float64(v.weight) }

// searchThreshold looks for plans with the weight of a threshold. It returns a cost that none of them undercuts.
func (c *coverSearch) searchThreshold(g int, threshold, served int64) int64 {
	permitted := func(i int) bool { return c.variants[i].neededWeight(c.group, served) <= threshold }
	c.solver.lowestPlan(g, c.plan)
	base := c.solver.valueOf(g, c.plan)
	missing := threshold
	for _, i := range c.ranked {
		if permitted(i) {
			missing = max(missing-scaleWeight(c.variants[i].weight, int64(c.variants[i].low)), 0)
		}
	}
	least, price := c.greedyPlan(g, missing, permitted)
	if least < 0 {
		return math.MaxInt64 // they cannot have the weight
	}
	bound := base.cost + int64(math.Ceil(least*(1-margin)-margin))
	if c.found != nil && bound > c.value.cost {
		return bound
	}
	slack := float64(c.value.cost-base.cost)*(1+margin) - least*(1-margin) + margin*price*float64(missing) + 1
	missing = c.reduceItems(missing, price, slack, permitted)
	c.sumRests()
	c.walkItems(0, missing, c.solver.valueOf(g, c.plan))
	return bound
}

// reduceItems sets the items to the permitted variants, with the replicas that a better plan may have: one more or less than in the
// relaxation costs its excess more, and a better plan has at most the slack of it. It returns the weight that is missing at the least
// replicas.
func (c *coverSearch) reduceItems(missing int64, price, slack float64, permitted func(i int) bool) int64 {
	c.items, c.cheap, c.current = c.items[:0], c.cheap[:0], false
	position := make(map[int]int, len(c.variants))
	for _, i := range c.group.order {
		v := &c.variants[i]
		if v.aside || !permitted(i) {
			continue
		}
		reduced := item{variant: v, index: i, low: v.low, high: v.high}
		excess, span := float64(v.cost)-price*float64(v.weight), float64(v.high-v.low)
		if excess > 0 {
			reduced.high = v.low + int(min(slack/excess, span))
		} else if excess < 0 {
			reduced.low = v.high - int(min(slack/-excess, span))
		}
		missing = max(missing-scaleWeight(v.weight, int64(reduced.low-v.low)), 0)
		c.plan[i] = reduced.low
		if reduced.low < reduced.high {
			position[i] = len(c.items)
			c.items = append(c.items, reduced)
		}
	}
	for _, i := range c.ranked {
		if at, found := position[i]; found {
			c.cheap = append(c.cheap, at)
		}
	}
	return missing
}

// sumRests sets what the items to come can add.
func (c *coverSearch) sumRests() {
	var after item
	for at := len(c.items) - 1; at >= 0; at-- {
		i := &c.items[at]
		i.rest = addWeights(after.rest, scaleWeight(i.weight, int64(i.high-i.low)))
		i.widest = max(after.widest, i.weight)
		i.moves = after.moves + absDiff(i.low, i.now)
		i.growth = after.growth + int64(i.now-i.low)
		after = *i
	}
}

// greedyPlan offers plans that add a weight by the permitted variants with the lowest price, and returns the cost of the relaxation, in
// which replicas may be divided, with the price of its last variant. The cost is negative if the variants cannot have the weight.
func (c *coverSearch) greedyPlan(g int, missing int64, permitted func(i int) bool) (cost, price float64) {
	defer c.solver.lowestPlan(g, c.plan)
	left := missing
	for _, i := range c.ranked {
		if left == 0 {
			break
		}
		v := &c.variants[i]
		c.steps--
		if v.high == v.low || !permitted(i) {
			continue
		}
		if weight := scaleWeight(v.weight, int64(v.high-v.low)); weight < left {
			cost += float64(v.cost) * float64(v.high-v.low)
			left -= weight
			c.plan[i] = v.high
			continue
		}
		price = v.unitPrice()
		cost += price * float64(left)
		full := mulDivUp(left, 1, v.weight) - 1
		c.plan[i] += int(full)
		c.completePlan(left-v.weight*full, permitted)
		left = 0
	}
	if left > 0 {
		return -1, 0
	}
	c.offerPlan(c.solver.valueOf(g, c.plan))
	return cost, price
}

// completePlan adds the last piece of a weight by the variant that has it for the least cost.
func (c *coverSearch) completePlan(left int64, permitted func(i int) bool) {
	best, replicas, least := -1, 0, int64(math.MaxInt64)
	for _, i := range c.ranked {
		c.steps--
		v := &c.variants[i]
		n := mulDivUp(left, 1, v.weight)
		if n <= int64(v.high-c.plan[i]) && v.cost*n < least && permitted(i) {
			best, replicas, least = i, int(n), v.cost*n
		}
	}
	c.plan[best] += replicas
}

// walkItems searches the replicas of the items from a position on, depth-first. missing is the weight that they have to add, v the value of
// all items before, with the least replicas of the items to come.
func (c *coverSearch) walkItems(at int, missing int64, v value) {
	if missing <= 0 { // more replicas cost more, or are more
		c.offerPlan(v)
		return
	}
	if c.steps--; c.steps < 0 {
		c.cut = true
		return
	}
	if at == len(c.items) || missing > c.items[at].rest || c.isWorse(at, missing, v) {
		return
	}
	i := &c.items[at]
	others := int64(0)
	if at+1 < len(c.items) {
		others = c.items[at+1].rest
	}
	n := 0
	if missing > others {
		n = int(mulDivUp(missing-others, 1, i.weight))
	}
	for ; n <= i.high-i.low; n++ {
		next := value{
			cost: v.cost + i.cost*int64(n), replicas: v.replicas + int64(n),
			moves: v.moves - absDiff(i.low, i.now) + absDiff(i.low+n, i.now),
		}
		if c.found != nil && cmp.Or(cmp.Compare(next.cost, c.value.cost), cmp.Compare(next.replicas, c.value.replicas)) > 0 {
			break
		}
		c.plan[i.index] = i.low + n
		c.walkItems(at+1, missing-i.weight*int64(n), next)
		if i.weight*int64(n) >= missing {
			break
		}
	}
	c.plan[i.index] = i.low
}

// isWorse reports whether no plan from here can be better than the one that was found.
func (c *coverSearch) isWorse(at int, missing int64, v value) bool {
	if c.found == nil {
		return false
	}
	i := &c.items[at]
	least := value{cost: v.cost + c.relaxedCost(at, missing), replicas: v.replicas + mulDivUp(missing, 1, i.widest)}
	if order := cmp.Or(cmp.Compare(least.cost, c.value.cost), cmp.Compare(least.replicas, c.value.replicas)); order != 0 {
		return order > 0
	}
	// Equally good plans from here add the same number of replicas.
	least.moves = v.moves - i.moves + max(i.growth-(least.replicas-v.replicas), least.replicas-v.replicas-i.growth)
	return least.moves > c.value.moves || least.moves == c.value.moves && c.current
}

// margin covers rounding: a float64 has 53 bits, so a bound may be too high by a few parts in 10^15.
const margin = 1e-12

// relaxedCost returns a lower bound on the cost of a weight, from the items from a position on: replicas may be divided.
func (c *coverSearch) relaxedCost(at int, missing int64) int64 {
	cost, left := 0.0, float64(missing)
	for _, n := range c.cheap {
		i := &c.items[n]
		c.steps--
		if n < at {
			continue
		}
		weight := float64(i.weight) * float64(i.high-i.low)
		if weight >= left {
			cost += left * i.unitPrice()
			break
		}
		cost += float64(i.cost) * float64(i.high-i.low)
		left -= weight
	}
	return int64(math.Ceil(cost*(1-margin) - margin))
}

// offerPlan keeps the present plan if it is better than the one that was found.
func (c *coverSearch) offerPlan(v value) {
	if c.found != nil && cmp.Or(v.compareTo(c.value), c.group.compareNames(c.plan, c.found)) >= 0 {
		return
	}
	c.found, c.value, c.current = append(c.found[:0], c.plan...), v, true
}
