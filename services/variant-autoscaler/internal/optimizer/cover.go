package optimizer

import (
	"cmp"
	"math"
	"slices"
)

// thresholds returns the weights that a group may need to serve a load, ascending: which of them counts depends on the variants in
// use. Variants with replicas that must stay are in use.
func (s *solver) thresholds(g int, served int64) []int64 {
	of := &s.groups[g]
	var all []int64
	var least int64
	for i := range s.own(g) {
		v := &s.own(g)[i]
		if v.aside {
			continue
		}
		need := v.need(of, served)
		all = append(all, need)
		if v.low > 0 {
			least = max(least, need)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(need int64) bool { return need < least })
}

// highest returns the largest share that a group can have within its bounds.
func (s *solver) highest(g int) int64 {
	of, own := &s.groups[g], s.own(g)
	plan := make([]int, len(own))
	best := s.share(g, s.lowest(g, plan))
	for _, threshold := range s.thresholds(g, of.demand) {
		s.lowest(g, plan)
		for i := range own {
			if v := &own[i]; !v.aside && v.need(of, of.demand) <= threshold {
				plan[i] = v.high
			}
		}
		best = max(best, s.share(g, plan))
	}
	return best
}

// lowest fills in the least replicas of a group.
func (s *solver) lowest(g int, plan []int) []int {
	for i := range plan {
		plan[i] = s.own(g)[i].low
	}
	return plan
}

// value is what a plan of a group is worth among those with the same share, without the last tie-break.
type value struct{ cost, replicas, moves int64 }

func (v value) compare(other value) int {
	return cmp.Or(cmp.Compare(v.cost, other.cost), cmp.Compare(v.replicas, other.replicas), cmp.Compare(v.moves, other.moves))
}

func (s *solver) valueOf(g int, replicas []int) value {
	var sum value
	for i, n := range replicas {
		v := &s.own(g)[i]
		sum.cost += v.cost * int64(n)
		sum.replicas += int64(n)
		sum.moves += distance(n, v.now)
	}
	return sum
}

func distance(a, b int) int64 { return int64(max(a-b, b-a)) }

// compareNames is negative if the first plan of a group has fewer replicas of the first variant by name that differs.
func (g *group) compareNames(a, b []int) int {
	for _, i := range g.order {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return 0
}

// best returns the best plan of a group without limits. For each threshold, it is a covering knapsack: the cheapest replicas of
// the permitted variants with the weight of the threshold. It is searched depth-first, with the bound of its relaxation.
func (s *solver) best(g int) []int {
	of := &s.groups[g]
	served := of.demand
	if share := s.highest(g); share < Million {
		served = of.servedAt(share)
	}
	c := &cover{solver: s, of: of, own: s.own(g), plan: make([]int, of.end-of.first)}
	for _, threshold := range s.thresholds(g, served) {
		c.search(g, threshold, served)
	}
	if c.found == nil { // no variant can serve
		return s.lowest(g, c.plan)
	}
	return c.found
}

// cover searches the best plan of a group that has a weight.
type cover struct {
	solver *solver
	of     *group
	own    []variant
	plan   []int

	items []item // permitted variants, by name
	cheap []int  // positions of items, the lowest cost for their weight first

	found   []int
	value   value
	current bool // found in this search: a later plan with the same value comes after it by name
}

// item is a permitted variant in a search.
type item struct {
	*variant

	index  int   // in the group
	rest   int64 // weight that it and the items after it can add
	widest int64 // weight of the widest of them
	moves  int64 // of all of them, at their least replicas
	growth int64 // replicas from the least to the present ones, of all of them
}

// search looks for plans with the weight of a threshold.
func (c *cover) search(g int, threshold, served int64) {
	c.solver.lowest(g, c.plan)
	c.items, c.cheap, c.current = c.items[:0], c.cheap[:0], false
	missing := threshold
	for _, i := range c.of.order {
		v := &c.own[i]
		if v.aside || v.need(c.of, served) > threshold {
			continue
		}
		missing -= v.weight * int64(v.low)
		c.cheap = append(c.cheap, len(c.items))
		c.items = append(c.items, item{variant: v, index: i})
	}
	var after item
	for at := len(c.items) - 1; at >= 0; at-- {
		i := &c.items[at]
		i.rest = after.rest + i.weight*int64(i.high-i.low)
		i.widest = max(after.widest, i.weight)
		i.moves = after.moves + distance(i.low, i.now)
		i.growth = after.growth + int64(i.now-i.low)
		after = *i
	}
	slices.SortStableFunc(c.cheap, func(a, b int) int { return cmp.Compare(c.items[a].price(), c.items[b].price()) })
	c.walk(0, missing, c.solver.valueOf(g, c.plan))
}

func (i *item) price() float64 { return float64(i.cost) / float64(i.weight) }

// walk decides about the items from a position on. missing is the weight that they have to add, v the value of all before, with the
// least replicas of the items to come.
func (c *cover) walk(at int, missing int64, v value) {
	if missing <= 0 { // more replicas cost more, or are more
		c.offer(v)
		return
	}
	if at == len(c.items) || missing > c.items[at].rest || c.isWorse(at, missing, v) {
		return
	}
	i := &c.items[at]
	others := i.rest - i.weight*int64(i.high-i.low)
	n := 0
	if missing > others {
		n = int(divideUp(missing-others, 1, i.weight))
	}
	for ; n <= i.high-i.low; n++ {
		next := value{
			cost: v.cost + i.cost*int64(n), replicas: v.replicas + int64(n), moves: v.moves - distance(i.low, i.now) + distance(i.low+n, i.now),
		}
		if c.found != nil && cmp.Or(cmp.Compare(next.cost, c.value.cost), cmp.Compare(next.replicas, c.value.replicas)) > 0 {
			break
		}
		c.plan[i.index] = i.low + n
		c.walk(at+1, missing-i.weight*int64(n), next)
		if i.weight*int64(n) >= missing {
			break
		}
	}
	c.plan[i.index] = i.low
}

// isWorse reports whether no plan from here can be better than the one that was found.
func (c *cover) isWorse(at int, missing int64, v value) bool {
	if c.found == nil {
		return false
	}
	i := &c.items[at]
	least := value{cost: v.cost + c.relaxed(at, missing), replicas: v.replicas + divideUp(missing, 1, i.widest)}
	if order := cmp.Or(cmp.Compare(least.cost, c.value.cost), cmp.Compare(least.replicas, c.value.replicas)); order != 0 {
		return order > 0
	}
	// Equally good plans from here add the same number of replicas.
	least.moves = v.moves - i.moves + max(i.growth-(least.replicas-v.replicas), least.replicas-v.replicas-i.growth)
	return least.moves > c.value.moves || least.moves == c.value.moves && c.current
}

// relaxed returns a lower bound on the cost of a weight, from the items from a position on: replicas may be divided.
func (c *cover) relaxed(at int, missing int64) int64 {
	// A float64 has 53 bits: the bound may be too high by a few parts in 10^15.
	const margin = 1e-12
	cost, left := 0.0, float64(missing)
	for _, n := range c.cheap {
		i := &c.items[n]
		if n < at {
			continue
		}
		weight := float64(i.weight) * float64(i.high-i.low)
		if weight >= left {
			cost += left * i.price()
			break
		}
		cost += float64(i.cost) * float64(i.high-i.low)
		left -= weight
	}
	return int64(math.Ceil(cost*(1-margin) - margin))
}

// offer keeps the present plan if it is better than the one that was found.
func (c *cover) offer(v value) {
	if c.found != nil && cmp.Or(v.compare(c.value), c.of.compareNames(c.plan, c.found)) >= 0 {
		return
	}
	c.found, c.value, c.current = append(c.found[:0], c.plan...), v, true
}
