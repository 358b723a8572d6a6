package episode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// roleReplicas is what was decided for prefill and decode servers at a time.
type roleReplicas struct {
	at              float64
	prefill, decode int
}

// recordRoles returns options that record the decisions on both roles.
func recordRoles(into *[]roleReplicas) Options {
	return Options{Trace: func(o *pass.Outcome, now float64) {
		d := roleReplicas{at: now}
		for g := range o.Snapshot.Groups {
			for i := range o.Decision.Groups[g].Variants {
				switch n := o.Decision.Groups[g].Variants[i].Desired; o.Snapshot.Groups[g].Role {
				case snapshot.Prefill:
					d.prefill += n
				case snapshot.Decode:
					d.decode += n
				}
			}
		}
		*into = append(*into, d)
	}}
}

// TestPrefillHeavy: with nothing but what it learns, this service completes more requests than published, 818 of 2316. The published law has
// the tokens per second of a prefill server from a calibration.
func TestPrefillHeavy(t *testing.T) {
	t.Parallel()
	s := PrefillHeavy(Qwen32(), 1)
	require.Len(t, s.Arrivals, 2316)
	static := Run(s, Static, 1, 1)
	assert.InDelta(t, 116, static.Completed, 12, "the published result of static servers")
	var decisions []roleReplicas
	ours := Run(s, Fairlead(recordRoles(&decisions)), 1, 1)
	assert.GreaterOrEqual(t, ours.Completed, 900)
	require.NotEmpty(t, decisions)
	for _, d := range decisions {
		assert.Equal(t, 1, d.decode, "at %.0f s: one decode server has room for all", d.at)
	}
}

// TestTurnToDecode: a load of long prompts and short answers turns into one of short prompts and long answers.
func TestTurnToDecode(t *testing.T) {
	t.Parallel()
	const turn, window = 1200, 300
	s := Disaggregated(Qwen32(), 1./15_000, 1)
	long, _ := Poisson([]Phase{{turn, 4}}, 8192, 64, 0.3, 1)
	short, _ := Poisson([]Phase{{900, 6}}, 256, 1024, 0.3, 2)
	for i := range short {
		short[i].At += turn
	}
	s.Arrivals, s.End = append(long, short...), turn+900
	var decisions []roleReplicas
	result := Run(s, Fairlead(recordRoles(&decisions)), 4, 1)
	assert.GreaterOrEqual(t, result.Attainment(), 0.9)
	assert.Zero(t, result.Cut)
	before, after := roleReplicas{}, roleReplicas{}
	for _, d := range decisions {
		if d.at < turn {
			before = d
		}
		if d.at < turn+window {
			after = d
		}
	}
	assert.GreaterOrEqual(t, before.prefill, 4)
	assert.Equal(t, 1, before.decode)
	assert.LessOrEqual(t, after.prefill, before.prefill/2, "within one window")
	assert.Greater(t, after.decode, before.decode)
}
