//go:build long

package episode

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEnvelope: replicas follow a load that ramps up, shifts between models, drops and returns, and cost what a plan costs that knows it.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	for _, u := range []unlike{envelope(Qwen32()), mixed(Qwen32(), 1)} {
		cost, known := 0.0, 0.0
		for seed := range uint64(3) {
			ours, plan := u.compare(seed)
			assert.GreaterOrEqual(t, ours.AttainedShare(), 0.97, "%s: the target is for 90 %%", u.name)
			assert.Zero(t, ours.Cut, u.name)
			cost, known = cost+ours.Cost, known+plan.Cost
		}
		assert.LessOrEqual(t, cost/known, 1.05, u.name)
	}
}
