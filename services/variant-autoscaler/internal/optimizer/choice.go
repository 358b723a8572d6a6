package optimizer

import (
	"cmp"
	"math"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// chooser chooses one candidate of each list, so that they take no more than there is, at the least value.
type chooser struct {
	lists [][]option
	rooms []int64
	// enough is a cost with which the search may end; nil: the least one is wanted.
	enough *int64
	// firstDifference compares two candidates of a list by name: which variant, by its rank, is the first that differs, and which
	// candidate has fewer replicas of it. nil: all are equally good.
	firstDifference func(list, a, b int) (rank, order int)
	steps           *int64 // that the search may still take; beyond, it keeps few states

	prices prices
	layers []layer
}

// choice is the result of a chooser.
type choice struct {
	picks []int // nil: no choice fits
	value value
	exact bool  // nothing better was left out
	bound int64 // no choice costs less
}

// Most and least states of a search after each list. More of them than the most, or than the steps allow, are cut: the most expensive
// first.
const (
	maxStates = 1 << 16
	minStates = 16
)

// findChoice searches for the best choice. Prices for what is taken give a bound, and each candidate an excess: what it costs more than the
// best one of its list, at these prices. A choice that costs the bound and a gap has an excess of the gap at most, so a small gap rules out
// most candidates. The gap grows until a choice is found within it: then nothing better was left out.
func (c *chooser) findChoice() choice {
	if !c.canFit() {
		return choice{exact: true}
	}
	largest := c.largestCost()
	c.prices = findPrices(c.lists, c.rooms, largest, c.steps)
	if c.enough != nil && c.prices.bound-c.prices.tolerance() > float64(*c.enough) {
		return choice{exact: true}
	}
	worst := largest - c.prices.bound + c.prices.tolerance()
	const first, growth = 2e-5, 3
	for gap := max(1, math.Abs(c.prices.bound)*first); ; gap *= growth {
		found := c.searchWithin(min(gap, worst))
		found.bound = int64(math.Ceil(c.prices.bound - c.prices.tolerance()))
		if gap >= worst ||
			found.picks != nil && (!found.exact || float64(found.value.cost) <= c.prices.bound+gap || c.isEnough(found.value)) {
			return found
		}
	}
}

// canFit reports whether the candidates that take the least of each room fit into it.
func (c *chooser) canFit() bool {
	for d, room := range c.rooms {
		for _, list := range c.lists {
			room -= slices.MinFunc(list, func(a, b option) int { return cmp.Compare(a.uses[d], b.uses[d]) }).uses[d]
		}
		if room < 0 {
			return false
		}
	}
	return true
}

func (c *chooser) isEnough(v value) bool { return c.enough != nil && v.cost <= *c.enough }

// largestCost returns the cost of the most expensive candidates.
func (c *chooser) largestCost() float64 {
	var sum int64
	for _, list := range c.lists {
		sum += slices.MaxFunc(list, func(a, b option) int { return cmp.Compare(a.value.cost, b.value.cost) }).value.cost
	}
	return float64(sum)
}

// layer is the states after a list. A state is what the candidates so far take together: only the best way to take it counts.
type layer struct {
	list       int
	uses       []int64 // of the states, one after the other
	values     []value
	excess     []float64
	from, pick []int32 // state before, and candidate
}

// pricedCandidate is a candidate with a small excess.
type pricedCandidate struct {
	*option

	index  int32
	excess float64
}

// openList is a list with more than one candidate near the bound.
type openList struct {
	list        int
	candidates  []pricedCandidate
	least, most []int64 // what the open lists after it take
}

// searchWithin searches the choices with an excess within a gap.
func (c *chooser) searchWithin(gap float64) choice {
	dimensions := len(c.rooms)
	slack := gap + c.prices.tolerance()
	fixed := slices.Repeat([]int{-1}, len(c.lists))
	start := layer{list: -1, uses: make([]int64, dimensions), values: make([]value, 1), excess: make([]float64, 1)}
	var lists []openList
	for i := range c.lists {
		candidates := c.prices.nearCandidates(i, c.lists[i], slack)
		if len(candidates) > 1 {
			lists = append(lists, openList{list: i, candidates: candidates})
			continue
		}
		only := &candidates[0]
		fixed[i] = int(only.index)
		start.values[0].addValue(only.value)
		addUse(start.uses, only.uses)
	}
	setRest(lists, dimensions)
	c.layers = append(c.layers[:0], start)
	exact := true
	steps := *c.steps / 2 // the rest is for wider gaps
	for n := range lists {
		from := &c.layers[n]
		perState := int64(len(lists[n].candidates) * (dimensions + 2)) // what a state costs without what it takes
		most := max(minStates, min(maxStates, int(steps/int64(len(lists)-n)/perState)))
		exact = !from.dropExcess(most, dimensions) && exact
		steps -= int64(len(from.values)) * perState
		*c.steps -= int64(len(from.values)) * perState
		e := &expansion{chooser: c, openList: &lists[n], gap: slack, from: from}
		c.layers = append(c.layers, e.expandLayer())
		exact = exact && !e.wasCut
		c.layers[n].uses, c.layers[n].values, c.layers[n].excess = nil, nil, nil // only the way back counts
	}
	*c.steps = max(*c.steps, 0)
	last := &c.layers[len(c.layers)-1]
	best := -1
	for n := range last.values {
		if best < 0 || c.isBetter(len(c.layers)-1, n, best) {
			best = n
		}
	}
	if best < 0 || !fitsWithin(last.uses[best*dimensions:(best+1)*dimensions], c.rooms) {
		return choice{exact: exact}
	}
	return choice{picks: c.picksOf(len(c.layers)-1, best, fixed), value: last.values[best], exact: exact}
}

// setRest computes what the lists after each list take at least and at most.
func setRest(lists []openList, dimensions int) {
	least, most := make([]int64, dimensions), make([]int64, dimensions)
	for n := len(lists) - 1; n >= 0; n-- {
		o := &lists[n]
		o.least, o.most = slices.Clone(least), slices.Clone(most)
		for d := range dimensions {
			low, high := int64(math.MaxInt64), int64(0)
			for _, near := range o.candidates {
				low, high = min(low, near.uses[d]), max(high, near.uses[d])
			}
			least[d] += low
			most[d] += high
		}
	}
}

func (v *value) addValue(other value) {
	v.cost += other.cost
	v.replicas += other.replicas
	v.moves += other.moves
}

func addUse(sum, uses []int64) {
	for d := range uses {
		sum[d] += uses[d]
	}
}

// isBetter compares two states of a layer.
func (c *chooser) isBetter(layer, a, b int) bool {
	values := c.layers[layer].values
	if order := values[a].compareTo(values[b]); order != 0 || c.firstDifference == nil {
		return order < 0
	}
	return c.byName(layer, int32(a), int32(b), math.MaxInt, 0) < 0
}

// byName compares two states of a layer by name, after a difference that is known. It follows them to the state that they come from.
func (c *chooser) byName(layer int, a, b int32, rank, order int) int {
	for ; layer > 0 && a != b; layer-- {
		l := &c.layers[layer]
		*c.steps--
		if l.pick[a] != l.pick[b] {
			if r, o := c.firstDifference(l.list, int(l.pick[a]), int(l.pick[b])); r < rank {
				rank, order = r, o
			}
		}
		a, b = l.from[a], l.from[b]
	}
	return order
}

// picksOf returns the candidates of a state. Those of lists that have no layer yet are as given.
func (c *chooser) picksOf(layer, state int, given []int) []int {
	picks := slices.Clone(given)
	for ; layer > 0; layer-- {
		l := &c.layers[layer]
		picks[l.list] = int(l.pick[state])
		state = int(l.from[state])
	}
	return picks
}

// expansion makes a layer of the one before.
type expansion struct {
	*openList

	chooser *chooser
	gap     float64
	from    *layer

	next   layer
	wasCut bool
	table  []int32 // of states by their use; 0: free
	sum    []int64
}

// expandLayer adds each candidate to each state, without what cannot be part of a choice within the gap.
func (e *expansion) expandLayer() layer {
	c, from := e.chooser, e.from
	dimensions := len(c.rooms)
	e.next.list = e.list
	e.table = make([]int32, tableSize(len(from.values)*len(e.candidates)))
	e.sum = make([]int64, dimensions)
	for n := range from.values {
		uses := from.uses[n*dimensions : (n+1)*dimensions]
		for o := range e.candidates {
			near := &e.candidates[o]
			excess := from.excess[n] + near.excess
			if excess > e.gap { // and so are those to come
				break
			}
			if !e.addCandidate(uses, near.uses, excess) {
				continue
			}
			v := from.values[n]
			v.addValue(near.value)
			e.insertState(v, excess, int32(n), near.index)
		}
		if len(e.next.values) > 2*maxStates {
			e.cutStates()
		}
	}
	if len(e.next.values) > maxStates {
		e.cutStates()
	}
	return e.next
}

// cutStates drops states while they are made, so that they never take much memory.
func (e *expansion) cutStates() {
	dimensions := len(e.sum)
	e.next.dropExcess(maxStates, dimensions)
	e.wasCut = true
	clear(e.table)
	mask := uint64(len(e.table) - 1)
	for n := range e.next.values {
		slot := hashUse(e.next.uses[n*dimensions:(n+1)*dimensions]) & mask
		for e.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		e.table[slot] = int32(n + 1)
	}
}

// addCandidate computes what a state and a candidate take. It reports whether the lists to come can complete it within the rooms and the
// gap.
func (e *expansion) addCandidate(use, more []int64, excess float64) bool {
	c := e.chooser
	for d := range e.sum {
		sum := use[d] + more[d]
		e.sum[d] = sum
		if sum+e.least[d] > c.rooms[d] {
			return false
		}
		if unused := c.rooms[d] - sum - e.most[d]; unused > 0 {
			if excess += c.prices.byRoom[d] * float64(unused); excess > e.gap {
				return false
			}
		}
	}
	return true
}

// insertState keeps a state, unless there is a better one that takes the same.
func (e *expansion) insertState(v value, excess float64, from, pick int32) {
	dimensions := len(e.sum)
	mask := uint64(len(e.table) - 1)
	slot := hashUse(e.sum) & mask
	for ; e.table[slot] != 0; slot = (slot + 1) & mask {
		n := int(e.table[slot]) - 1
		if !slices.Equal(e.next.uses[n*dimensions:(n+1)*dimensions], e.sum) {
			continue
		}
		if e.isBetter(v, from, pick, n) {
			e.next.values[n], e.next.excess[n], e.next.from[n], e.next.pick[n] = v, min(excess, e.next.excess[n]), from, pick
		}
		return
	}
	e.next.uses = append(e.next.uses, e.sum...)
	e.next.values = append(e.next.values, v)
	e.next.excess = append(e.next.excess, excess)
	e.next.from = append(e.next.from, from)
	e.next.pick = append(e.next.pick, pick)
	e.table[slot] = int32(len(e.next.values))
}

// isBetter compares a new state with one of the layer that takes the same.
func (e *expansion) isBetter(v value, from, pick int32, old int) bool {
	c := e.chooser
	if order := v.compareTo(e.next.values[old]); order != 0 || c.firstDifference == nil {
		return order < 0
	}
	rank, order := math.MaxInt, 0
	if pick != e.next.pick[old] {
		rank, order = c.firstDifference(e.list, int(pick), int(e.next.pick[old]))
	}
	return c.byName(len(c.layers)-1, from, e.next.from[old], rank, order) < 0
}

// tableSize returns a power of two that is at least twice the number of states. An expansion has 2·maxStates of them at most, and those
// that the last state before a cut adds.
func tableSize(states int) int {
	size := 64
	for size < 2*min(states, 2*maxStates+maxPoints) {
		size *= 2
	}
	return size
}

func hashUse(uses []int64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range uses {
		h = (h ^ uint64(n)) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// dropExcess drops the states with the largest excess beyond a number, and reports whether it did.
func (l *layer) dropExcess(most, dimensions int) bool {
	if len(l.values) <= most {
		return false
	}
	order := snapshot.SortedPositions(len(l.values), func(a, b int) int { return cmp.Compare(l.excess[a], l.excess[b]) })
	kept := layer{list: l.list}
	for _, n := range order[:most] {
		kept.uses = append(kept.uses, l.uses[n*dimensions:(n+1)*dimensions]...)
		kept.values = append(kept.values, l.values[n])
		kept.excess = append(kept.excess, l.excess[n])
		kept.from = append(kept.from, l.from[n])
		kept.pick = append(kept.pick, l.pick[n])
	}
	*l = kept
	return true
}
