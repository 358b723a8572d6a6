package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

// input returns the input for a variant with a profile that a pass has decided on: 3 replicas, where the target has 2.
func input() *StatusInput {
	return &StatusInput{
		Object: &v1alpha1.VariantAutoscaling{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "llama-a100", UID: "1", Generation: 7, ResourceVersion: "1"}},
		Time:   start,
		Variant: &snapshot.Variant{
			Namespace: "models", Name: "llama-a100", Target: snapshot.Target{Kind: "Deployment", Name: "llama"}, Accelerator: "A100",
			Max: 10, Now: 2, Decided: true, Profile: &snapshot.Profile{},
		},
		Load:  &snapshot.Load{State: snapshot.Found, Rate: 5_000_000},
		Group: &decision.Group{Demand: 5_500_000, Share: fullShare, Acted: fullShare},
		Decision: &decision.Variant{
			Planned: 3, Desired: 3, Min: 0, Max: 10, Reason: decision.Optimal, Message: "3 replicas are part of the cheapest plan",
			ShareWithout: 700_000, Predicted: &decision.Predicted{TTFT: 812.4, ITL: 24.07, Utilization: 0.731},
		},
		Priority: 1,
		Outcome:  decision.Outcome{Applied: true, Reason: "Published", Message: "The desired replicas are published"},
	}
}

