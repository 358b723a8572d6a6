package optimizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// hostile returns a problem with numbers at their bounds: many variants in a group, many replicas, many limits, equal and extreme numbers.
func hostile(r *rand.Rand) *Problem {
	p := &Problem{Split: []Split{SplitCapacity, SplitEqual, SplitObserved}[r.IntN(3)], HeadroomPercent: int64(r.IntN(2) * 1000)}
	upTo := func(most int64) int64 { // as many small numbers as large ones
		n := int64(1)
		for n < most && r.IntN(3) > 0 {
			n *= 10
		}
		return 1 + r.Int64N(min(n*10, most))
	}
	same := r.IntN(3) == 0
	numbers := [2]int64{upTo(1e9), upTo(1e15)}
	groups, variants := 1+r.IntN(1<<r.IntN(9)), 1+r.IntN(40)
	for i := range groups {
		g := Group{Namespace: fmt.Sprint(r.IntN(5)), Model: fmt.Sprint(i), Priority: 1 + r.IntN(3), NeedsReplica: r.IntN(2) == 0,
			Rate: upTo(1e15)}
		for n := range 1 + r.IntN(variants) {
			v := Variant{
				Name: fmt.Sprintf("%d-%d", i, n), Accelerator: fmt.Sprint(r.IntN(4)), Cards: 1 + r.Int64N(8), Cost: upTo(1e9) - 1, Capacity: upTo(1e15),
				Max: int(upTo(MaxReplicas)), Now: int(upTo(1000)), Weight: upTo(1e15) * r.Int64N(2),
			}
			if same {
				v.Cost, v.Capacity = numbers[0], numbers[1]
			}
			if r.IntN(10) == 0 {
				v.Min = int(r.Int64N(int64(v.Max)) / 100)
			}
			g.Variants = append(g.Variants, v)
		}
		if r.IntN(2) == 0 {
			g.Rate = min(g.Variants[0].Capacity/2*upTo(100), 1e15)
		}
		p.Groups = append(p.Groups, g)
	}
	for range r.IntN(200) {
		l := snapshot.Limit{Unit: []snapshot.Unit{snapshot.Cards, snapshot.Replicas, snapshot.Cost}[r.IntN(3)], Amount: upTo(1e6)}
		if l.Unit == snapshot.Cost {
			l.Amount = upTo(1e15)
		}
		l.Accelerator = []string{"", fmt.Sprint(r.IntN(4))}[r.IntN(2)]
		l.Namespace = []string{"", fmt.Sprint(r.IntN(5))}[r.IntN(2)]
		l.Priority = r.IntN(4)
		p.Limits = append(p.Limits, l)
	}
	for range r.IntN(3) {
		addPlaces(p, r)
	}
	return p
}

func checkPlan(t *testing.T, s *solver, plan *Plan, name string) {
	t.Helper()
	for i := range s.variants {
		v := &s.variants[i]
		assert.GreaterOrEqual(t, plan.Replicas[i], v.low, name)
		assert.LessOrEqual(t, plan.Replicas[i], max(v.low, v.max), name)
	}
	assert.Empty(t, s.exceededLimits(plan.Replicas), "%s: limits", name)
	assert.LessOrEqual(t, plan.Bound, plan.Cost, name)
}

// TestHostileProblems has problems that nobody can solve exactly. The search takes few steps, and the plan keeps to all limits.
func TestHostileProblems(t *testing.T) {
	t.Parallel()
	for seed := range 8 {
		p := hostile(rand.New(rand.NewPCG(uint64(seed), 5)))
		require.NoError(t, p.Validate(), "seed %d", seed)
		s := newSolver(p)
		checkPlan(t, s, s.solveGroups(), fmt.Sprint("seed ", seed))
		assert.Greater(t, s.steps, int64(-maxSteps/4), "seed %d", seed)
	}
}

// TestCutSearches ends searches early. The plan keeps to the limits, and no plan that serves as much costs less than its bound.
func TestCutSearches(t *testing.T) {
	t.Parallel()
	unproven, searches := 0, testlane.Repetitions(150, 600)
	for seed := range searches {
		r := rand.New(rand.NewPCG(uint64(seed), 17))
		p := random(r)
		s := newSolver(p)
		s.steps, s.listSteps = r.Int64N(1000), r.Int64N(20_000)
		plan := s.solveGroups()
		name := fmt.Sprint("seed ", seed)
		checkPlan(t, s, plan, name)
		best := Solve(p)
		if slices.Equal(best.Shares, plan.Shares) {
			assert.LessOrEqual(t, plan.Bound, best.Cost, name)
		}
		if plan.Bound == plan.Cost {
			assert.Equal(t, best.Cost, plan.Cost, name)
			assert.Equal(t, best.Shares, plan.Shares, name)
		} else {
			unproven++
		}
	}
	assert.Greater(t, unproven, searches/12, "searches that were cut")
}
