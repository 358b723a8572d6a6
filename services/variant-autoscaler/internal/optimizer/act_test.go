package optimizer

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestAct(t *testing.T) {
	t.Parallel()
	with := func(v []Variant, now, held []int) []Variant {
		for i := range v {
			v[i].Now, v[i].Held = now[i], held[i]
		}
		return v
	}
	tests := []struct {
		name     string
		split    Split
		rate     int64
		variants []Variant
		limits   []snapshot.Limit
		plan     []int
		want     []int
	}{
		{name: "up at once", rate: 20, variants: with(variants(15), []int{1}, []int{1}), plan: []int{2}, want: []int{2}},
		{name: "down after the window", rate: 20, variants: with(variants(15), []int{4}, []int{2}), plan: []int{2}, want: []int{2}},
		{name: "not before", rate: 20, variants: with(variants(15), []int{4}, []int{3}), plan: []int{2}, want: []int{3}},
		{name: "never up for what was wanted", rate: 20, variants: with(variants(15), []int{2}, []int{5}), plan: []int{2}, want: []int{2}},
		{name: "the maximum holds", rate: 20, variants: with(bounded(variants(15), [2]int{0, 3}), []int{4}, []int{4}), plan: []int{2}, want: []int{3}},
		// 5 A100 for 200 serve as much as 2 H100 for 200, and 4 % is too little to change for.
		{name: "a saving that is too small", rate: 70, variants: with(variants(15, 36), []int{5, 0}, []int{0, 0}), plan: []int{0, 2}, want: []int{5, 0}},
		{name: "present replicas that serve less", rate: 70, variants: with(variants(15, 36), []int{4, 0}, []int{0, 0}), plan: []int{0, 2}, want: []int{0, 2}},
		// With an equal split, a slow replica gets as much as a fast one: holding it would serve less.
		{name: "a replica that holds back others", split: SplitEqual, rate: 100, variants: with(variants(0, 50, 7), []int{0, 2, 1}, []int{0, 2, 1}), plan: []int{0, 2, 0}, want: []int{0, 2, 0}},
		{name: "a limit", rate: 20, variants: with(variants(15), []int{4}, []int{4}), limits: limits(3, 0, 0), plan: []int{2}, want: []int{2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Problem{Split: SplitCapacity, SavingPercent: 5, Limits: tt.limits, Groups: []Group{{Priority: 1, Rate: tt.rate * unit, Variants: tt.variants}}}
			if tt.split != "" {
				p.Split = tt.split
			}
			require.NoError(t, p.Validate())
			plan := Solve(p)
			assert.Equal(t, tt.plan, plan.Replicas, "the plan")
			_, acted := Stabilize(p, plan)
			assert.Equal(t, tt.want, acted)
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	valid := func() *Problem {
		return &Problem{Split: SplitEqual, Groups: []Group{{Namespace: "x", Priority: 1, Variants: []Variant{{Name: "a", Cards: 1}, {Name: "b", Cards: 1}}}}}
	}
	require.NoError(t, valid().Validate())
	tests := map[string]struct {
		change func(p *Problem)
		want   string
	}{
		"split":            {func(p *Problem) { p.Split = "half" }, `split "half" is not one of`},
		"headroom":         {func(p *Problem) { p.HeadroomPercent = 1001 }, "the headroom is 1001 %"},
		"rate":             {func(p *Problem) { p.Groups[0].Rate = math.MaxInt64 }, "group 0: the rate is"},
		"priority":         {func(p *Problem) { p.Groups[0].Priority = 0 }, "group 0: the priority is 0"},
		"two of one name":  {func(p *Problem) { p.Groups[0].Variants[1].Name = "a" }, `group 0: another variant of namespace "x" is called "a"`},
		"cost":             {func(p *Problem) { p.Groups[0].Variants[0].Cost = -1 }, `group 0: variant "a": the cost is -1`},
		"cards":            {func(p *Problem) { p.Groups[0].Variants[0].Cards = 0 }, `variant "a": the number of cards is 0`},
		"replicas":         {func(p *Problem) { p.Groups[0].Variants[1].Max = 1_000_000_000 }, `variant "b": the largest number of replicas is 1000000000`},
		"bounds":           {func(p *Problem) { p.Groups[0].Variants[1].Min, p.Groups[0].Variants[1].Max = 3, 2 }, `variant "b": at most 2 replicas, and at least 3`},
		"capacity":         {func(p *Problem) { p.Groups[0].Variants[0].Capacity = math.MaxInt64 }, `variant "a": the capacity is`},
		"the cost of all":  {func(p *Problem) { p.Groups[0].Variants = expensive(30) }, "all replicas together cost more than"},
		"unit":             {func(p *Problem) { p.Limits = []snapshot.Limit{{Unit: "nodes"}} }, `limit 0: unit "nodes" is not one of cards, replicas, cost`},
		"amount":           {func(p *Problem) { p.Limits = []snapshot.Limit{{Unit: snapshot.Cost, Amount: math.MaxInt64}} }, "limit 0: the amount is"},
		"limits":           {func(p *Problem) { p.Limits = make([]snapshot.Limit, MaxLimits+1) }, "there are 1001 limits, and at most 1000 are allowed"},
		"limits of places": {func(p *Problem) { p.Limits = slices.Repeat([]snapshot.Limit{{Unit: UnitPlaces}}, MaxPlaces+1) }, "there are 513 limits of places, and at most 512 are allowed"},
		"no such places":   {func(p *Problem) { p.Groups[0].Variants[0].Places = []Places{{Limit: 7}} }, "limit 7 is none of places"},
		"places of cards": {func(p *Problem) {
			p.Limits, p.Groups[0].Variants[0].Places = []snapshot.Limit{{Unit: snapshot.Cards}}, []Places{{}}
		}, "limit 0 is none of places"},
		"places twice": {func(p *Problem) {
			p.Limits, p.Groups[0].Variants[0].Places = []snapshot.Limit{{Unit: UnitPlaces}}, []Places{{Amount: 1}, {Amount: 1}}
		}, "the limits of places are not in their order"},
		"number of places": {func(p *Problem) {
			p.Limits, p.Groups[0].Variants[0].Places = []snapshot.Limit{{Unit: UnitPlaces}}, []Places{{Amount: -1}}
		}, "a replica takes -1 places"},
		"weight":           {func(p *Problem) { p.Groups[0].Variants[0].Weight = -5 }, `variant "a": the weight is -5`},
		"present replicas": {func(p *Problem) { p.Groups[0].Variants[0].Now = -1 }, `variant "a": the present number of replicas is -1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := valid()
			tt.change(p)
			require.ErrorContains(t, p.Validate(), tt.want)
		})
	}
}

func expensive(n int) []Variant {
	var all []Variant
	for i := range n {
		all = append(all, Variant{Name: string(rune('a' + i)), Cards: 1, Cost: maxCost})
	}
	return all
}

// TestLargeGroups has more ways to serve its load than are listed: the plan is within the limits, and claims nothing.
func TestLargeGroups(t *testing.T) {
	t.Parallel()
	p := &Problem{Split: SplitCapacity, Limits: limits(450, 60, 1200)}
	for i := range 3 {
		v := variants(15, 50, 7)
		for n := range v {
			v[n].Name += string(rune('0' + i))
		}
		p.Groups = append(p.Groups, Group{Namespace: "x", Priority: 1, Rate: 4500 * unit, Variants: v})
	}
	plan := Solve(p)
	taken := [3]int{}
	for i, n := range plan.Replicas {
		taken[i%3] += n
	}
	assert.LessOrEqual(t, taken[0], 450)
	assert.LessOrEqual(t, taken[1], 60)
	assert.LessOrEqual(t, taken[2], 1200)
	assert.Equal(t, []int64{Million, Million, Million}, plan.Shares)
	assert.Less(t, plan.Bound, plan.Cost)
	assert.Equal(t, []int{0, 1}, plan.Limiting)
}

func TestRoom(t *testing.T) {
	t.Parallel()
	group := Group{Namespace: "ns", Model: "m", Priority: 1, Rate: 10, Variants: variants(15, 36)}
	other := Group{Namespace: "other", Model: "m", Priority: 1, Rate: 10, Variants: variants(15)}
	p := &Problem{Split: SplitCapacity, Groups: []Group{group, other}, Limits: []snapshot.Limit{{Unit: snapshot.Replicas, Namespace: "ns", Amount: 5}, {Unit: snapshot.Replicas, Amount: 7}}}
	require.NoError(t, p.Validate())
	room := NewReport(p).RoomBeside([]int{1, 1, 1})
	assert.False(t, room.Reserve(0, 4))
	assert.True(t, room.Reserve(0, 2), "what did not fit took nothing")
	assert.True(t, room.Reserve(1, 1))
	assert.False(t, room.Reserve(1, 1), "the namespace has all")
	assert.True(t, room.Reserve(2, 1))
	assert.False(t, room.Reserve(2, 1), "all together have all")
}
