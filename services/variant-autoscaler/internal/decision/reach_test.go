package decision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// slow is a profile whose prefill alone takes two seconds: a replica serves 1.07 requests/s of 100 tokens at a stable load, whatever the
// targets are.
func slow(v *snapshot.Variant) {
	v.Measured, v.Profile = nil, &snapshot.Profile{Alpha: 40, Beta: 1, Gamma: 2000, Delta: 0, MaxBatch: 8}
}

// waiting is the load of servers that cannot keep up.
func waiting(requests float64) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { g.Load.Waiting, g.Load.TTFT, g.Load.ITL = requests, 30_000, 50 }
}

// strict measures a variant whose replicas were never seen within the targets.
func strict(stable int64) func(v *snapshot.Variant) {
	return func(v *snapshot.Variant) {
		v.Measured = &snapshot.Measured{Input: 100, Output: 100, Source: string(FromEngine), Samples: 8}
		v.Stable = &snapshot.Measured{Input: 100, Output: 100, Source: string(FromEngine), Samples: 8, Proven: stable * 1e6}
	}
}

// TestDecide_OutOfReach: a target that no replica meets does not stop the scaling of a model.
func TestDecide_OutOfReach(t *testing.T) {
	t.Parallel()
	const whole = optimizer.Million
	unmet := []Reason{OutOfReach, OutOfReach}
	most := func(n int) func(v *snapshot.Variant) { return func(v *snapshot.Variant) { v.Max = n } }
	tests := []struct {
		name   string
		give   *snapshot.Snapshot
		want   outcome
		within int64   // part of the demand
		stable *Served // nil: the targets are met
	}{
		{
			"overload", one(load(3), has(2, 0), big(slow), small(slow), small(most(0)), waiting(80)),
			outcome{[]int{2, 5}, unmet}, 0, &Served{Share: whole, Acted: whole},
		},
		{"a load that fits", one(load(2), has(0, 2), big(slow), small(slow), small(most(0))), outcome{[]int{0, 2}, unmet}, 0, &Served{Share: whole, Acted: whole}},
		{"hardly any load", one(func(g *snapshot.Group) { g.Load.Rate = 1e5 }, has(0, 6), big(slow), small(slow)), outcome{[]int{0, 1}, unmet}, 0, &Served{Share: whole, Acted: whole}},
		{"no load", one(load(0), has(0, 6), big(slow), small(slow)), outcome{[]int{0, 1}, unmet}, 0, &Served{Share: whole, Acted: whole}},
		{
			"maximum", one(load(20), has(0, 1), big(slow), small(slow), big(most(2)), small(most(4))),
			outcome{[]int{2, 4}, unmet}, 0, &Served{Share: 319_580, Acted: 319_580},
		},
		{
			"limits", limited(one(load(20), has(0, 1), big(slow), small(slow)), snapshot.Limit{Name: "all", Unit: snapshot.Cards, Namespace: "ns", Amount: 5}),
			outcome{[]int{0, 5}, unmet}, 0, &Served{Share: 266_317, Acted: 266_317},
		},
		{
			"those that meet the targets come first, however dear they are", one(load(50), has(2, 0), big(most(2)), small(strict(20)), waiting(80)),
			outcome{[]int{2, 2}, []Reason{Optimal, OutOfReach}}, 584_415, &Served{Share: whole, Acted: whole},
		},
		{"the others go", one(load(20), has(2, 2), small(strict(20))), outcome{[]int{2, 0}, []Reason{Optimal, OutOfReach}}, whole, nil},
		{"they serve until those are ready", one(load(20), has(0, 2), small(strict(20))), outcome{[]int{2, 1}, []Reason{Optimal, OutOfReach}}, whole, nil},
		{"the load is not known", one(has(0, 2), big(slow), small(slow), func(g *snapshot.Group) { g.Load.State = snapshot.Stale }), outcome{[]int{0, 2}, []Reason{NoMetrics, NoMetrics}}, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
			d, err := Decide(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.within, d.Groups[0].Share)
			assert.Equal(t, tt.stable, d.Groups[0].Stable)
		})
	}
}

// TestDecide_OutOfReachAsWithoutTargets: an impossible target asks for no fewer replicas than none.
func TestDecide_OutOfReachAsWithoutTargets(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{0, 1, 3, 8} {
		with := decide(t, one(load(rate), has(1, 0), big(slow), small(slow), waiting(40)))
		without := decide(t, one(load(rate), has(1, 0), big(slow), small(slow), waiting(40), func(g *snapshot.Group) { g.Targets = snapshot.Targets{} }))
		assert.Equal(t, without.Desired, with.Desired, "%d requests/s", rate)
	}
}

