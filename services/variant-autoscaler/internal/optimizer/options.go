package optimizer

import (
	"cmp"
	"slices"
)

// option is one way to run a group.
type option struct {
	replicas []int
	share    int64
	value    value
	use      []int64 // of the limits of the component
}

// options returns the ways to run a member with the shares that are granted to it, of which none is better than another one and takes
// no more.
func (c *component) options(member int) []option {
	l := c.lister(member)
	grant := &c.grants[member]
	for _, share := range append([]int64{grant.least}, grant.also...) {
		if share > Million { // only single shares are granted
			continue
		}
		if share == 0 {
			l.offer()
			continue
		}
		served := l.of.servedAt(share)
		for _, threshold := range c.thresholds(l.g, served) {
			missing := threshold
			var ranges []int
			for i := range l.own {
				v := &l.own[i]
				l.usable[i] = !v.aside && v.need(l.of, served) <= threshold
				if l.usable[i] {
					missing -= v.weight * int64(v.low)
					ranges = append(ranges, v.high-v.low)
				}
			}
			if len(ranges) > 0 {
				l.limit(maxOptions, ranges[:len(ranges)-1]) // the last one has what is missing
			}
			l.cover(0, missing)
		}
	}
	return l.kept
}

// lister lists options of a member.
type lister struct {
	component *component
	member, g int
	of        *group
	own       []variant
	usable    []bool
	plan      []int
	step      int // between the replicas of a variant
	kept      []option
	scratch   []int64
}

// Most plans that are listed for a group. A group of three variants with 60 replicas each has 3600 ways to serve a load, and 216 000 plans.
// Beyond, only each second, third, ... number of replicas is listed, and the result is not proven to be the best.
const (
	maxOptions = 1 << 11
	maxPoints  = 1 << 15
)

// limit sets the step so that the lister lists no more than a number of plans.
func (l *lister) limit(most int, ranges []int) {
	plans := func() int {
		n := 1
		for _, r := range ranges {
			if n *= r/l.step + 2; n > most {
				break
			}
		}
		return n
	}
	for l.step = 1; plans() > most; l.step++ {
		l.component.coarse.Store(true)
	}
}

// next returns the number of replicas after n: the steps end with the most.
func (l *lister) next(n int, v *variant) int {
	if n < v.high {
		return min(n+l.step, v.high)
	}
	return n + 1
}

func (c *component) lister(member int) *lister {
	g := c.members[member]
	l := &lister{component: c, member: member, g: g, of: &c.groups[g], own: c.own(g), usable: make([]bool, len(c.own(g)))}
	l.plan = c.lowest(g, make([]int, len(l.own)))
	return l
}

// cover lists the plans with a weight.
func (l *lister) cover(at int, missing int64) {
	if missing <= 0 {
		l.offer()
		return
	}
	for at < len(l.own) && !l.usable[at] {
		at++
	}
	if at == len(l.own) {
		return
	}
	v := &l.own[at]
	n := v.low
	if !slices.Contains(l.usable[at+1:], true) { // the last one
		n += int(divideUp(missing, 1, v.weight))
	}
	for ; n <= v.high; n = l.next(n, v) {
		l.plan[at] = n
		left := missing - v.weight*int64(n-v.low)
		l.cover(at+1, left)
		if left <= 0 {
			break
		}
	}
	l.plan[at] = v.low
}

// offer keeps the present plan unless another one is better and takes no more, and drops the plans of which it is the same.
func (l *lister) offer() {
	share := l.component.share(l.g, l.plan)
	if !l.component.grants[l.member].permits(share) {
		return
	}
	value := l.component.valueOf(l.g, l.plan)
	l.scratch = l.component.use(l.scratch[:0], l.member, l.plan, share)
	use := l.scratch
	kept := l.kept[:0]
	for i := range l.kept {
		k := &l.kept[i]
		order := k.value.compare(value)
		if order == 0 {
			order = l.of.compareNames(k.replicas, l.plan)
		}
		if order <= 0 && within(k.use, use) {
			return // nothing was dropped before, or k would have been too
		}
		if order < 0 || !within(use, k.use) {
			kept = append(kept, *k)
		}
	}
	l.kept = append(kept, option{
		replicas: slices.Clone(l.plan), share: share, value: value, use: slices.Clone(use),
	})
}

// within reports whether a takes no more than b of any limit.
func within(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// point is a share that a group can have, and what it takes for it.
type point struct {
	share int64
	use   []int64
}

// points returns the shares that a member can have, with the least that each takes, the largest share first.
func (c *component) points(member int) []point {
	l := c.lister(member)
	var ranges []int
	for i := range l.own {
		ranges = append(ranges, l.own[i].high-l.own[i].low)
	}
	l.limit(maxPoints, slices.DeleteFunc(ranges, func(r int) bool { return r == 0 }))
	var kept []point
	l.all(0, func() {
		share := c.share(l.g, l.plan)
		l.scratch = c.use(l.scratch[:0], member, l.plan, share)
		use := l.scratch
		for i := range kept {
			if kept[i].share >= share && within(kept[i].use, use) {
				return
			}
		}
		kept = slices.DeleteFunc(kept, func(p point) bool { return p.share <= share && within(use, p.use) })
		kept = append(kept, point{share: share, use: slices.Clone(use)})
	})
	slices.SortStableFunc(kept, func(a, b point) int { return cmp.Compare(b.share, a.share) })
	return kept
}

// all calls visit for each plan within the bounds.
func (l *lister) all(at int, visit func()) {
	for at < len(l.own) && l.own[at].low == l.own[at].high {
		at++
	}
	if at == len(l.own) {
		visit()
		return
	}
	for n := l.own[at].low; n <= l.own[at].high; n = l.next(n, &l.own[at]) {
		l.plan[at] = n
		l.all(at+1, visit)
	}
	l.plan[at] = l.own[at].low
}
