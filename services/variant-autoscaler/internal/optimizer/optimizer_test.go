package optimizer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const unit = 1_000_000

// variants returns variants of the classes A100, H100 and L40S.
func variants(capacities ...int64) []Variant {
	classes := []Variant{{Name: "a", Accelerator: "A100", Cost: 40 * unit}, {Name: "h", Accelerator: "H100", Cost: 100 * unit}, {Name: "l", Accelerator: "L40S", Cost: 23 * unit}}
	var all []Variant
	for i, c := range capacities {
		v := classes[i]
		v.Cards, v.Capacity = 1, c*unit
		all = append(all, v)
	}
	return all
}

func bounded(all []Variant, bounds ...[2]int) []Variant {
	for i, b := range bounds {
		all[i].Min, all[i].Max = b[0], b[1]
	}
	return all
}

func limits(a, h, l int64) []snapshot.Limit {
	return []snapshot.Limit{
		{Unit: snapshot.Cards, Accelerator: "A100", Amount: a}, {Unit: snapshot.Cards, Accelerator: "H100", Amount: h},
		{Unit: snapshot.Cards, Accelerator: "L40S", Amount: l},
	}
}

// TestPlans has the vectors of the reference, which were verified by trying all plans.
func TestPlans(t *testing.T) {
	t.Parallel()
	one := func(rate int64, v []Variant) []Group {
		return []Group{{Model: "m", Priority: 1, Rate: rate * unit, Variants: v}}
	}
	two := func(first, second int) []Group {
		other := variants(12, 38)
		other[0].Name, other[1].Name = "other-a", "other-h"
		return []Group{{Model: "m1", Priority: first, Rate: 55 * unit, Variants: variants(15, 50, 7)}, {Model: "m2", Priority: second, Rate: 30 * unit, Variants: other}}
	}
	sized := []Variant{{Name: "a", Cards: 1, Cost: 10_500_000, Capacity: 815_596}, {Name: "l", Cards: 1, Cost: 8_500_000, Capacity: 1_467_612}}
	cheap := func(costs, capacities [2]int64) []Variant {
		return []Variant{{Name: "a", Cards: 1, Cost: costs[0] * unit, Capacity: capacities[0] * unit}, {Name: "b", Cards: 1, Cost: costs[1] * unit, Capacity: capacities[1] * unit}}
	}
	set := func(a, h, cost, cards int64) []Variant {
		return []Variant{{Name: fmt.Sprintf("a%d", a), Accelerator: "A100", Cards: a, Cost: a * unit, Capacity: unit}, {Name: fmt.Sprintf("h%d", h), Accelerator: "H100", Cards: cards, Cost: cost * unit, Capacity: unit}}
	}
	tests := []struct {
		name   string
		groups []Group
		limits []snapshot.Limit
		want   []int
		cost   int64
		shares []int64
	}{
		{name: "sized, half a request", groups: one(0, nil), want: nil},
		{name: "5", groups: one(5, variants(15, 50, 7)), want: []int{0, 0, 1}, cost: 23},
		{name: "14", groups: one(14, variants(15, 50, 7)), want: []int{1, 0, 0}, cost: 40},
		{name: "21", groups: one(21, variants(15, 50, 7)), want: []int{1, 0, 1}, cost: 63},
		{name: "55", groups: one(55, variants(15, 50, 7)), want: []int{0, 1, 1}, cost: 123},
		{name: "64", groups: one(64, variants(15, 50, 7)), want: []int{1, 1, 0}, cost: 140},
		{name: "71", groups: one(71, variants(15, 50, 7)), want: []int{1, 1, 1}, cost: 163},
		{name: "101", groups: one(101, variants(15, 50, 7)), want: []int{0, 2, 1}, cost: 223},
		{name: "128", groups: one(128, variants(15, 50, 7)), want: []int{2, 2, 0}, cost: 280},
		{name: "230", groups: one(230, variants(15, 50, 7)), want: []int{2, 4, 0}, cost: 480},
		{name: "bounds, 5", groups: one(5, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{1, 0, 0}, cost: 40},
		{name: "bounds, 30", groups: one(30, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{2, 0, 0}, cost: 80},
		{name: "bounds, 60", groups: one(60, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{1, 1, 0}, cost: 140},
		{name: "bounds, 80", groups: one(80, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{2, 1, 0}, cost: 180},
		{name: "bounds, 95", groups: one(95, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{2, 1, 3}, cost: 249},
		{name: "bounds, 108", groups: one(108, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})), want: []int{2, 1, 4}, cost: 272},
		{
			name: "bounds, 109", groups: one(109, bounded(variants(15, 50, 7), [2]int{1, 2}, [2]int{0, 1}, [2]int{0, 4})),
			want: []int{2, 1, 4}, cost: 272, shares: []int64{108 * unit / 109},
		},
		{name: "a waste of the last replica", groups: one(45, cheap([2]int64{5, 15}, [2]int64{10, 40})), want: []int{1, 1}, cost: 20},
		{name: "a small demand", groups: one(5000, cheap([2]int64{15, 5}, [2]int64{40000, 10000})), want: []int{0, 1}, cost: 5},
		{name: "ample", groups: two(1, 10), want: []int{0, 1, 1, 0, 1}, cost: 223},
		{name: "one H100", groups: two(1, 10), limits: limits(2, 1, 8), want: []int{2, 0, 4, 0, 1}, cost: 272},
		{name: "one H100, three A100", groups: two(1, 10), limits: limits(3, 1, 8), want: []int{0, 1, 1, 3, 0}, cost: 243},
		{name: "too few", groups: two(1, 10), limits: limits(2, 1, 2), want: []int{0, 1, 1, 2, 0}, cost: 203, shares: []int64{Million, 800_000}},
		{name: "too few, the other one more important", groups: two(10, 1), limits: limits(2, 1, 2), want: []int{2, 0, 2, 0, 1}, cost: 226, shares: []int64{800_000, Million}},
		{name: "no A100", groups: two(1, 10), limits: limits(0, 1, 8), want: []int{0, 0, 8, 0, 1}, cost: 284},
		{
			name: "the first in line takes the cards that others need more",
			groups: []Group{
				{Model: "1", Priority: 1, Rate: unit, Variants: set(4, 2, 10, 2)}, {Model: "2", Namespace: "b", Priority: 1, Rate: unit, Variants: set(2, 1, 7, 1)},
				{Model: "3", Namespace: "c", Priority: 1, Rate: unit, Variants: set(2, 1, 7, 1)},
			},
			limits: limits(4, 2, 0), want: []int{0, 1, 1, 0, 1, 0}, cost: 14,
		},
		{
			name:   "and one that others cannot do without",
			groups: []Group{{Model: "1", Priority: 1, Rate: unit, Variants: set(4, 2, 10, 2)}, {Model: "2", Namespace: "b", Priority: 2, Rate: unit, Variants: set(2, 3, 7, 3)}},
			limits: limits(4, 2, 0), want: []int{0, 1, 1, 0}, cost: 12,
		},
		{name: "sized, 0.5", groups: []Group{{Rate: unit / 2, Variants: sized}}, want: []int{0, 1}, cost: 8},
		{name: "sized, 10", groups: []Group{{Rate: 10 * unit, Variants: sized}}, want: []int{0, 7}, cost: 59},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Problem{Split: SplitCapacity, Limits: tt.limits, Groups: tt.groups}
			plan := Solve(p)
			assert.Equal(t, append([]int{}, tt.want...), append([]int{}, plan.Replicas...))
			assert.Equal(t, tt.cost, plan.Cost/unit)
			assert.Equal(t, plan.Cost, plan.Bound)
			if tt.shares == nil {
				for range tt.groups {
					tt.shares = append(tt.shares, Million)
				}
			}
			assert.Equal(t, tt.shares, plan.Shares)
			assert.Equal(t, plan, Solve(p), "the same problem gives the same plan")
		})
	}
}

// random returns a problem whose plans can be counted out.
func random(r *rand.Rand) *Problem {
	p := &Problem{Split: []Split{SplitCapacity, SplitEqual, SplitObserved}[r.IntN(3)], HeadroomPercent: int64(r.IntN(3)) * 10, SavingPercent: 5}
	classes := []string{"A100", "H100", "L40S"}
	coarse := r.IntN(2) == 0 // many ties
	number := func(most int64) int64 {
		if coarse {
			return (1 + r.Int64N(3)) * 1000
		}
		return 1 + r.Int64N(most)
	}
	left := 6
	for i := 0; left > 0; i++ {
		g := Group{Namespace: []string{"x", "y"}[r.IntN(2)], Pool: "p", Model: fmt.Sprint(i), Priority: 1 + r.IntN(2),
			NeedsReplica: r.IntN(2) == 0}
		var able int64
		for range min(left, 1+r.IntN(4)) {
			left--
			v := Variant{
				Name: fmt.Sprintf("%03d-%d-%d", r.IntN(1000), i, left), Accelerator: classes[r.IntN(3)], Cards: 1 + r.Int64N(3), Cost: number(90_000) - 1, Min: r.IntN(8) / 7,
				Max: 1 + r.IntN(3), Now: r.IntN(4), Held: r.IntN(4), Capacity: number(20_000),
			}
			if r.IntN(3) > 0 {
				v.Weight = number(20_000)
			}
			if r.IntN(12) == 0 {
				v.Capacity = 0
			}
			able += v.Capacity * int64(v.Max)
			g.Variants = append(g.Variants, v)
		}
		g.Rate = r.Int64N(able + 2)
		if r.IntN(6) == 0 {
			g.Rate = 0
		}
		p.Groups = append(p.Groups, g)
	}
	for _, class := range classes {
		switch r.IntN(4) {
		case 0:
			p.Limits = append(p.Limits, snapshot.Limit{Unit: snapshot.Cards, Accelerator: class, Amount: r.Int64N(8)})
		case 1:
			p.Limits = append(p.Limits, snapshot.Limit{Unit: snapshot.Cards, Accelerator: class, Amount: r.Int64N(5), Namespace: "x"},
				snapshot.Limit{Unit: snapshot.Cards, Accelerator: class, Amount: r.Int64N(5), Priority: 1 + r.IntN(2)})
		}
	}
	if r.IntN(3) == 0 {
		addPlaces(p, r)
	}
	for range r.IntN(7) / 3 {
		l := snapshot.Limit{Unit: snapshot.Replicas, Amount: r.Int64N(8)}
		if r.IntN(2) == 0 {
			l = snapshot.Limit{Unit: snapshot.Cost, Amount: number(300_000)}
		}
		l.Accelerator = []string{"", classes[0]}[r.IntN(3)/2]
		l.Namespace = []string{"", "x", "y"}[r.IntN(3)]
		l.Priority = []int{0, 0, 1, 2}[r.IntN(4)]
		p.Limits = append(p.Limits, l)
	}
	return p
}

// TestBestOfAllPlans compares plans with the best of all, by the definition.
func TestBestOfAllPlans(t *testing.T) {
	t.Parallel()
	for seed := range testlane.Repetitions(150, 1500) {
		p := random(rand.New(rand.NewPCG(uint64(seed), 17)))
		plan := Solve(p)
		if want := define(p).best(0); !assert.Equal(t, want, plan.Replicas, "seed %d: %+v", seed, p) {
			return
		}
		assert.Equal(t, plan.Cost, plan.Bound, "seed %d", seed)
	}
}

// addPlaces adds limits of places for pods of one, and of two or more cards, which count some of the variants.
func addPlaces(p *Problem, r *rand.Rand) {
	for _, size := range []int64{1, 2} {
		for g := range p.Groups {
			for n := range p.Groups[g].Variants {
				if v := &p.Groups[g].Variants[n]; v.Cards >= size && r.IntN(4) > 0 {
					v.Places = append(v.Places, Places{Limit: len(p.Limits), Amount: v.Cards / size})
				}
			}
		}
		p.Limits = append(p.Limits, snapshot.Limit{Unit: UnitPlaces, Amount: r.Int64N(10)})
	}
}
