package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// chat is a variant with all series.
func chat() decision.ActedVariant {
	return decision.ActedVariant{
		Variant: snapshot.Variant{
			Namespace: "a", Name: "chat", Target: snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "chat-decode"},
			Accelerator: "H100", Now: 2, Previous: 2, Decided: true,
		},
		Model: "meta/llama-3.1-8b", Desired: 3, Reason: decision.Optimal, Predicted: &decision.Predicted{TTFT: 250, ITL: 20},
	}
}

// a decision on two groups.
func decided() (*snapshot.Snapshot, *decision.Decision) {
	problem := &snapshot.Problem{Reason: "TargetNotFound"}
	return &snapshot.Snapshot{Groups: []snapshot.Group{
			{Namespace: "a", Pool: "p", Model: "llama", Variants: []snapshot.Variant{{Name: "chat"}, {Name: "gone", Problem: problem}}},
			{Namespace: "b", Model: "qwen", Role: snapshot.Decode, Variants: []snapshot.Variant{{Name: "code"}}},
		}}, &decision.Decision{Cost: 30_500_000, Bound: 30_000_000, Acted: 40_000_000, Groups: []decision.Group{
			{Demand: 12_500_000, Share: 1_000_000, Acted: 900_000, Variants: []decision.Variant{{Reason: decision.Optimal}, {Reason: decision.Excluded}}},
			{Demand: 1_000_000, Share: 500_000, Acted: 500_000, Variants: []decision.Variant{{Reason: decision.Optimal}}},
		}}
}

// everything registers all metrics of the program, and creates a series of each.
func everything(t *testing.T, r prometheus.Registerer) *Metrics {
	t.Helper()
	m := New(r, "")
	loser := chat()
	loser.Name, loser.Resolution = "chat-2", decision.Suppressed
	m.Publish([]decision.ActedVariant{chat(), loser})
	m.CountPass("success", time.Second)
	m.MarkSuccess(time.Unix(1, 0))
	m.ObservePart("decision", time.Second)
	m.SetInterval(time.Minute)
	m.ObserveDecision(decided())
	m.Configured("fairlead/service-classes-config", "")
	m.CountAnswer("GetMetrics", "OK")
	m.CountWrite("Scaled")
	m.ObservePickers(1, 0)
	_, err := leader.New(leader.Params{Metrics: r, Log: zap.NewNop()})
	require.NoError(t, err)
	return m
}

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	golden.Metrics(t, "../../../../docs/reference/metrics/variant-autoscaler.md", r, func(metric string) string {
		if strings.HasPrefix(metric, "wva_desired_replicas") {
			return "All wva metrics have the label `controller_instance`, too, if there are several installations."
		}
		return ""
	})
}