// summary returns the conditions as Type=Status/Reason, in their order.
func summary(s *v1alpha1.VariantAutoscalingStatus) []string {
	lines := make([]string, 0, len(s.Conditions))
	for _, c := range s.Conditions {
		lines = append(lines, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return lines
}

// usual are the conditions of input, with the given ones instead of theirs.
func usual(changed ...string) []string {
	all := []string{
		"Ready=True/OptimizationSucceeded", "Applied=True/Published", "TargetResolved=True/TargetFound", "DeploymentTargetConflict=False/NoConflict", "MetricsAvailable=True/MetricsFound",
		"OptimizationReady=True/OptimizationSucceeded", "CapacityLimited=False/CapacitySufficient", "BoundsBinding=False/WithinBounds",
	}
	for i := range all {
		kind, _, _ := strings.Cut(all[i], "=")
		for _, c := range changed {
			if strings.HasPrefix(c, kind+"=") {
				all[i] = c
			}
		}
	}
	return all
}

// failed are the conditions of a variant that keeps its replicas for a reason, with the given ones instead of theirs.
func failed(reason string, changed ...string) []string {
	return usual(append([]string{
		"Ready=False/" + reason, "OptimizationReady=False/" + reason, "CapacityLimited=Unknown/" + reason, "BoundsBinding=Unknown/" + reason,
	}, changed...)...)
}

func TestBuildDecision(t *testing.T) {
	t.Parallel()
	in := input()
	got := BuildStatus(in)
	now := metav1.NewTime(start.Truncate(time.Second))
	desired := int32(3)
	assert.Equal(t, &v1alpha1.OptimizedAllocation{
		LastRunTime: &now, Accelerator: "A100", NumReplicas: &desired,
		LastUpdate: &v1alpha1.AllocationUpdate{UpdateTime: &now, NumReplicasChanged: 1, Reason: "Optimal"},
	}, got.DesiredOptimizedAlloc)
	assert.Equal(t, &v1alpha1.Allocation{NumReplicas: 2}, got.CurrentAlloc)
	assert.Equal(t, &v1alpha1.Prediction{TTFT: "812ms", ITL: "24.1ms", Utilization: "73%"}, got.Predicted)
	assert.Equal(t, &v1alpha1.Actuation{Applied: true}, got.Actuation)
	assert.Equal(t, "Optimal", got.Decision)
	assert.EqualValues(t, 7, got.ObservedGeneration)
	for _, c := range got.Conditions {
		assert.EqualValues(t, 7, c.ObservedGeneration, c.Type)
		assert.Equal(t, now, c.LastTransitionTime, c.Type)
	}
	assert.Empty(t, in.Object.Status, "Build changed its input")
}

// TestBuildReasons has a row for each reason. message is part of the message of the condition OptimizationReady, unless of is set.
func TestBuildReasons(t *testing.T) {
	t.Parallel()
	problem := func(reason string) *snapshot.Problem {
		return &snapshot.Problem{Reason: reason, Message: "fault: fix it"}
	}
	excluded := func(reason string) func(*StatusInput) {
		return func(in *StatusInput) {
			in.Variant.Problem, in.Decision.Reason, in.Decision.Message = problem(reason), decision.Excluded, "Kept 3 replicas"
		}
	}
	rejected := func(reason string) func(*StatusInput) {
		return func(in *StatusInput) {
			in.Variant.Problem, in.Variant.Now, in.Load, in.Group, in.Decision = problem(reason), 0, nil, nil, nil
			in.Outcome = decision.Outcome{}
		}
	}
	decided := func(reason decision.Reason) func(*StatusInput) {
		return func(in *StatusInput) { in.Decision.Reason, in.Decision.Message = reason, "decided so." }
	}
	unknownLoad := func(state snapshot.LoadState) func(*StatusInput) {
		return func(in *StatusInput) {
			in.Load.State, in.Decision.Reason, in.Decision.Message = state, decision.NoMetrics, "Kept 3 replicas"
		}
	}
	limit := func(limits ...snapshot.Limit) func(*StatusInput) {
		return func(in *StatusInput) { in.Limiting, in.Group.Share = limits, 831_000 }
	}
	tests := []struct {
		name         string
		edit         func(*StatusInput)
		want         []string
		decision     string
		of, messages string
	}{
		{"optimal", func(*StatusInput) {}, usual(), "Optimal", "OptimizationReady", "3 replicas are part of the cheapest plan"},
		{"no profile", func(in *StatusInput) { in.Variant.Profile = nil },
			usual("Ready=True/SaturationOnlyMode", "OptimizationReady=True/SaturationOnlyMode"), "Optimal", "OptimizationReady", "3 replicas"},
		{"stabilized", decided(decision.Stabilized), usual(), "Stabilized", "OptimizationReady", "decided so"},
		{"saving too small", decided(decision.SavingSmall), usual(), "SavingTooSmall", "OptimizationReady", "decided so"},
		{"starting", decided(decision.Starting), usual(), "ReplacementsStarting", "OptimizationReady", "decided so"},
		{"saturated", decided(decision.Saturated), usual(), "ServersSaturated", "OptimizationReady", "decided so"},
		{"bridging", decided(decision.Bridging), usual(), "Bridging", "OptimizationReady", "decided so"},
		{"retained", decided(decision.Retained), usual(), "RetentionPeriod", "OptimizationReady", "decided so"},
		{"limit", decided(decision.LimitBinding), usual(), "LimitBinding", "OptimizationReady", "decided so"},
		{"probing", decided(decision.Probing), usual("Ready=True/Probing", "OptimizationReady=True/Probing"), "Probing", "OptimizationReady", "decided so"},
		{"no class", decided(decision.NoTargets), usual("Ready=True/NoServiceClass", "OptimizationReady=True/NoServiceClass"), "NoServiceClass", "OptimizationReady", "decided so"},
		{"no capacity", decided(decision.NoCapacity), failed("CapacityUnknown"), "CapacityUnknown", "OptimizationReady", "decided so. Set spec.variantProfile"},
		{"out of reach", decided(decision.OutOfReach), failed("TargetsOutOfReach", "CapacityLimited=False/CapacitySufficient", "BoundsBinding=False/WithinBounds"), "TargetsOutOfReach", "OptimizationReady", "decided so"},
		{
			"out of reach, and the maximum", func(in *StatusInput) {
				decided(decision.OutOfReach)(in)
				in.Decision.Max, in.Group.Share, in.Group.Stable = 3, 0, &decision.Served{Share: 400_000, Acted: 400_000}
			},
			failed("TargetsOutOfReach", "CapacityLimited=False/CapacitySufficient", "BoundsBinding=True/MaxReplicasBinding"), "TargetsOutOfReach", "BoundsBinding", "serves 40.0 % of its demand, and this variant has its maximum",
		},
		{
			"out of reach, and the minimum", func(in *StatusInput) {
				decided(decision.OutOfReach)(in)
				in.Decision.Min, in.Decision.ShareWithout = 3, fullShare
				in.Group.Share, in.Group.Acted, in.Group.Stable = 0, 0, &decision.Served{Share: fullShare, Acted: fullShare}
			},
			failed("TargetsOutOfReach", "CapacityLimited=False/CapacitySufficient", "BoundsBinding=True/MinReplicasBinding"), "TargetsOutOfReach", "BoundsBinding", "The minimum of 3 replicas is more than",
		},
		{
			"out of reach, and a minimum that a stable load needs", func(in *StatusInput) {
				decided(decision.OutOfReach)(in)
				in.Decision.Min, in.Decision.ShareWithout = 3, fullShare/2
				in.Group.Share, in.Group.Acted, in.Group.Stable = 0, 0, &decision.Served{Share: fullShare, Acted: fullShare}
			},
			failed("TargetsOutOfReach", "CapacityLimited=False/CapacitySufficient", "BoundsBinding=False/WithinBounds"), "TargetsOutOfReach", "BoundsBinding", "do not change",
		},
		{"missing", unknownLoad(snapshot.Missing), failed("MetricsUnavailable", "MetricsAvailable=False/MetricsMissing"), "MetricsUnavailable", "MetricsAvailable", "check that it scrapes"},
		{"stale", unknownLoad(snapshot.Stale), failed("MetricsUnavailable", "MetricsAvailable=False/MetricsStale"), "MetricsUnavailable", "MetricsAvailable", "still scrapes"},
		{"prometheus", unknownLoad(snapshot.Failed), failed("MetricsUnavailable", "MetricsAvailable=False/PrometheusError"), "MetricsUnavailable", "MetricsAvailable", "check its address"},
		{
			"load with a message", func(in *StatusInput) {
				unknownLoad(snapshot.Failed)(in)
				in.Load.Message = "connection refused: start it"
			},
			failed("MetricsUnavailable", "MetricsAvailable=False/PrometheusError"), "MetricsUnavailable", "MetricsAvailable", "connection refused: start it",
		},
		{
			"never decided", func(in *StatusInput) { unknownLoad(snapshot.Missing)(in); in.Variant.Decided = false },
			failed("FallbackUsed", "MetricsAvailable=False/MetricsMissing"), "MetricsUnavailable", "OptimizationReady", "There is no earlier decision",
		},
		{"invalid", excluded("InvalidConfiguration"), failed("InvalidConfiguration"), "InvalidConfiguration", "OptimizationReady", "fault: fix it"},
		{"accelerator", excluded("UnknownAccelerator"), failed("UnknownAccelerator"), "UnknownAccelerator", "OptimizationReady", "fault: fix it"},
		{"no target", excluded("TargetNotFound"), failed("TargetNotFound", "TargetResolved=False/TargetNotFound"), "TargetNotFound", "TargetResolved", "fault: fix it"},
		{"kind of target", excluded("UnsupportedTarget"), failed("UnsupportedTarget", "TargetResolved=False/UnsupportedTarget"), "UnsupportedTarget", "TargetResolved", "fault: fix it"},
		{
			"loser", rejected("TargetConflict"), failed("SuppressedDueToConflict", "Ready=False/DeploymentTargetConflict", "Applied=False/NotApplied", "TargetResolved=Unknown/SuppressedDueToConflict",
				"DeploymentTargetConflict=True/SuppressedDueToConflict", "MetricsAvailable=Unknown/MetricsNotRead"), "SuppressedDueToConflict", "Ready", "fault: fix it",
		},
		{
			"winner", func(in *StatusInput) { in.Notes = []snapshot.Problem{*problem("ConflictResolvedByArbitration")} },
			usual("DeploymentTargetConflict=True/ConflictResolvedByArbitration"), "Optimal", "DeploymentTargetConflict", "fault: fix it",
		},
		{
			"note", func(in *StatusInput) { in.Notes = []snapshot.Problem{*problem("SeveralPools")} },
			usual(), "Optimal", "OptimizationReady", "3 replicas are part of the cheapest plan. fault: fix it",
		},
		{
			"name conflict", rejected("NameConflict"), failed("NameConflict", "Applied=False/NotApplied", "TargetResolved=Unknown/NameConflict", "MetricsAvailable=Unknown/MetricsNotRead"),
			"NameConflict", "OptimizationReady", "fault: fix it",
		},
		{
			"too many variants", rejected("LimitExceeded"), failed("LimitExceeded", "Applied=False/NotApplied", "TargetResolved=Unknown/LimitExceeded", "MetricsAvailable=Unknown/MetricsNotRead"),
			"LimitExceeded", "OptimizationReady", "fault: fix it",
		},
		{"no decision", func(in *StatusInput) { in.Decision, in.Group = nil, nil }, failed("OptimizationFailed"), "OptimizationFailed",
			"OptimizationReady", "made no decision on this variant. The last"},
		{"not applied", func(in *StatusInput) { in.Outcome = decision.Outcome{} }, usual("Ready=False/NotApplied", "Applied=False/NotApplied"),
			"Optimal", "Ready", "no desired replicas yet"},
		{
			"excluded and not applied", func(in *StatusInput) { excluded("TargetOwnedByAutoscaler")(in); in.Outcome = decision.Outcome{} },
			failed("TargetOwnedByAutoscaler", "Applied=False/NotApplied"), "TargetOwnedByAutoscaler", "Applied", "See the condition OptimizationReady",
		},
		{
			"scaled", func(in *StatusInput) {
				in.Outcome.Reason, in.Outcome.Message = "Scaled", "Deployment llama has the desired replicas"
			},
			usual("Applied=True/Scaled"), "Optimal", "Ready", "Deployment llama has the desired replicas",
		},
		{
			"not scaled", func(in *StatusInput) {
				in.Outcome = decision.Outcome{Reason: "ScaleForbidden", Message: "grant update"}
			},
			usual("Ready=False/ScaleForbidden", "Applied=False/ScaleForbidden"), "Optimal", "Ready", "grant update",
		},
		{"load not read", func(in *StatusInput) { excluded("InvalidConfiguration")(in); in.Load.State = "" },
			failed("InvalidConfiguration", "MetricsAvailable=Unknown/MetricsNotRead"), "InvalidConfiguration", "MetricsAvailable", "was not read"},
		{
			"cards", limit(snapshot.Limit{Name: "a100", Unit: snapshot.Cards, Accelerator: "A100", Amount: 8}, snapshot.Limit{Name: "budget", Unit: snapshot.Cost, Namespace: "models", Priority: 1}),
			usual("CapacityLimited=True/InsufficientAccelerators"), "Optimal", "CapacityLimited", "serves 83.1 % of its demand with the limits a100 (8 cards), budget (0 micro-units of cost per hour): raise",
		},
		{"quota", limit(snapshot.Limit{Name: "budget", Unit: snapshot.Replicas, Amount: 3}), usual("CapacityLimited=True/QuotaExceeded"), "Optimal", "CapacityLimited", "budget (3 replicas)"},
		{
			"limits of others", limit(snapshot.Limit{Name: "h100", Unit: snapshot.Cards, Accelerator: "H100"}, snapshot.Limit{Name: "other", Unit: snapshot.Cost, Namespace: "other"}, snapshot.Limit{Name: "second", Unit: snapshot.Replicas, Priority: 2}),
			usual(), "Optimal", "CapacityLimited", "No limit keeps",
		},
		{"maximum", func(in *StatusInput) { in.Decision.Max, in.Group.Share = 3, 400_000 }, usual("BoundsBinding=True/MaxReplicasBinding"),
			"Optimal", "BoundsBinding", "serves 40.0 % of its demand, and this variant has its maximum of 3 replicas: raise maxReplicas"},
		{"maximum that suffices", func(in *StatusInput) { in.Decision.Max = 3 }, usual(), "Optimal", "BoundsBinding", "do not change"},
		{"minimum", func(in *StatusInput) { in.Decision.Min, in.Decision.ShareWithout = 3, fullShare },
			usual("BoundsBinding=True/MinReplicasBinding"), "Optimal", "BoundsBinding", "The minimum of 3 replicas is more than"},
		{"minimum that the load needs", func(in *StatusInput) { in.Decision.Min = 3 }, usual(), "Optimal", "BoundsBinding", "do not change"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input()
			tt.edit(in)
			got := BuildStatus(in)
			assert.Equal(t, tt.want, summary(&got))
			assert.Equal(t, tt.decision, got.Decision)
			assert.Contains(t, meta.FindStatusCondition(got.Conditions, tt.of).Message, tt.messages)
			for _, c := range got.Conditions {
				assert.NotEmpty(t, c.Message, c.Type)
			}
			// The next pass decides the same.
			in.Object.Status = got
			in.Time = in.Time.Add(time.Minute)
			assert.Equal(t, got, BuildStatus(in))
		})
	}
}

// TestBuildChanges has what the next pass, a minute later, makes of a status that is there.
func TestBuildChanges(t *testing.T) {
	t.Parallel()
	replicas := func(n int) func(*StatusInput) { return func(in *StatusInput) { in.Decision.Desired = n } }
	figures := func(in *StatusInput) {
		in.Decision.Predicted = &decision.Predicted{TTFT: 1240, ITL: 31, Utilization: 0.9}
		in.Decision.Message = "4 replicas are part of the cheapest plan"
	}
	tests := []struct {
		name    string
		after   time.Duration
		edit    func(*StatusInput)
		ran     bool  // lastRunTime is new
		updated bool  // updateTime is new
		changed int32 // numReplicasChanged
		reason  string
	}{
		{"nothing", time.Minute, func(*StatusInput) {}, false, false, 1, "Optimal"},
		{"nothing for an hour", time.Hour, func(*StatusInput) {}, false, false, 1, "Optimal"},
		{"replicas", time.Minute, replicas(5), true, true, 2, "Optimal"},
		{"fewer replicas", time.Minute, replicas(1), true, true, -2, "Optimal"},
		{"more than the schema permits", time.Minute, replicas(50_000), true, true, 10_000, "Optimal"},
		{"reason", time.Minute, func(in *StatusInput) { in.Decision.Reason = decision.Stabilized }, true, true, 0, "Stabilized"},
		{"target", time.Minute, func(in *StatusInput) { in.Variant.Now = 3 }, true, false, 1, "Optimal"},
		{"generation", time.Minute, func(in *StatusInput) { in.Object.Generation++ }, true, false, 1, "Optimal"},
		{"message", time.Minute, func(in *StatusInput) { in.Decision.Message = "another one" }, true, false, 1, "Optimal"},
		{"applied", time.Minute, func(in *StatusInput) { in.Outcome = decision.Outcome{} }, true, false, 1, "Optimal"},
		{"accelerator", time.Minute, func(in *StatusInput) { in.Variant.Accelerator = "H100" }, true, false, 1, "Optimal"},
		{"figures", time.Minute, figures, false, false, 1, "Optimal"},
		{"a start that was seen", time.Minute, func(in *StatusInput) { in.Variant.Start = time.Minute }, false, false, 1, "Optimal"},
		{"a start that was seen, after a time", figuresInterval, func(in *StatusInput) { in.Variant.Start = time.Minute }, true, false, 1,
			"Optimal"},
		{"no load", time.Minute, func(in *StatusInput) { in.Decision.Predicted = nil }, false, false, 1, "Optimal"},
		{"figures after a time", figuresInterval, figures, true, false, 1, "Optimal"},
		{"figures with another change", time.Minute, func(in *StatusInput) { figures(in); replicas(4)(in) }, true, true, 1, "Optimal"},
		{"problem", time.Minute, func(in *StatusInput) {
			in.Variant.Problem, in.Decision, in.Group = &snapshot.Problem{Reason: "InvalidConfiguration", Message: "bad"}, nil, nil
		}, true, true, 0, "InvalidConfiguration"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input()
			before := BuildStatus(in)
			in.Object.Status = before
			in.Time = in.Time.Add(tt.after)
			tt.edit(in)
			after := BuildStatus(in)
			if !tt.ran {
				require.Equal(t, before, after)
				return
			}
			now := metav1.NewTime(in.Time.Truncate(time.Second))
			updated := before.DesiredOptimizedAlloc.LastUpdate.UpdateTime
			if tt.updated {
				updated = &now
			}
			assert.Equal(t, &now, after.DesiredOptimizedAlloc.LastRunTime)
			assert.Equal(t, &v1alpha1.AllocationUpdate{UpdateTime: updated, NumReplicasChanged: tt.changed, Reason: tt.reason}, after.DesiredOptimizedAlloc.LastUpdate)
		})
	}
}

