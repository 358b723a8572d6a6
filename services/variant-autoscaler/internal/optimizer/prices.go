package optimizer

import (
	"cmp"
	"math"
	"slices"
)

// prices are costs for what candidates take. Whatever they are, no choice within the rooms costs less than the bound: the sum of the
// least priced costs of all lists, minus what the rooms are worth.
type prices struct {
	byRoom []float64
	least  []float64 // priced cost of the best candidate of each list
	bound  float64
	scale  float64 // sum of all numbers that the bound is made of, and of the largest costs
}

// tolerance covers rounding.
func (p *prices) tolerance() float64 { return 1e-11*p.scale + 1e-6 }

// flatLists has the numbers of all candidates in flat slices, for fast arithmetic.
type flatLists struct {
	ends  []int
	costs []float64
	uses  []float64 // of a candidate, one after the other
	rooms []float64

	largest float64 // sum of the largest costs
}

// priceStep is how many terms of a price cost as much as a step of the search.
const priceStep = 8

// findPrices looks for prices with a high bound, by steps along the subgradient: the price of what is taken too often rises, the others
// fall. Steps get shorter when the bound does not rise.
func findPrices(lists [][]option, rooms []int64, largest float64, steps *int64) prices {
	const rounds, patience, first = 400, 12, 0.02
	f := flattenLists(lists, rooms)
	f.largest = largest
	taken := make([]float64, len(rooms))
	best := f.boundAt(make([]float64, len(rooms)), taken)
	if len(rooms) == 0 {
		return best
	}
	price, gradient := slices.Clone(best.byRoom), slices.Clone(taken)
	bestGradient := slices.Clone(taken)
	stride, stale := first, 0
	cost := int64(len(f.costs)) * int64(len(rooms)+1) / priceStep
	for range rounds {
		if *steps -= cost; *steps < 0 {
			break
		}
		norm := 0.0
		for d := range rooms {
			over := gradient[d] - f.rooms[d]
			if over < 0 && price[d] == 0 {
				over = 0
			}
			gradient[d] = over
			norm += over * over
		}
		if norm == 0 || stride < 1e-9 {
			break
		}
		step := stride * max(math.Abs(best.bound), 1) / norm
		for d := range rooms {
			price[d] = max(0, price[d]+step*gradient[d])
		}
		if now := f.boundAt(price, gradient); now.bound > best.bound {
			best, stale = now, 0
			copy(bestGradient, gradient)
		} else if stale++; stale == patience {
			copy(price, best.byRoom)
			copy(gradient, bestGradient)
			stride, stale = stride/2, 0 // halves
		}
	}
	return best
}

func flattenLists(lists [][]option, rooms []int64) *flatLists {
	f := &flatLists{}
	for _, list := range lists {
		for _, c := range list {
			f.costs = append(f.costs, float64(c.value.cost))
			for _, n := range c.uses {
				f.uses = append(f.uses, float64(n))
			}
		}
		f.ends = append(f.ends, len(f.costs))
	}
	for _, n := range rooms {
		f.rooms = append(f.rooms, float64(n))
	}
	return f
}

// boundAt returns the bound at prices, and fills in what the best candidates take.
func (f *flatLists) boundAt(price, taken []float64) prices {
	p := prices{byRoom: slices.Clone(price), least: make([]float64, len(f.ends)), scale: f.largest}
	clear(taken)
	dimensions, first := len(price), 0
	for i, end := range f.ends {
		least, best := math.Inf(1), first
		for n := first; n < end; n++ {
			cost := f.costs[n]
			for d, amount := range f.uses[n*dimensions : (n+1)*dimensions] {
				cost += amount * price[d]
			}
			if cost < least {
				least, best = cost, n
			}
		}
		p.least[i] = least
		p.bound += least
		p.scale += math.Abs(least)
		for d, amount := range f.uses[best*dimensions : (best+1)*dimensions] {
			taken[d] += amount
		}
		first = end
	}
	for d, room := range f.rooms {
		p.bound -= room * price[d]
		p.scale += room * price[d]
	}
	return p
}

// nearCandidates returns the candidates of a list with an excess within a gap, the least one first.
func (p *prices) nearCandidates(list int, candidates []option, gap float64) []pricedCandidate {
	var nearby []pricedCandidate
	for n := range candidates {
		c := &candidates[n]
		excess := float64(c.value.cost) - p.least[list]
		for d, amount := range c.uses {
			excess += float64(amount) * p.byRoom[d]
		}
		if excess <= gap {
			nearby = append(nearby, pricedCandidate{option: c, index: int32(n), excess: max(excess, 0)})
		}
	}
	slices.SortStableFunc(nearby, func(a, b pricedCandidate) int { return cmp.Compare(a.excess, b.excess) })
	return nearby
}
