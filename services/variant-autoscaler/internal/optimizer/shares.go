package optimizer

import (
	"maps"
	"slices"
)

// noShare is a least share that no plan has.
const noShare = Million + 1

// servesAll reports whether all members can have the shares that are granted to them. It errs only on the side of no.
func (c *component) servesAll() bool {
	points := make([][]option, len(c.members))
	ParallelFor(len(c.members), func(i int) { points[i] = c.memberOptions(i) })
	return (&shareSearch{component: c, points: points}).isFeasible()
}

// shareSearch finds the best shares of the members of a component.
type shareSearch struct {
	*component

	points [][]option // of each member, the largest share first
	exact  bool
}

// grantShares sets the grants so that a plan with the best shares exists, and only such plans are permitted. It reports whether that is
// proven. The best shares are the lexicographic max-min: in the most important tier, the least share is as large as it can be, then the
// second-least, and so on.
func (c *component) grantShares() bool {
	g := &shareSearch{component: c, points: make([][]option, len(c.members)), exact: true}
	tiers := map[int][]int{}
	for i, member := range c.members {
		c.grants[i] = grant{}
		tiers[c.groups[member].tier] = append(tiers[c.groups[member].tier], i)
	}
	ParallelFor(len(c.members), func(i int) { g.points[i] = c.listPoints(i) })
	c.points, c.found = g.points, nil
	for _, g := range c.members {
		c.found = append(c.found, c.lowestPlan(g, make([]int, len(c.groupVariants(g)))))
	}
	order := slices.Sorted(maps.Keys(tiers))
	for _, tier := range order {
		for free := tiers[tier]; len(free) > 0; {
			if c.steps == 0 {
				g.exact = false
				break // what is granted so far fits
			}
			free = g.raiseShares(free)
		}
	}
	if !g.exact {
		for _, tier := range order {
			g.fillShares(tiers[tier])
		}
	}
	return g.exact
}

// raiseShares grants the largest share that all free members can have at least, and returns those that can have more. It stops at the
// largest share of a member that may have a smaller one, too: how many members have that share depends on which of them has the smaller
// one.
func (g *shareSearch) raiseShares(free []int) []int {
	levels := g.shareLevels(free)
	reach := len(levels)
	for _, i := range free {
		if at, found := slices.BinarySearch(levels, g.largestShare(i)); found && len(g.grants[i].also) > 0 {
			reach = min(reach, at+1)
		}
	}
	// The first level is granted already. A level that is not proven to be too high can take all steps, so those that fit come first.
	low := g.highestLevel(free, levels[:reach], g.fitsQuickly)
	low += g.highestLevel(free, levels[low:reach], g.isFeasible)
	share := levels[low]
	g.requireShare(free, share)
	if low == len(levels)-1 {
		return nil // each has its largest share
	}
	var rest, bound []int
	for _, i := range free {
		if g.largestShare(i) <= share && len(g.grants[i].also) == 0 {
			continue
		}
		rest = append(rest, i)
		if slices.ContainsFunc(g.points[i], func(p option) bool { return p.share == share }) {
			bound = append(bound, i)
		}
	}
	g.bindMembers(bound, share)
	rest = slices.DeleteFunc(rest, func(i int) bool {
		if g.largestShare(i) <= share {
			g.grants[i].least = noShare
		}
		return g.grants[i].least == noShare
	})
	g.requireShare(rest, levels[low+1])
	return rest
}

