package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// packed returns an instance in which nodes limit pods of one, of two and of four cards, instead of a number of cards. Of each kind of
// accelerator, the places for each of these sizes are a part of what the plan without limits takes.
func packed(p *optimizer.Problem, percent map[string]int64) *optimizer.Problem {
	relaxed := *p
	relaxed.Limits = nil
	ample := optimizer.Solve(&relaxed).Replicas
	relaxed.Groups = slices.Clone(p.Groups)
	for g := range relaxed.Groups {
		relaxed.Groups[g].Variants = slices.Clone(p.Groups[g].Variants)
	}
	for _, accelerator := range []string{"A100", "H100", "L40S"} {
		for _, size := range []int64{1, 2, 4} {
			limit, at := snapshot.Limit{Unit: optimizer.UnitPlaces}, 0
			for g := range relaxed.Groups {
				for n := range relaxed.Groups[g].Variants {
					if v := &relaxed.Groups[g].Variants[n]; v.Accelerator == accelerator && v.Cards >= size {
						limit.Amount += int64(ample[at]) * (v.Cards / size)
						v.Places = append(slices.Clone(v.Places), optimizer.Places{Limit: len(relaxed.Limits), Amount: v.Cards / size})
					}
					at++
				}
			}
			limit.Amount = limit.Amount * percent[accelerator] / 100
			relaxed.Limits = append(relaxed.Limits, limit)
		}
	}
	return &relaxed
}

// scarcest has one kind of accelerator at 90 % of what the plan without limits takes, and everything has all of them.
var (
	scarcest   = map[string]int64{"A100": 90, "H100": 150, "L40S": 150}
	everything = map[string]int64{"A100": 90, "H100": 90, "L40S": 90}
)

// TestPacked: with the places of nodes, a plan of 333 models costs at most 0.1 % more than the bound, and one of 33 models is the cheapest.
func TestPacked(t *testing.T) {
	t.Parallel()
	for family, most := range map[string]int64{"scarce-33": 0, "scarce-333": 1, "scarcer-333": 1} {
		in := instances(t, family)[0]
		p := packed(in.toProblem(in.allCapacities()), scarcest)
		require.NoError(t, p.Validate())
		plan := optimizer.Solve(p)
		assert.Equal(t, int64(optimizer.Million), slices.Min(plan.Shares), family)
		assert.LessOrEqual(t, (plan.Cost-plan.Bound)*1000, plan.Cost*most, "%s: %d, and not less than %d", family, plan.Cost, plan.Bound)
		assert.NotEmpty(t, plan.Limiting, family)
	}
}

// TestAllIsScarce: where nine limits bind the models of several priorities, the search is cut short, and still most of the demand is
// served.
func TestAllIsScarce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		family   string
		instance int
		least    int64 // mean share
	}{{"scarce-333", 0, 860_000}, {"scarce-33", 2, 830_000}} {
		in := instances(t, tt.family)[tt.instance]
		p := packed(in.toProblem(in.allCapacities()), everything)
		plan := optimizer.Solve(p)
		var sum int64
		for _, share := range plan.Shares {
			sum += share
		}
		assert.GreaterOrEqual(t, sum/int64(len(plan.Shares)), tt.least, tt.family)
		assert.Less(t, plan.Bound, plan.Cost, "it is not proven")
	}
}

// BenchmarkPacked prints the median time from a problem to its plan.
func BenchmarkPacked(b *testing.B) {
	for _, family := range []string{"scarce-33", "scarce-333", "scarcer-333"} {
		b.Run("packed-"+family, func(b *testing.B) {
			var problems []*optimizer.Problem
			for _, in := range instances(b, family) {
				problems = append(problems, packed(in.toProblem(in.allCapacities()), scarcest))
			}
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				optimizer.Solve(problems[i%len(problems)])
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "ms/median")
		})
	}
}
