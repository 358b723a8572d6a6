package optimizer

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// component is the groups that some exceeded limits join. Whatever other groups do has no effect on it.
type component struct {
	*solver

	limits   []int
	position []int // of each limit of the problem among those of the component, from 1

	members []int   // groups
	grants  []grant // of the members
	quotas  []quota
	rooms   []int64 // cards of the limits for the members, then the rooms of the quotas

	coarse    atomic.Bool // some plans were left out
	points    [][]option  // of the members, if not all can be served
	listSteps int64       // of a member in a listing
	found     [][]int     // plans of the members that fit, and have the shares that are granted
}

// grant is the shares that a group may have.
type grant struct {
	least int64   // this share, and greater ones
	also  []int64 // single shares
}

func (g *grant) permits(share int64) bool { return share >= g.least || slices.Contains(g.also, share) }

// quota is a number of groups that may have a share although most can have more. It counts like the cards of a limit.
type quota struct {
	share   int64
	members []int // positions in the component
}

// appendUse appends what a plan of a member takes of the rooms.
func (c *component) appendUse(to []int64, member int, replicas []int, share int64) []int64 {
	first := len(to)
	for range c.limits {
		to = append(to, 0)
	}
	for i, n := range replicas {
		if n == 0 {
			continue
		}
		for _, t := range c.groupVariants(c.members[member])[i].limitUses {
			if d := c.position[t.limit]; d > 0 {
				to[first+d-1] += t.amount * int64(n)
			}
		}
	}
	for _, q := range c.quotas {
		to = append(to, q.memberUse(member, share))
	}
	return to
}

func (q *quota) memberUse(member int, share int64) int64 {
	if share == q.share && slices.Contains(q.members, member) {
		return 1
	}
	return 0
}

// joinComponents returns the components of limits.
func (s *solver) joinComponents(limits []int) []*component {
	componentOf := make([]*component, len(s.groups))
	for _, l := range limits {
		joined := &component{solver: s, limits: []int{l}}
		for g := range s.groups {
			if !s.canVaryUse(g, l) || componentOf[g] == joined {
				continue
			}
			members := []int{g}
			if other := componentOf[g]; other != nil {
				members = other.members
				joined.limits = append(joined.limits, other.limits...)
			}
			for _, member := range members {
				componentOf[member] = joined
			}
			joined.members = append(joined.members, members...)
		}
	}
	var components []*component
	for _, c := range componentOf {
		if c == nil || slices.Contains(components, c) {
			continue
		}
		components = append(components, c)
		slices.Sort(c.limits)
		slices.Sort(c.members)
		c.setRooms()
	}
	return components
}

// setRooms computes what the other groups leave of the limits.
func (c *component) setRooms() {
	c.position = make([]int, len(c.solver.limits))
	for d, l := range c.limits {
		c.position[l] = d + 1
		room := c.solver.limits[l].amount
		for g := range c.groups {
			if _, found := slices.BinarySearch(c.members, g); !found {
				room -= c.usageOf(g, l, c.groupPlan(g))
			}
		}
		c.rooms = append(c.rooms, room)
	}
}

// canVaryUse reports whether a group can take more or less of a limit.
func (s *solver) canVaryUse(g, limit int) bool {
	return slices.ContainsFunc(s.groupVariants(g), func(v variant) bool { return v.high > v.low && v.limitAmount(limit) > 0 })
}

// solveComponent replaces the plans of the groups of a component. It returns a cost that no plan which serves as much undercuts.
func (s *solver) solveComponent(c *component) (bound int64) {
	c.grants = make([]grant, len(c.members))
	for i, g := range c.members {
		c.grants[i].least = s.servedShare(g, s.unlimited[s.groups[g].first:s.groups[g].end])
		if c.grants[i].least < s.highestShare(g) {
			c.coarse.Store(true)
		}
	}
	c.listSteps = s.listSteps / int64(listings*len(c.members))
	s.listSteps -= s.listSteps / listings
	exact := true
	if !c.servesAll() {
		exact = c.grantShares()
	}
	options := make([][]option, len(c.members))
	ParallelFor(len(c.members), func(i int) { options[i] = c.memberOptions(i) })
	found := c.cheapestOptions(options)
	for i, g := range c.members {
		if found.picks == nil { // the search was cut short before it found one
			s.setGroupPlan(g, c.found[i])
			continue
		}
		s.setGroupPlan(g, options[i][found.picks[i]].replicas)
	}
	if !found.exact {
		c.improvePlans(options)
	}
	return c.costBound(exact, found)
}

// costBound returns a cost that no plan which serves as much as the present one undercuts.
func (c *component) costBound(exactShares bool, found choice) int64 {
	var least, cost int64
	clipped := false
	for _, g := range c.members {
		least += c.costOf(g, c.lowestPlan(g, make([]int, len(c.groupVariants(g)))))
		cost += c.costOf(g, c.groupPlan(g))
		clipped = clipped || c.groups[g].clipped
	}
	switch {
	case !exactShares || clipped || c.coarse.Load():
		return min(least, cost-1) // a plan that serves more, or was left out, may cost as little
	case !found.exact:
		return min(max(least, found.bound), cost-1)
	}
	return cost
}

// improvePlans replaces the plan of one member after the other by its best option for which there is room.
func (c *component) improvePlans(options [][]option) {
	taken := make([]int64, len(c.rooms))
	uses := make([][]int64, len(c.members))
	for i, g := range c.members {
		uses[i] = c.appendUse(nil, i, c.groupPlan(g), c.servedShare(g, c.groupPlan(g)))
		addUse(taken, uses[i])
	}
	for range improvements {
		changed := false
		for i, g := range c.members {
			best, fits := c.valueOf(g, c.groupPlan(g)), make([]int64, len(taken))
			for n := range options[i] {
				o := &options[i][n]
				for d := range taken {
					fits[d] = c.rooms[d] - taken[d] + uses[i][d] - o.uses[d]
				}
				if slices.Min(fits) < 0 || o.value.compareTo(best) >= 0 {
					continue
				}
				for d := range taken {
					taken[d] += o.uses[d] - uses[i][d]
				}
				best, uses[i], changed = o.value, o.uses, true
				c.setGroupPlan(g, o.replicas)
			}
		}
		if !changed {
			return
		}
	}
}

// improvements is how often each member may change its plan after a search that was cut short.
const improvements = 4

// listings is the part of the steps of all listings that a component may take. It lists plans three times.
const listings = 6

// cheapestOptions chooses the options of all members.
func (c *component) cheapestOptions(options [][]option) choice {
	firstDifference := func(list, a, b int) (rank, order int) {
		g := &c.groups[c.members[list]]
		x, y := options[list][a].replicas, options[list][b].replicas
		for _, i := range g.order {
			if x[i] != y[i] {
				return c.rank[g.first+i], cmp.Compare(x[i], y[i])
			}
		}
		return math.MaxInt, 0
	}
	return (&chooser{lists: options, rooms: c.rooms, firstDifference: firstDifference, steps: &c.steps}).findChoice()
}

// ParallelFor calls f with the numbers below n, on all processors.
func ParallelFor(n int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	workers.Wait()
}