// TestBuildKeepsFigures shows that figures are written with another change.
func TestBuildKeepsFigures(t *testing.T) {
	t.Parallel()
	in := input()
	in.Object.Status = BuildStatus(in)
	in.Decision.Predicted.TTFT, in.Decision.Desired = 1240, 4
	assert.Equal(t, "1.24s", BuildStatus(in).Predicted.TTFT)
}

// TestBuildStart: the time of a start stays in the status, within the schema.
func TestBuildStart(t *testing.T) {
	t.Parallel()
	in := input()
	assert.Zero(t, BuildStatus(in).StartSeconds)
	for _, tt := range []struct {
		start time.Duration
		want  int32
	}{{100*time.Second + 600*time.Millisecond, 101}, {0, 101}, {48 * time.Hour, 86400}} {
		in.Variant.Start = tt.start
		in.Decision.Desired++ // something else has changed, too
		in.Object.Status = BuildStatus(in)
		assert.Equal(t, tt.want, in.Object.Status.StartSeconds)
	}
}

// TestBuildWithoutDecision has variants that were never decided on: nothing must look like a decision for zero replicas.
func TestBuildWithoutDecision(t *testing.T) {
	t.Parallel()
	in := input()
	in.Variant.Problem, in.Variant.Now, in.Load, in.Group, in.Decision = &snapshot.Problem{Reason: "NameConflict", Message: "rename it"}, 0, nil, nil, nil
	got := BuildStatus(in)
	assert.Nil(t, got.DesiredOptimizedAlloc)
	assert.Nil(t, got.CurrentAlloc)
	assert.Nil(t, got.Predicted)

	// v0.7 writes an allocation without replicas.
	in.Object.Status.DesiredOptimizedAlloc = &v1alpha1.OptimizedAllocation{Accelerator: "A100"}
	assert.Nil(t, BuildStatus(in).DesiredOptimizedAlloc)
}

