package ingressreconciler_test

import (
	"testing"
	"time"

	"fairlead.dev/deploy/charts/internal/alerts"
)

// cases: the series of a few replicas, one sample each minute, and the labels of the alerts that fire. Two replicas of
// a release are one job; another service of Fairlead is another one.
var cases = []alerts.Case{
	{Alert: "IngressReconcilerDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{}`}},
	{Alert: "IngressReconcilerDown", Name: "for a moment", Series: []string{`fairlead_ingress_config_valid{job="r"} 1x5`}, At: 12 * time.Minute},
	{Alert: "IngressReconcilerDown", Name: "one replica is left", Series: []string{`fairlead_ingress_config_valid{job="r"} 1x20`}, At: 20 * time.Minute},
	{
		Alert: "IngressReconcilerNoLeader", Name: "two followers", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="r", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="r", namespace="n", pod="b"} 0x20`,
			`fairlead_ingress_config_valid{job="r", namespace="n", pod="a"} 1x20`, `fairlead_ingress_config_valid{job="r", namespace="n", pod="b"} 1x20`,
		},
		Want: []string{`{job="r", namespace="n"}`},
	},
	{
		Alert: "IngressReconcilerNoLeader", Name: "a leader and a follower", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="r", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="r", namespace="n", pod="b"} 1x20`,
			`fairlead_ingress_config_valid{job="r", namespace="n", pod="a"} 1x20`,
		},
	},
	{
		Alert: "IngressReconcilerNoLeader", Name: "another service has no leader", At: 10 * time.Minute,
		Series: []string{`fairlead_leader{job="other", namespace="n", pod="a"} 0x20`, `fairlead_ingress_config_valid{job="r", namespace="n", pod="b"} 1x20`},
	},
	{
		Alert: "IngressReconcilerNoLeader", Name: "change of leaders", At: 9 * time.Minute,
		Series: []string{`fairlead_leader{job="r", pod="a"} 1x8 0 1x10`, `fairlead_ingress_config_valid{job="r", pod="a"} 1x20`},
	},
	{
		Alert: "IngressReconcilerConfigInvalid", Name: "on one replica", At: 10 * time.Minute,
		Series: []string{
			`fairlead_ingress_config_valid{job="r", pod="a", config_map="n/c"} 1x20`, `fairlead_ingress_config_valid{job="r", pod="b", config_map="n/c"} 0x20`,
			`fairlead_ingress_config_valid{job="r", pod="a", config_map="ome/i"} 1x20`,
		},
		Want: []string{`{config_map="n/c", job="r"}`},
	},
	{
		Alert: "IngressReconcilerConfigInvalid", Name: "for a moment", At: 10 * time.Minute,
		Series: []string{`fairlead_ingress_config_valid{job="r", config_map="n/c"} 1x7 0x10`},
	},
	{
		Alert: "IngressReconcilerServiceNotProgrammed", Name: "by reason", At: 30 * time.Minute,
		Series: []string{
			`fairlead_ingress_services{job="r", pod="a", reason="Programmed"} 7x40`, `fairlead_ingress_services{job="r", pod="a", reason="HostConflict"} 2x40`,
			`fairlead_ingress_services{job="r", pod="b", reason="HostConflict"} 0x40`, `fairlead_ingress_services{job="r", pod="a", reason="NoDomain"} 0x40`,
			`fairlead_ingress_services{job="r", pod="a", reason="Disabled"} 3x40`, `fairlead_ingress_services{job="r", pod="a", reason="ComponentNotReady"} 3x40`,
			`fairlead_ingress_services{job="r", pod="a", reason="ParentStatusNotAvailable"} 1x40`,
		},
		Want: []string{`{job="r", reason="HostConflict"}`, `{job="r", reason="ParentStatusNotAvailable"}`},
	},
	{
		Alert: "IngressReconcilerServiceNotProgrammed", Name: "a new route", At: 25 * time.Minute,
		Series: []string{`fairlead_ingress_services{job="r", reason="ParentStatusNotAvailable"} 0x20 1x20`},
	},
	{
		Alert: "IngressReconcilerServiceNotProgrammed", Name: "the leader changes", At: 30 * time.Minute,
		Series: []string{
			`fairlead_ingress_services{job="r", pod="a", reason="HostConflict"} 1x20 0x20`, `fairlead_ingress_services{job="r", pod="b", reason="HostConflict"} 0x20 1x20`,
		},
		Want: []string{`{job="r", reason="HostConflict"}`},
	},
	{
		Alert: "IngressReconcilerServiceWaiting", Name: "for hours", At: 2 * time.Hour,
		Series: []string{`fairlead_ingress_services{job="r", reason="ComponentNotReady"} 1x130`, `fairlead_ingress_services{job="r", reason="NoDomain"} 1x130`},
		Want:   []string{`{job="r", reason="ComponentNotReady"}`},
	},
	{
		Alert: "IngressReconcilerServiceWaiting", Name: "while a model loads", At: 2 * time.Hour,
		Series: []string{`fairlead_ingress_services{job="r", reason="ComponentNotReady"} 0x80 1x50`},
	},
	{
		Alert: "IngressReconcilerWritesFailing", Name: "refused by a webhook", At: 30 * time.Minute,
		Series: []string{
			`fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0+1x40`, `fairlead_ingress_writes_total{job="r", resource="httproutes", result="failed"} 3x40`,
		},
		Want: []string{`{job="r", resource="ingresses"}`},
	},
	{
		Alert: "IngressReconcilerWritesFailing", Name: "written", At: 30 * time.Minute,
		Series: []string{`fairlead_ingress_writes_total{job="r", resource="ingresses", result="created"} 0+1x40`, `fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0 1x40`},
	},
	{
		Alert: "IngressReconcilerWritesFailing", Name: "once", At: 30 * time.Minute,
		Series: []string{`fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0x26 1x10`},
	},
	{
		Alert: "IngressReconcilerReconcileErrors", Name: "one of five", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="success"} 0+8x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0+1x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="terminal"} 0+1x70`,
		},
		Want: []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerReconcileErrors", Name: "requeues and conflicts", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="requeue"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="conflict"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0+1x70`,
		},
	},
	{
		Alert: "IngressReconcilerReconcileErrors", Name: "another controller", At: time.Hour,
		Series: []string{`fairlead_controller_reconcile_duration_seconds_count{job="other", controller="variant", result="error"} 0+8x70`},
	},
	{
		Alert: "IngressReconcilerReconcileErrors", Name: "for minutes", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="success"} 0+4x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0x50 8+8x20`,
		},
	},
	{
		Alert: "IngressReconcilerQueueDeep", Name: "it does not drain", At: 30 * time.Minute,
		Series: []string{`workqueue_depth{job="r", name="inferenceservice", pod="a"} 150x40`, `workqueue_depth{job="r", name="inferenceservice", pod="b"} 0x40`},
		Want:   []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerQueueDeep", Name: "a new leader", At: 30 * time.Minute,
		Series: []string{`workqueue_depth{job="r", name="inferenceservice"} 0x25 2000x20`, `workqueue_depth{job="other", name="variant"} 2000x40`},
	},
	{
		Alert: "IngressReconcilerQueueSlow", Name: "half of a minute", At: 40 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="8"} 0+1x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="32"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0+9x50`,
		},
		Want: []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerQueueSlow", Name: "milliseconds", At: 40 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="0.008"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0+9x50`,
		},
	},
	{
		Alert: "IngressReconcilerQueueSlow", Name: "a burst", At: 35 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="8"} 0x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="32"} 0x30 9+9x20`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0x30 9+9x20`,
		},
	},
	{
		Alert: "IngressReconcilerReconcileStuck", Name: "on one replica", At: 20 * time.Minute,
		Series: []string{
			`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice", pod="a"} 0+60x30`,
			`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice", pod="b"} 0x30`,
		},
		Want: []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerReconcileStuck", Name: "a slow one", At: 20 * time.Minute,
		Series: []string{`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice"} 0x17 70x30`},
	},
	{
		Alert: "IngressReconcilerProgrammingSlow", Name: "minutes", At: 2 * time.Hour,
		Series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 0+1x130`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="300"} 0+9x130`,
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 0+9x130`,
		},
		Want: []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerProgrammingSlow", Name: "nothing is new", At: 2 * time.Hour,
		Series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 1x130`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 9x130`,
		},
	},
	{
		Alert: "IngressReconcilerProgrammingSlow", Name: "a moment ago", At: time.Hour,
		Series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 0x70`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="300"} 0x55 9x20`,
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 0x55 9x20`,
		},
	},
	{
		Alert: "IngressReconcilerObjectsHeld", Name: "for hours", At: 2 * time.Hour,
		Series: []string{`fairlead_ingress_held_objects{job="r", pod="a"} 3x130`, `fairlead_ingress_held_objects{job="r", pod="b"} 0x130`},
		Want:   []string{`{job="r"}`},
	},
	{
		Alert: "IngressReconcilerObjectsHeld", Name: "for minutes", At: 2 * time.Hour,
		Series: []string{`fairlead_ingress_held_objects{job="r"} 0x100 3x30`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chart), cases)
}
