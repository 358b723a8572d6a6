package optimizer

import (
	"cmp"
	"slices"
)

// option is one way to run a group, or a share that it can have, with what it takes for that.
type option struct {
	replicas []int
	share    int64
	value    value   // of a share: what it is compared by
	uses     []int64 // of the rooms of the component
}

// memberOptions returns the ways to run a member with the shares that are granted to it, of which none is better than another one and takes
// no more.
func (c *component) memberOptions(member int) []option {
	l := c.newLister(member)
	l.visit, l.number = l.offerOption, func() int { return len(l.kept) }
	grant := &c.grants[member]
	for _, share := range append([]int64{grant.least}, grant.also...) {
		if share > Million { // only single shares are granted
			continue
		}
		if share == 0 {
			l.offerOption()
			continue
		}
		l.listPlans(l.group.servedAt(share))
	}
	if l.coarse {
		copy(l.plan, c.unlimited[l.group.first:l.group.end])
		l.offerOption()
	}
	// The grants follow from points: they are there, whatever the listing left out.
	if l.coarse && c.points != nil {
		for _, p := range c.points[member] {
			copy(l.plan, p.replicas)
			l.offerOption()
		}
	}
	return l.kept
}

// listPlans lists the plans that serve a load, and no more replicas than that takes.
func (l *lister) listPlans(served int64) {
	for _, threshold := range l.component.weightThresholds(l.g, served) {
		if l.isCut() {
			break
		}
		missing := threshold
		var ranges []int
		for i := range l.variants {
			v := &l.variants[i]
			l.usable[i] = !v.aside && v.neededWeight(l.group, served) <= threshold
			if l.usable[i] {
				missing = max(missing-scaleWeight(v.weight, int64(v.low)), 0)
				ranges = append(ranges, v.high-v.low)
			}
		}
		if len(ranges) > 0 {
			l.setStep(maxOptions, ranges[:len(ranges)-1]) // the last one has what is missing
		}
		l.listCovers(0, missing)
	}
	if l.coarse {
		l.samplePlans(served)
	}
}

// lister lists options of a member.
type lister struct {
	component *component
	member, g int
	group     *group
	variants  []variant
	usable    []bool
	plan      []int
	free      []bool // variants that take from no limit of the component
	step      int    // between the replicas of a variant
	steps     int64  // that the listing may still take
	coarse    bool   // plans were left out
	visit     func()
	number    func() int // of plans that are kept
	kept      []option
	scratch   []int64
}

// Most plans that are listed for a group. A group of three variants with 60 replicas each has 3600 ways to serve a load, and 216 000 plans.
// Beyond, only each second, third, ... number of replicas is listed, and the result is not proven to be the best.
// All members of a component share the steps of the listing, and the numbers that it keeps.
const (
	maxOptions     = 1 << 11
	maxPoints      = 1 << 15
	maxListSteps   = 1 << 28
	maxListNumbers = 1 << 21
)

// setStep sets the step so that the lister lists no more than a number of plans.
func (l *lister) setStep(most int, ranges []int) {
	plans := func() int {
		n := 1
		for _, r := range ranges {
			if n *= r/l.step + 2; n > most {
				break
			}
		}
		return n
	}
	largest := 0
	for _, r := range ranges {
		largest = max(largest, r)
	}
	for l.step = 1; plans() > most && l.step <= largest; l.step += 1 + l.step/16 { // no need to try each
		l.setCoarse()
	}
}

// setCoarse records that plans are left out.
func (l *lister) setCoarse() {
	l.coarse = true
	l.component.coarse.Store(true)
}

// isCut reports whether the listing ends before it has all plans, and counts a step.
func (l *lister) isCut() bool {
	numbers := l.number() * (len(l.variants) + len(l.component.rooms))
	l.steps -= int64(4*len(l.variants) + len(l.component.rooms) + 2*l.number()) // about a nanosecond each
	if l.steps > 0 && (l.number() <= 1 || numbers <= maxListNumbers/len(l.component.members)) {
		return false
	}
	l.setCoarse()
	return true
}

// samplePlans offers plans with a share: those with the least cost, and those that take the least part of what there is, one variant after
// the other. They are good plans where there are too many to list.
func (l *lister) samplePlans(served int64) {
	c := l.component
	scarcity := func(i int) float64 {
		sum := 0.0
		for d, limit := range c.limits {
			sum += float64(l.variants[i].limitAmount(limit)) / float64(max(c.rooms[d], 1))
		}
		return sum
	}
	cost := func(i int) float64 { return float64(l.variants[i].cost) }
	thresholds := c.weightThresholds(l.g, served)
	for n := 0; n < len(thresholds); n += 1 + len(thresholds)/maxSamples {
		for _, price := range []func(i int) float64{cost, scarcity} {
			l.fillCheapest(thresholds[n], served, price)
		}
	}
}

// maxSamples bounds the thresholds for which a group with too many plans is sampled.
const maxSamples = 8