// TestDecide_FewSamples: the first sample of a new leader buys no replicas while nobody waits, without targets and with impossible ones.
func TestDecide_FewSamples(t *testing.T) {
	t.Parallel()
	measured := func(proven int64) *snapshot.Measured {
		return &snapshot.Measured{Input: 100, Output: 100, Source: string(FromEngine), Samples: 1, Proven: proven * 1e6}
	}
	for _, tt := range []struct {
		targets snapshot.Targets
		within  int64 // that a replica serves within them
	}{{snapshot.Targets{}, 5}, {snapshot.Targets{TTFT: 1e-3}, 0}} {
		first := func(g *snapshot.Group) {
			g.Targets, g.Load.TTFT, g.Load.ITL = tt.targets, 300, 20
			g.Variants = g.Variants[1:]
			g.Variants[0].Now, g.Variants[0].Ready = 2, 2
			g.Variants[0].Measured, g.Variants[0].Stable = measured(tt.within), measured(5)
		}
		assert.Equal(t, []int{2}, decide(t, one(load(40), first)).Desired, "%v", tt.targets)
		assert.Equal(t, []int{9}, decide(t, one(load(40), first, waiting(1))).Desired, "%v", tt.targets)
	}
}

func TestDecide_OutOfReachSaysWhatReplicasGive(t *testing.T) {
	t.Parallel()
	d, err := Decide(one(load(3), has(0, 2), big(slow), small(slow), big(func(v *snapshot.Variant) { v.Max = 1 })))
	require.NoError(t, err)
	assert.Regexp(t, `^No replica of the variant meets the targets of TTFT 500 ms and ITL 50 ms: an idle one gives TTFT 2000 ms and ITL 4\d\.?\d* ms, `+
		`one with its part of the load TTFT \d+ ms and ITL 4\d\.?\d* ms\. It is planned for a stable load: `+
		`3 replicas in the cheapest plan that serves 100\.0 % of the demand of 3\.000 requests/s\. Raise the targets, or check the profile$`, d.Groups[0].Variants[1].Message)
	assert.Positive(t, d.Groups[0].Variants[1].Capacity)
	assert.NotNil(t, d.Groups[0].Variants[1].Predicted)
}

func TestDecide_OutOfReachNamesTheTargetsThatThereAre(t *testing.T) {
	t.Parallel()
	for want, targets := range map[string]snapshot.Targets{"TTFT 500 ms:": {TTFT: 500}, "ITL 1 ms:": {ITL: 1}, "TTFT 0.3333 ms and ITL 1 ms:": {TTFT: 1. / 3, ITL: 1}} {
		d, err := Decide(one(load(3), big(slow), small(slow), func(g *snapshot.Group) { g.Targets = targets }))
		require.NoError(t, err)
		assert.Contains(t, d.Groups[0].Variants[1].Message, "meets the targets of "+want)
	}
}

// TestDecide_NoTargets: only a model without a class is said to have none; a class for prompts alone has no target without prompts.
func TestDecide_NoTargets(t *testing.T) {
	t.Parallel()
	none := func(g *snapshot.Group) { g.Targets = snapshot.Targets{} }
	class := func(g *snapshot.Group) { g.Class = "gold" }
	assert.Equal(t, NoTargets, decide(t, one(none)).Reasons[1])
	assert.Equal(t, Optimal, decide(t, one(none, class)).Reasons[1])
	assert.Equal(t, Optimal, decide(t, one()).Reasons[1])
}

// TestDecide_OutOfReachInTails: figures are for the percentile of the target, of which the tail was measured.
func TestDecide_OutOfReachInTails(t *testing.T) {
	t.Parallel()
	d, err := Decide(one(load(3), func(g *snapshot.Group) {
		profile := &snapshot.Profile{Alpha: 40, Beta: 1, Gamma: 2000, Delta: 0, MaxBatch: 8}
		g.Variants = g.Variants[:1]
		v := &g.Variants[0]
		v.Measured = &snapshot.Measured{Profile: profile, Tail: 3, Input: 100, Output: 100, Source: string(FromEngine), Samples: 8}
		stable := *v.Measured
		v.Stable, stable.Proven = &stable, 1e6
	}))
	require.NoError(t, err)
	assert.Contains(t, d.Groups[0].Variants[0].Message, "an idle one gives TTFT 6000 ms and ITL 4")
	assert.Regexp(t, `load TTFT 14\d\d\d ms`, d.Groups[0].Variants[0].Message)
}
