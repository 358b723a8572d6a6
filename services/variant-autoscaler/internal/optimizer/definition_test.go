package optimizer

import (
	"cmp"
	"math/big"
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// The objective as it is defined, as plainly as it can be written, with numbers of any size. Nothing here is used by the optimizer.

// definition compares plans of a problem.
type definition struct {
	p       *Problem
	weights [][]*big.Int
}

func whole(n int64) *big.Int { return big.NewInt(n) }

func define(p *Problem) *definition {
	d := &definition{p: p}
	for i := range p.Groups {
		variants := p.Groups[i].Variants
		seen, able := new(big.Int), new(big.Int)
		for _, v := range variants {
			if v.Weight > 0 && v.Capacity > 0 {
				seen.Add(seen, whole(v.Weight))
				able.Add(able, whole(v.Capacity))
			}
		}
		var weights []*big.Int
		for _, v := range variants {
			switch {
			case p.Split == SplitEqual:
				weights = append(weights, whole(1))
			case p.Split == SplitCapacity || seen.Sign() == 0:
				weights = append(weights, whole(v.Capacity))
			case v.Weight > 0:
				weights = append(weights, whole(v.Weight))
			default:
				w := new(big.Int).Mul(whole(v.Capacity), seen)
				w.Quo(w, able)
				if w.Sign() == 0 {
					w.SetInt64(1)
				}
				weights = append(weights, w)
			}
		}
		d.weights = append(d.weights, weights)
	}
	return d
}

// demand is the rate with headroom, rounded up.
func (d *definition) demand(g *Group) *big.Int {
	n := new(big.Int).Mul(whole(g.Rate), whole(100+d.p.HeadroomPercent))
	n.Add(n, whole(99))
	return n.Quo(n, whole(100))
}

// share is what a group serves of its demand, in millionths, rounded down.
func (d *definition) share(i int, replicas []int) int64 {
	g := &d.p.Groups[i]
	demand, total, used := d.demand(g), new(big.Int), 0
	for n, v := range g.Variants {
		if v.Capacity > 0 {
			total.Add(total, new(big.Int).Mul(d.weights[i][n], whole(int64(replicas[n]))))
			used += replicas[n]
		}
	}
	switch {
	case demand.Sign() == 0 && g.NeedsReplica && used == 0:
		return 0
	case demand.Sign() == 0:
		return Million
	case used == 0:
		return 0
	}
	served := demand
	for n, v := range g.Variants {
		if v.Capacity == 0 || replicas[n] == 0 {
			continue
		}
		most := new(big.Int).Mul(whole(v.Capacity), total)
		most.Quo(most, d.weights[i][n])
		if most.Cmp(served) < 0 {
			served = most
		}
	}
	share := new(big.Int).Mul(served, whole(Million))
	return share.Quo(share, demand).Int64()
}

// bounds returns the least and the most replicas of a variant. Beyond the demand, more replicas of one variant never help.
func (d *definition) bounds(i, n, most int) (int, int) {
	v := &d.p.Groups[i].Variants[n]
	if v.Capacity == 0 {
		kept := v.Now
		if v.Max > 0 {
			kept = min(kept, v.Max)
		}
		return max(v.Min, kept), max(v.Min, kept)
	}
	if v.Max > 0 {
		return v.Min, v.Max
	}
	return v.Min, max(v.Min, most)
}

// taken returns what a plan takes of a limit, and what the least replicas take.
func (d *definition) taken(index int, plan [][]int) (taken, least int64) {
	l := &d.p.Limits[index]
	for i := range d.p.Groups {
		g := &d.p.Groups[i]
		for n := range g.Variants {
			v := &g.Variants[n]
			if l.Accelerator != "" && v.Accelerator != l.Accelerator || l.Namespace != "" && l.Namespace != g.Namespace || l.Priority != 0 && l.Priority != g.Priority {
				continue
			}
			low, _ := d.bounds(i, n, 0)
			each := map[snapshot.Unit]int64{snapshot.Cards: v.Cards, snapshot.Replicas: 1, snapshot.Cost: v.Cost}[l.Unit]
			for _, p := range v.Places {
				if p.Limit == index {
					each = p.Amount
				}
			}
			taken += each * int64(plan[i][n])
			least += each * int64(low)
		}
	}
	return taken, least
}

func (d *definition) fits(plan [][]int) bool {
	for l := range d.p.Limits {
		taken, least := d.taken(l, plan)
		if taken > max(d.p.Limits[l].Amount, least) {
			return false
		}
	}
	return true
}

// compare is negative if the first plan is better.
func (d *definition) compare(a, b [][]int) int {
	var priorities []int
	for i := range d.p.Groups {
		priorities = append(priorities, d.p.Groups[i].Priority)
	}
	slices.Sort(priorities)
	for _, priority := range slices.Compact(priorities) {
		var x, y []int64
		for i := range d.p.Groups {
			if d.p.Groups[i].Priority == priority {
				x, y = append(x, d.share(i, a[i])), append(y, d.share(i, b[i]))
			}
		}
		slices.Sort(x)
		slices.Sort(y)
		if order := slices.Compare(y, x); order != 0 {
			return order
		}
	}
	var x, y [3]int64 // cost, replicas, changes
	type named struct {
		namespace, name string
		a, b            int
	}
	var all []named
	for i := range d.p.Groups {
		for n, v := range d.p.Groups[i].Variants {
			x[0] += v.Cost * int64(a[i][n])
			y[0] += v.Cost * int64(b[i][n])
			x[1] += int64(a[i][n])
			y[1] += int64(b[i][n])
			x[2] += int64(max(a[i][n]-v.Now, v.Now-a[i][n]))
			y[2] += int64(max(b[i][n]-v.Now, v.Now-b[i][n]))
			all = append(all, named{d.p.Groups[i].Namespace, v.Name, a[i][n], b[i][n]})
		}
	}
	if order := slices.Compare(x[:], y[:]); order != 0 {
		return order
	}
	slices.SortFunc(all, func(v, w named) int {
		return cmp.Or(cmp.Compare(v.namespace, w.namespace), cmp.Compare(v.name, w.name))
	})
	for _, v := range all {
		if v.a != v.b {
			return cmp.Compare(v.a, v.b)
		}
	}
	return 0
}

// best tries all plans. most bounds variants without a maximum.
func (d *definition) best(most int) []int {
	var plan, best [][]int
	for i := range d.p.Groups {
		plan = append(plan, make([]int, len(d.p.Groups[i].Variants)))
	}
	clone := func() [][]int {
		var all [][]int
		for _, part := range plan {
			all = append(all, slices.Clone(part))
		}
		return all
	}
	var walk func(i, n int)
	walk = func(i, n int) {
		if i == len(plan) {
			if d.fits(plan) && (best == nil || d.compare(plan, best) < 0) {
				best = clone()
			}
			return
		}
		if n == len(plan[i]) {
			walk(i+1, 0)
			return
		}
		low, high := d.bounds(i, n, most)
		for plan[i][n] = low; plan[i][n] <= high; plan[i][n]++ {
			walk(i, n+1)
		}
	}
	walk(0, 0)
	return slices.Concat(best...)
}
