//go:build long

package optimizer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestOneLargeGroup has as many variants as a problem may have in one group, each with its own need.
func TestOneLargeGroup(t *testing.T) {
	t.Parallel()
	for _, split := range []Split{SplitCapacity, SplitEqual, SplitObserved} {
		for _, limited := range []bool{false, true} {
			r := rand.New(rand.NewPCG(1, 1))
			g := Group{Priority: 1, Rate: 1e15}
			for n := range MaxVariants {
				g.Variants = append(g.Variants, Variant{
					Name: fmt.Sprint(n), Cards: 1, Cost: r.Int64N(1e9), Capacity: 1 + r.Int64N(1e12), Weight: r.Int64N(1e12), Max: 1 + r.IntN(100),
				})
			}
			p := &Problem{Split: split, Groups: []Group{g}}
			if limited {
				p.Limits = []snapshot.Limit{{Unit: snapshot.Replicas, Amount: 500}}
			}
			require.NoError(t, p.Validate())
			s := newSolver(p)
			plan := s.solveGroups()
			checkPlan(t, s, plan, string(split))
			assert.Positive(t, plan.Shares[0])
			// The steps that are overdrawn belong to the last list and prices that were begun.
			assert.Greater(t, s.steps, int64(-maxSteps/4))
		}
	}
}
