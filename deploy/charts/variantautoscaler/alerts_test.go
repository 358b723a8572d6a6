package variantautoscaler_test

import (
	"testing"
	"time"

	"fairlead.dev/deploy/charts/internal/alerts"
)

// cases: the series of a few replicas, one sample each minute, and the labels of the alerts that fire. Two replicas of
// a release are one job; another service of Fairlead is another one.
var cases = []alerts.Case{
	{Alert: "VariantAutoscalerDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{}`}},
	{Alert: "VariantAutoscalerDown", Name: "for a moment", Series: []string{`fairlead_autoscaler_interval_seconds{job="s"} 60x5`}, At: 12 * time.Minute},
	{Alert: "VariantAutoscalerDown", Name: "a replica that never led", Series: []string{`fairlead_autoscaler_interval_seconds{job="s"} 0x20`}, At: 20 * time.Minute},
	{
		Alert: "VariantAutoscalerNoLeader", Name: "two followers", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="s", namespace="n", pod="b"} 0x20`,
			`fairlead_autoscaler_interval_seconds{job="s", namespace="n", pod="a"} 0x20`, `fairlead_autoscaler_interval_seconds{job="s", namespace="n", pod="b"} 0x20`,
		},
		Want: []string{`{job="s", namespace="n"}`},
	},
	{
		Alert: "VariantAutoscalerNoLeader", Name: "a leader and a follower", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="s", namespace="n", pod="b"} 1x20`,
			`fairlead_autoscaler_interval_seconds{job="s", namespace="n", pod="a"} 0x20`,
		},
	},
	{
		Alert: "VariantAutoscalerNoLeader", Name: "another service has no leader", At: 10 * time.Minute,
		Series: []string{`fairlead_leader{job="other", namespace="n", pod="a"} 0x20`, `fairlead_autoscaler_interval_seconds{job="s", namespace="n", pod="b"} 0x20`},
	},
	{
		Alert: "VariantAutoscalerNoLeader", Name: "change of leaders", At: 9 * time.Minute,
		Series: []string{`fairlead_leader{job="s", pod="a"} 1x8 0 1x10`, `fairlead_autoscaler_interval_seconds{job="s", pod="a"} 60x20`},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "the leader stopped after 20 minutes", At: 35 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0+60x20 1200x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 60x60`,
			`fairlead_autoscaler_interval_seconds{job="s", instance="2"} 0x60`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "not for long", At: 29 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0+60x20 1200x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 60x60`,
		},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "the longest interval", At: 60 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0x11 720x12 1500x11 2220x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 600x60`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "the longest interval, in time", At: 50 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0x11 720x12 1500x11 2220x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 600x60`,
		},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "one failure with a long interval", At: 37 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0x11 720x12 1500x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 600x34 0.5x20`,
		},
	},
	{
		Alert: "VariantAutoscalerNoPass", Name: "no variants", At: 50 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_last_success_timestamp_seconds{job="s", instance="1"} 0+60x20 1200x40`, `fairlead_autoscaler_interval_seconds{job="s", instance="1"} 60x20 0x40`,
		},
	},
	{
		Alert: "VariantAutoscalerPassesFailing", Name: "all", At: 40 * time.Minute,
		Series: []string{`fairlead_autoscaler_passes_total{job="s", result="error"} 0+1x50`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerPassesFailing", Name: "every second one", At: 40 * time.Minute,
		Series: []string{`fairlead_autoscaler_passes_total{job="s", result="error"} 0+1x50`, `fairlead_autoscaler_passes_total{job="s", result="success"} 0+1x50`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerPassesFailing", Name: "one", At: 40 * time.Minute,
		Series: []string{`fairlead_autoscaler_passes_total{job="s", result="error"} 0x35 1x20`, `fairlead_autoscaler_passes_total{job="s", result="success"} 0+1x50`},
	},
	{
		Alert: "VariantAutoscalerPassesFailing", Name: "conflicts and restarts", At: 40 * time.Minute,
		Series: []string{`fairlead_autoscaler_passes_total{job="s", result="conflict"} 0+1x50`, `fairlead_autoscaler_passes_total{job="s", result="canceled"} 0+1x50`},
	},
	{
		Alert: "VariantAutoscalerConfigInvalid", Name: "on one replica", At: 10 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_config_valid{job="s", pod="a", config_map="n/c"} 1x20`, `fairlead_autoscaler_config_valid{job="s", pod="b", config_map="n/c"} 0x20`,
			`fairlead_autoscaler_config_valid{job="s", pod="b", config_map="n/d"} 1x20`,
		},
		Want: []string{`{config_map="n/c", job="s"}`},
	},
	{
		Alert: "VariantAutoscalerConfigInvalid", Name: "for a moment", At: 10 * time.Minute,
		Series: []string{`fairlead_autoscaler_config_valid{job="s", config_map="n/c"} 1x7 0x10`},
	},
	{
		Alert: "VariantAutoscalerMetricsMissing", Name: "Prometheus is away", At: 20 * time.Minute,
		Series: []string{`fairlead_autoscaler_variants{job="s", pod="a", reason="MetricsUnavailable"} 4x30`, `fairlead_autoscaler_variants{job="s", pod="a", reason="Optimal"} 8x30`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerMetricsMissing", Name: "a new model", At: 20 * time.Minute,
		Series: []string{`fairlead_autoscaler_variants{job="s", reason="MetricsUnavailable"} _x15 1x3 _x20`, `fairlead_autoscaler_variants{job="s", reason="CapacityUnknown"} 8x40`},
	},
	{
		Alert: "VariantAutoscalerDemandNotServed", Name: "a limit binds", At: 30 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_share{job="s", pod="a", exported_namespace="m", pool="p", model="llama", plan="acted"} 0.7x40`,
			`fairlead_autoscaler_share{job="s", pod="a", exported_namespace="m", pool="p", model="llama", plan="optimal"} 0.8x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", pod="a", exported_namespace="m", pool="p", model="llama"} 12x40`,
			`fairlead_autoscaler_share{job="s", pod="a", exported_namespace="m", pool="p", model="qwen", plan="acted"} 1x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", pod="a", exported_namespace="m", pool="p", model="qwen"} 12x40`,
		},
		Want: []string{`{exported_namespace="m", job="s", model="llama", pool="p"}`},
	},
	{
		Alert: "VariantAutoscalerDemandNotServed", Name: "no replica meets the targets", At: 30 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_share{job="s", pod="a", exported_namespace="m", pool="p", model="llama", plan="acted"} 0x40`,
			`fairlead_autoscaler_share{job="s", pod="a", exported_namespace="m", pool="p", model="llama", plan="optimal"} 0x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", pod="a", exported_namespace="m", pool="p", model="llama"} 12x40`,
		},
		Want: []string{`{exported_namespace="m", job="s", model="llama", pool="p"}`},
	},
	{
		Alert: "VariantAutoscalerDemandNotServed", Name: "with honorLabels", At: 30 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_share{job="s", namespace="m", pool="p", model="llama", plan="acted"} 0.7x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", namespace="m", pool="p", model="llama"} 12x40`,
		},
		Want: []string{`{job="s", model="llama", namespace="m", pool="p"}`},
	},
	{
		Alert: "VariantAutoscalerDemandNotServed", Name: "the load is not known", At: 30 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_share{job="s", pool="p", model="llama", plan="acted"} 0x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", pool="p", model="llama"} 0x40`,
		},
	},
	{
		Alert: "VariantAutoscalerDemandNotServed", Name: "until replicas have started", At: 30 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_share{job="s", pool="p", model="llama", plan="acted"} 1x18 0.5x10 1x20`,
			`fairlead_autoscaler_share{job="s", pool="p", model="llama", plan="optimal"} 0.9x40`,
			`fairlead_autoscaler_demand_requests_per_second{job="s", pool="p", model="llama"} 12x40`,
		},
	},
	{
		Alert: "VariantAutoscalerPlanNotOptimal", Name: "for an hour", At: time.Hour,
		Series: []string{
			`fairlead_autoscaler_cost_gap_per_hour{job="s", pod="a"} 5x70`, `fairlead_autoscaler_cost_per_hour{job="s", pod="a", plan="optimal"} 200x70`,
			`fairlead_autoscaler_cost_per_hour{job="s", pod="a", plan="acted"} 2000x70`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerPlanNotOptimal", Name: "a small gap", At: time.Hour,
		Series: []string{`fairlead_autoscaler_cost_gap_per_hour{job="s", pod="a"} 1x70`, `fairlead_autoscaler_cost_per_hour{job="s", pod="a", plan="optimal"} 200x70`},
	},
	{
		Alert: "VariantAutoscalerPlanNotOptimal", Name: "everything is at zero", At: time.Hour,
		Series: []string{`fairlead_autoscaler_cost_gap_per_hour{job="s", pod="a"} 0x70`, `fairlead_autoscaler_cost_per_hour{job="s", pod="a", plan="optimal"} 0x70`},
	},
	{
		Alert: "VariantAutoscalerVariantProblems", Name: "by reason", At: 40 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_variant_problems{job="s", pod="a", reason="TargetNotFound"} 2x50`, `fairlead_autoscaler_variant_problems{job="s", pod="a", reason="LimitExceeded"} 1x5 _x50`,
		},
		Want: []string{`{job="s", reason="TargetNotFound"}`},
	},
	{
		Alert: "VariantAutoscalerVariantProblems", Name: "a new variant", At: 25 * time.Minute,
		Series: []string{`fairlead_autoscaler_variant_problems{job="s", reason="TargetNotFound"} _x20 1x20`},
	},
	{
		Alert: "VariantAutoscalerVariantsWithoutSeries", Name: "on the leader", At: 20 * time.Minute,
		Series: []string{`fairlead_autoscaler_variants_without_series{job="s", pod="a"} 1x30`, `fairlead_autoscaler_variants_without_series{job="s", pod="b"} 0x30`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerVariantsWithoutSeries", Name: "none", At: 20 * time.Minute,
		Series: []string{`fairlead_autoscaler_variants_without_series{job="s", pod="a"} 0x30`},
	},
	{
		Alert: "VariantAutoscalerTargetsNotScaled", Name: "by reason", At: 40 * time.Minute,
		Series: []string{
			`fairlead_autoscaler_target_writes_total{job="s", pod="a", result="ScaleForbidden"} 0+2x50`, `fairlead_autoscaler_target_writes_total{job="s", pod="a", result="Scaled"} 0+5x50`,
		},
		Want: []string{`{job="s", result="ScaleForbidden"}`},
	},
	{
		Alert: "VariantAutoscalerTargetsNotScaled", Name: "for a moment", At: 40 * time.Minute,
		Series: []string{`fairlead_autoscaler_target_writes_total{job="s", pod="a", result="ScaleDeferred"} 0x30 3x20`},
	},
	{
		Alert: "VariantAutoscalerReplicasContested", Name: "in each pass, until the program waits", At: time.Hour,
		Series: []string{`fairlead_autoscaler_target_overwrites_total{job="s", pod="a"} 0x20 1 2 3x27 4 5 6x50`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "VariantAutoscalerReplicasContested", Name: "by hand, now and then", At: time.Hour,
		Series: []string{`fairlead_autoscaler_target_overwrites_total{job="s", pod="a"} 0x20 1x20 2x30`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chart), cases)
}
