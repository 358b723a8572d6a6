package optimizer

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// component is the groups that some exceeded limits join. Whatever other groups do has no effect on it.
type component struct {
	*solver

	limits  []int
	members []int   // groups
	grants  []grant // of the members
	quotas  []quota
	rooms   []int64 // cards of the limits for the members, then the rooms of the quotas

	coarse atomic.Bool // some plans were left out
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

// use appends what a plan of a member takes of the rooms.
func (c *component) use(to []int64, member int, replicas []int, share int64) []int64 {
	for _, l := range c.limits {
		to = append(to, c.takenBy(c.members[member], l, replicas))
	}
	for _, q := range c.quotas {
		to = append(to, q.use(member, share))
	}
	return to
}

func (q *quota) use(member int, share int64) int64 {
	if share == q.share && slices.Contains(q.members, member) {
		return 1
	}
	return 0
}

// components returns the components of limits.
func (s *solver) components(limits []int) []*component {
	of := make([]*component, len(s.groups))
	for _, l := range limits {
		joined := &component{solver: s, limits: []int{l}}
		for g := range s.groups {
			if !s.touches(g, l) || of[g] == joined {
				continue
			}
			members := []int{g}
			if other := of[g]; other != nil {
				members = other.members
				joined.limits = append(joined.limits, other.limits...)
			}
			for _, member := range members {
				of[member] = joined
			}
			joined.members = append(joined.members, members...)
		}
	}
	var all []*component
	for _, c := range of {
		if c == nil || slices.Contains(all, c) {
			continue
		}
		all = append(all, c)
		slices.Sort(c.limits)
		slices.Sort(c.members)
		c.setRooms()
	}
	return all
}

// setRooms computes what the other groups leave of the limits.
func (c *component) setRooms() {
	for _, l := range c.limits {
		room := c.solver.limits[l]
		for g := range c.groups {
			if _, found := slices.BinarySearch(c.members, g); !found {
				room -= c.takenBy(g, l, c.part(g))
			}
		}
		c.rooms = append(c.rooms, room)
	}
}

// touches reports whether a group can take more or less of a limit.
func (s *solver) touches(g, limit int) bool {
	return slices.ContainsFunc(s.own(g), func(v variant) bool { return v.takes[limit] > 0 && v.high > v.low })
}

// solveComponent replaces the plans of the groups of a component. It returns the cost that is not proven to be necessary: zero, or all.
func (s *solver) solveComponent(c *component) (unproven int64) {
	c.grants = make([]grant, len(c.members))
	for i, g := range c.members {
		c.grants[i].least = s.highest(g)
	}
	exact := true
	if !c.servesAll() {
		exact = c.grantShares()
	}
	options := make([][]option, len(c.members))
	c.each(func(i int) { options[i] = c.options(i) })
	found := c.cheapest(options)
	for i, g := range c.members {
		if found.picks == nil { // the search was cut short before it found one
			s.lowest(g, s.part(g))
			continue
		}
		s.choose(g, options[i][found.picks[i]].replicas)
	}
	if !exact || !found.exact || c.coarse.Load() {
		return found.value.cost // a plan that serves more, or was left out, may cost anything
	}
	return 0
}

// cheapest chooses the options of all members.
func (c *component) cheapest(options [][]option) chosen {
	lists := make([][]candidate, len(options))
	member := make([]int, len(c.variants)) // of each variant, from 1
	for i, list := range options {
		for n := range list {
			lists[i] = append(lists[i], candidate{value: list[n].value, use: list[n].use})
		}
		for v := c.groups[c.members[i]].first; v < c.groups[c.members[i]].end; v++ {
			member[v] = i + 1
		}
	}
	byName := func(a, b []int) int {
		for _, v := range c.order {
			i := member[v] - 1
			if i < 0 || a[i] == b[i] {
				continue
			}
			own := v - c.groups[c.members[i]].first
			if order := cmp.Compare(options[i][a[i]].replicas[own], options[i][b[i]].replicas[own]); order != 0 {
				return order
			}
		}
		return 0
	}
	return (&chooser{lists: lists, rooms: c.rooms, compare: byName}).run()
}

// each calls f for each member.
func (c *component) each(f func(member int)) { Each(len(c.members), f) }

// Each calls f with the numbers below n, on all processors.
func Each(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}