func (l *lister) fillCheapest(threshold, served int64, price func(i int) float64) {
	var ranked []int
	prices := make([]float64, len(l.variants))
	missing := threshold
	for i := range l.variants {
		if v := &l.variants[i]; !v.aside && v.neededWeight(l.group, served) <= threshold {
			prices[i] = price(i) / float64(v.weight)
			ranked = append(ranked, i)
			missing = max(missing-scaleWeight(v.weight, int64(v.low)), 0)
		}
	}
	slices.SortStableFunc(ranked, func(a, b int) int { return cmp.Compare(prices[a], prices[b]) })
	for _, i := range ranked {
		v := &l.variants[i]
		n := min(int64(v.high-v.low), mulDivUp(missing, 1, v.weight))
		l.plan[i] += int(n)
		missing = max(missing-scaleWeight(v.weight, n), 0)
	}
	if missing == 0 {
		l.visit()
	}
	l.component.lowestPlan(l.g, l.plan)
}

// nextCount returns the number of replicas after n: the steps end with the most.
func (l *lister) nextCount(n int, v *variant) int {
	if n < v.high {
		return min(n+l.step, v.high)
	}
	return n + 1
}

func (c *component) newLister(member int) *lister {
	g := c.members[member]
	l := &lister{component: c, member: member, g: g, group: &c.groups[g], variants: c.groupVariants(g),
		usable: make([]bool, len(c.groupVariants(g)))}
	l.plan = c.lowestPlan(g, make([]int, len(l.variants)))
	l.steps = c.listSteps
	for i := range l.variants {
		l.free = append(l.free, !slices.ContainsFunc(c.limits, func(limit int) bool { return l.variants[i].limitAmount(limit) > 0 }))
	}
	return l
}

// listCovers lists the plans with a weight.
func (l *lister) listCovers(at int, missing int64) {
	if l.isCut() {
		return
	}
	if missing <= 0 {
		l.visit()
		return
	}
	for at < len(l.variants) && !l.usable[at] {
		at++
	}
	if at == len(l.variants) {
		return
	}
	v := &l.variants[at]
	n := v.low
	if !slices.Contains(l.usable[at+1:], true) { // the last one
		n += int(mulDivUp(missing, 1, v.weight))
	}
	for ; n <= v.high; n = l.nextCount(n, v) {
		l.plan[at] = n
		left := missing - v.weight*int64(n-v.low)
		l.listCovers(at+1, left)
		if left <= 0 {
			break
		}
	}
	l.plan[at] = v.low
}

// offerOption keeps the present plan unless another one is better and takes no more, and drops the plans of which it is the same.
func (l *lister) offerOption() {
	share := l.component.servedShare(l.g, l.plan)
	if !l.component.grants[l.member].permits(share) {
		return
	}
	value := l.component.valueOf(l.g, l.plan)
	l.scratch = l.component.appendUse(l.scratch[:0], l.member, l.plan, share)
	uses := l.scratch
	kept := l.kept[:0]
	for i := range l.kept {
		k := &l.kept[i]
		order := k.value.compareTo(value)
		if order == 0 {
			order = l.group.compareNames(k.replicas, l.plan)
		}
		if order <= 0 && fitsWithin(k.uses, uses) {
			return // nothing was dropped before, or k would have been too
		}
		if order < 0 || !fitsWithin(uses, k.uses) {
			kept = append(kept, *k)
		}
	}
	l.kept = append(kept, option{
		replicas: slices.Clone(l.plan), share: share, value: value, uses: slices.Clone(uses),
	})
}

// fitsWithin reports whether a takes no more than b of any limit.
func fitsWithin(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// listPoints returns the shares that a member can have, with the least that each takes, the largest share first.
func (c *component) listPoints(member int) []option {
	l := c.newLister(member)
	var ranges []int
	for i := range l.variants {
		if v := &l.variants[i]; v.low < v.high && !l.free[i] {
			ranges = append(ranges, v.high-v.low)
		}
	}
	l.setStep(maxPoints, ranges)
	var kept []option
	l.number = func() int { return len(kept) }
	l.visit = func() {
		share := c.servedShare(l.g, l.plan)
		l.scratch = c.appendUse(l.scratch[:0], member, l.plan, share)
		uses := l.scratch
		for i := range kept {
			if kept[i].share >= share && fitsWithin(kept[i].uses, uses) {
				return
			}
		}
		kept = slices.DeleteFunc(kept, func(p option) bool { return p.share <= share && fitsWithin(uses, p.uses) })
		kept = append(kept, option{share: share, uses: slices.Clone(uses), replicas: slices.Clone(l.plan)})
	}
	l.visit() // the least replicas
	l.listAllPlans(0)
	if l.coarse {
		for part := int64(1); part <= maxSamples; part++ {
			l.samplePlans(l.group.servedAt(max(1, c.solver.highestShare(l.g)*part/maxSamples)))
		}
	}
	slices.SortStableFunc(kept, func(a, b option) int { return cmp.Compare(b.share, a.share) })
	return kept
}

// listAllPlans calls visit for each plan within the bounds.
func (l *lister) listAllPlans(at int) {
	if l.isCut() {
		return
	}
	for at < len(l.variants) && l.variants[at].low == l.variants[at].high {
		at++
	}
	if at == len(l.variants) {
		l.visit()
		return
	}
	v := &l.variants[at]
	if l.free[at] { // more replicas cost no room and serve as much, but the first one may hold back others
		l.plan[at] = v.high
		l.listAllPlans(at + 1)
	}
	for n := v.low; n <= v.high && (!l.free[at] || n == 0); n = l.nextCount(n, v) {
		l.plan[at] = n
		l.listAllPlans(at + 1)
	}
	l.plan[at] = v.low
}