func TestBuildUnknownAccelerator(t *testing.T) {
	t.Parallel()
	in := input()
	in.Variant.Accelerator = ""
	assert.Equal(t, "unknown", BuildStatus(in).DesiredOptimizedAlloc.Accelerator)
}

// TestBuildOthersConditions shows that conditions of other programs stay, in their places, and that times of transitions do.
func TestBuildOthersConditions(t *testing.T) {
	t.Parallel()
	long := metav1.NewTime(start.Add(-time.Hour).Truncate(time.Second))
	foreign := metav1.Condition{Type: "example.com/Approved", Status: metav1.ConditionTrue, Reason: "Budget", Message: "m", LastTransitionTime: long, ObservedGeneration: 2}
	in := input()
	in.Object.Status.Conditions = []metav1.Condition{
		{Type: "OptimizationReady", Status: metav1.ConditionTrue, Reason: "ScaleFromZero", LastTransitionTime: long}, foreign,
		{Type: "MetricsAvailable", Status: metav1.ConditionFalse, Reason: "MetricsMissing", LastTransitionTime: long},
	}
	got := BuildStatus(in)
	require.Len(t, got.Conditions, 9)
	assert.Equal(t, foreign, got.Conditions[1])
	assert.Equal(t, "OptimizationReady", got.Conditions[0].Type)
	assert.Equal(t, "OptimizationSucceeded", got.Conditions[0].Reason)
	assert.Equal(t, long, got.Conditions[0].LastTransitionTime, "the status is as before")
	assert.Equal(t, metav1.NewTime(start.Truncate(time.Second)), got.Conditions[2].LastTransitionTime)
}