// highestLevel returns the position of the largest of some levels that the members can have. They can have the first one.
func (g *shareSearch) highestLevel(members []int, levels []int64, fits func() bool) int {
	low, high := 0, len(levels)
	for high-low > 1 {
		middle := (low + high) / 2 // halves
		if g.requireShare(members, levels[middle]); fits() {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// shareLevels returns the shares that members can have of those that are granted to all of them, ascending.
func (g *shareSearch) shareLevels(members []int) []int64 {
	var levels []int64
	for _, i := range members {
		for _, p := range g.points[i] {
			if p.share >= g.grants[i].least {
				levels = append(levels, p.share)
			}
		}
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

// largestShare returns the largest share that a member can have by itself.
func (g *shareSearch) largestShare(member int) int64 { return g.points[member][0].share }

// requireShare grants all shares from a level on, or the largest one.
func (g *shareSearch) requireShare(members []int, share int64) {
	for _, i := range members {
		g.grants[i].least = min(share, g.largestShare(i))
	}
}

// bindMembers lets as few as possible of the members keep a share.
func (g *shareSearch) bindMembers(members []int, share int64) {
	most := int64(len(members))
	least := most
	if most > 1 || len(g.grants[members[0]].also) > 0 {
		least = g.minMembersAt(members, share)
	}
	if least == 0 {
		return
	}
	if least == most {
		for _, i := range members {
			g.grants[i].least = noShare
			g.grants[i].also = append(g.grants[i].also, share)
		}
		return
	}
	q := quota{share: share, members: members}
	g.quotas, g.rooms = append(g.quotas, q), append(g.rooms, least)
	for i := range g.points {
		for n := range g.points[i] {
			p := &g.points[i][n]
			p.uses = append(p.uses, q.memberUse(i, p.share))
		}
	}
	for _, i := range members {
		g.grants[i].also = append(g.grants[i].also, share)
	}
}

// minMembersAt returns the least number of the members that must keep a share, of those that are granted.
func (g *shareSearch) minMembersAt(members []int, share int64) int64 {
	lists := g.grantedCandidates(func(i int, p *option) int64 {
		if p.share == share && slices.Contains(members, i) {
			return 1
		}
		return 0
	})
	found := (&chooser{lists: lists, rooms: g.rooms, steps: &g.steps}).findChoice()
	g.exact = g.exact && found.exact
	if found.picks == nil { // the search was cut short
		return int64(len(members))
	}
	g.setPlans(lists, found.picks)
	return found.value.cost
}

// setPlans stores the plans of a choice, which have the granted shares.
func (g *shareSearch) setPlans(lists [][]option, picks []int) {
	g.component.found = make([][]int, len(picks))
	for i, n := range picks {
		g.component.found[i] = lists[i][n].replicas
	}
}

// isFeasible reports whether the members can have the shares that are granted to them together.
func (g *shareSearch) isFeasible() bool {
	if g.fitsQuickly() {
		return true
	}
	// The last limit first: a choice within some limits takes as little as possible of the one before.
	for d := len(g.rooms) - 1; d >= 0; d-- {
		lists := g.grantedCandidates(func(_ int, p *option) int64 { return p.uses[d] })
		for _, list := range lists {
			for n := range list {
				list[n].uses = list[n].uses[d+1:]
			}
		}
		found := (&chooser{lists: lists, rooms: g.rooms[d+1:], enough: &g.rooms[d], steps: &g.steps}).findChoice()
		if found.picks == nil || found.value.cost > g.rooms[d] {
			g.exact = g.exact && found.exact
			return false
		}
		if d == 0 {
			g.setPlans(lists, found.picks)
		}
	}
	return true
}

// grantedCandidates returns the points with granted shares as candidates, of which none uses less than another one at the same cost.
func (g *shareSearch) grantedCandidates(cost func(member int, p *option) int64) [][]option {
	lists := make([][]option, len(g.points))
	for i := range g.points {
		var kept []option
		for n := range g.points[i] {
			p := &g.points[i][n]
			if !g.grants[i].permits(p.share) {
				continue
			}
			g.steps -= int64(1 + len(kept)/2) // of those it is compared with
			granted := option{value: value{cost: cost(i, p)}, uses: p.uses, replicas: p.replicas}
			if slices.ContainsFunc(kept,
				func(k option) bool { return k.value.cost <= granted.value.cost && fitsWithin(k.uses, granted.uses) }) {
				continue
			}
			kept = slices.DeleteFunc(kept,
				func(k option) bool { return k.value.cost >= granted.value.cost && fitsWithin(granted.uses, k.uses) })
			kept = append(kept, granted)
		}
		lists[i] = kept
	}
	g.steps = max(g.steps, 0)
	return lists
}
