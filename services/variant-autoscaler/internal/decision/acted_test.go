package decision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// one returns the variants of one group.
func oneActed(variants []snapshot.Variant, decided []Variant, losers ...snapshot.Variant) []ActedVariant {
	return ActedVariants(&snapshot.Snapshot{Groups: []snapshot.Group{{Namespace: "a", Model: "llama", Variants: variants}}},
		&Decision{Groups: []Group{{Variants: decided}}}, losers)
}

func declaredVariant(namespace, name string) snapshot.Variant {
	return snapshot.Variant{
		Namespace: namespace, Name: name, Source: snapshot.HorizontalPodAutoscaler, Accelerator: "H100", Now: 2,
		Target: snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: name + "-decode"},
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	predicted := &Predicted{TTFT: 300, ITL: 20}
	previous := declaredVariant("a", "chat")
	previous.Previous, previous.Decided, previous.ObjectName = 5, true, "so"
	got := oneActed([]snapshot.Variant{previous}, []Variant{{Desired: 3, Reason: Optimal, Predicted: predicted}})
	assert.Equal(t, []ActedVariant{{Variant: previous, Model: "llama", Desired: 3, Reason: Optimal, Predicted: predicted}}, got)
}

func TestWithoutADecisionThereIsNoVariant(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		reason  Reason
		problem string
		decided bool
		desired int
		want    bool
	}{
		{name: "the first decision", reason: Optimal, want: true},
		{name: "metrics are missing from the start", reason: NoMetrics, desired: 2},
		{name: "metrics are missing, and the model needs its first replica", reason: NoMetrics, desired: 3, want: true},
		{name: "a problem, and more replicas than now", reason: Excluded, problem: "TargetNotFound", desired: 3},
		{name: "metrics went missing", reason: NoMetrics, decided: true, desired: 2, want: true},
		{name: "no service class from the start", reason: NoTargets, want: true},
		{name: "a problem from the start", reason: Excluded, problem: "TargetNotFound"},
		{name: "a problem that no reason tells of", reason: Optimal, problem: "TargetNotFound"},
		{name: "a problem after a decision", reason: Excluded, problem: "TargetNotFound", decided: true, want: true},
		{name: "an impossible number", reason: Optimal, decided: true, desired: -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := declaredVariant("a", "chat")
			v.Decided = tt.decided
			if tt.problem != "" {
				v.Problem = &snapshot.Problem{Reason: tt.problem}
			}
			got := oneActed([]snapshot.Variant{v}, []Variant{{Desired: tt.desired, Reason: tt.reason}})
			assert.Equal(t, tt.want, len(got) == 1)
		})
	}
}

func TestATargetHasOneDecision(t *testing.T) {
	t.Parallel()
	loser, winner, other := declaredVariant("a", "alpha"), declaredVariant("a", "beta"), declaredVariant("b", "alpha")
	loser.Target = winner.Target
	other.Target = winner.Target // of another namespace
	got := oneActed([]snapshot.Variant{winner, other}, make([]Variant, 2), loser)
	require.Len(t, got, 3)
	assert.Equal(t, Suppressed, got[0].Resolution)
	assert.Equal(t, Winner, got[1].Resolution)
	assert.Equal(t, NoConflict, got[2].Resolution)

	got = oneActed([]snapshot.Variant{winner, loser, other}, make([]Variant, 3)) // a conflict that nobody has found
	require.Len(t, got, 3)
	assert.Equal(t, []Resolution{Winner, Suppressed, NoConflict}, []Resolution{got[0].Resolution, got[1].Resolution, got[2].Resolution},
		"the first by name has the target")
}

// A tenant can declare any number of variants for one target.
func TestLosersAreBounded(t *testing.T) {
	t.Parallel()
	losers := make([]snapshot.Variant, 3*maxLosers)
	for i := range losers {
		losers[i] = declaredVariant("a", "loser")
	}
	assert.Len(t, oneActed(nil, nil, losers...), maxLosers)
	assert.Len(t, oneActed(nil, nil, append(losers, declaredVariant("b", "loser"))...), maxLosers+1)
}

func TestOrder(t *testing.T) {
	t.Parallel()
	got := oneActed([]snapshot.Variant{declaredVariant("b", "a"), declaredVariant("a", "b"), declaredVariant("a", "a")}, make([]Variant, 3))
	require.Len(t, got, 3)
	assert.Equal(t, []string{"a/a", "a/b", "b/a"}, []string{
		got[0].Namespace + "/" + got[0].Name, got[1].Namespace + "/" + got[1].Name, got[2].Namespace + "/" + got[2].Name,
	})
}

func TestADecisionOnLessThanTheSnapshot(t *testing.T) {
	t.Parallel()
	assert.Empty(t, oneActed([]snapshot.Variant{declaredVariant("a", "chat")}, nil))
	assert.Empty(t, ActedVariants(&snapshot.Snapshot{Groups: make([]snapshot.Group, 2)}, &Decision{}, nil))
}