// TestBuildCutsMessages has a message of a tenant.
func TestBuildCutsMessages(t *testing.T) {
	t.Parallel()
	in := input()
	in.Variant.Problem = &snapshot.Problem{Reason: "InvalidConfiguration", Message: "x" + strings.Repeat("ä", 5000)}
	for _, c := range BuildStatus(in).Conditions {
		assert.LessOrEqual(t, len(c.Message), maxMessage)
		assert.Equal(t, c.Message, strings.ToValidUTF8(c.Message, "?"), "a character was cut")
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for ms, want := range map[float64]string{0.5: "0.5ms", 24.07: "24.1ms", 812.4: "812ms", 999.4: "999ms", 999.6: "1s", 1240: "1.24s", 123_456: "123s", math.Inf(1): "", math.NaN(): ""} {
		assert.Equal(t, want, formatDuration(ms))
	}
	assert.Equal(t, "73%", formatPercentage(0.731))
	assert.Empty(t, formatPercentage(math.NaN()))
}

func TestLimitsOf(t *testing.T) {
	t.Parallel()
	s := &snapshot.Snapshot{Limits: []snapshot.Limit{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	assert.Equal(t, []snapshot.Limit{{Name: "a"}, {Name: "c"}}, LimitsOf(s, &decision.Decision{Limiting: []string{"c", "a"}}))
	assert.Equal(t, "b", s.Limits[1].Name, "the snapshot has changed")
}

func TestObjectOf(t *testing.T) {
	t.Parallel()
	in := input()
	ref := &corev1.ObjectReference{Namespace: "models", Name: "llama-a100", UID: "1", ResourceVersion: "1"}
	want := in.Object.DeepCopy()
	want.Status = BuildStatus(in)
	assert.Equal(t, mustEncode(json.Marshal(want)), mustEncode(json.Marshal(ObjectOf(ref, 7, mustEncode(json.Marshal(want.Status))))))
	assert.Equal(t, in.Object, ObjectOf(ref, 7, nil))
	assert.Equal(t, in.Object, ObjectOf(ref, 7, []byte(`{"conditions": 1}`)))
}
