package ingressreconciler_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/prom"
)

func readRules(t *testing.T) []prom.Rule {
	t.Helper()
	rules, err := prom.ReadRules(filepath.Join(chart, "rules", "alerts.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	return rules
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := readNames(t)
	for _, r := range readRules(t) {
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			assert.NotEmpty(t, known.assertKnown(t, r.Expr))
			assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"])
			assert.NotEmpty(t, r.Annotations["summary"])
			assert.NotEmpty(t, r.Annotations["description"])
		})
	}
}

// tests of alerts: the series of a few replicas, one sample each minute, and the labels of the alerts that fire. Two replicas of
// a release are one job; another service of Fairlead is another one.
var tests = []struct {
	alert  string
	name   string
	series []string
	at     time.Duration
	want   []string
}{
	{alert: "IngressReconcilerDown", name: "nothing is scraped", at: 10 * time.Minute, want: []string{`{}`}},
	{alert: "IngressReconcilerDown", name: "for a moment", series: []string{`fairlead_ingress_config_valid{job="r"} 1x5`}, at: 12 * time.Minute},
	{alert: "IngressReconcilerDown", name: "one replica is left", series: []string{`fairlead_ingress_config_valid{job="r"} 1x20`}, at: 20 * time.Minute},
	{
		alert: "IngressReconcilerNoLeader", name: "two followers", at: 10 * time.Minute,
		series: []string{
			`fairlead_leader{job="r", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="r", namespace="n", pod="b"} 0x20`,
			`fairlead_ingress_config_valid{job="r", namespace="n", pod="a"} 1x20`, `fairlead_ingress_config_valid{job="r", namespace="n", pod="b"} 1x20`,
		},
		want: []string{`{job="r", namespace="n"}`},
	},
	{
		alert: "IngressReconcilerNoLeader", name: "a leader and a follower", at: 10 * time.Minute,
		series: []string{
			`fairlead_leader{job="r", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="r", namespace="n", pod="b"} 1x20`,
			`fairlead_ingress_config_valid{job="r", namespace="n", pod="a"} 1x20`,
		},
	},
	{
		alert: "IngressReconcilerNoLeader", name: "another service has no leader", at: 10 * time.Minute,
		series: []string{`fairlead_leader{job="other", namespace="n", pod="a"} 0x20`, `fairlead_ingress_config_valid{job="r", namespace="n", pod="b"} 1x20`},
	},
	{
		alert: "IngressReconcilerNoLeader", name: "change of leaders", at: 9 * time.Minute,
		series: []string{`fairlead_leader{job="r", pod="a"} 1x8 0 1x10`, `fairlead_ingress_config_valid{job="r", pod="a"} 1x20`},
	},
	{
		alert: "IngressReconcilerConfigInvalid", name: "on one replica", at: 10 * time.Minute,
		series: []string{
			`fairlead_ingress_config_valid{job="r", pod="a", config_map="n/c"} 1x20`, `fairlead_ingress_config_valid{job="r", pod="b", config_map="n/c"} 0x20`,
			`fairlead_ingress_config_valid{job="r", pod="a", config_map="ome/i"} 1x20`,
		},
		want: []string{`{config_map="n/c", job="r"}`},
	},
	{
		alert: "IngressReconcilerConfigInvalid", name: "for a moment", at: 10 * time.Minute,
		series: []string{`fairlead_ingress_config_valid{job="r", config_map="n/c"} 1x7 0x10`},
	},
	{
		alert: "IngressReconcilerServiceNotProgrammed", name: "by reason", at: 30 * time.Minute,
		series: []string{
			`fairlead_ingress_services{job="r", pod="a", reason="Programmed"} 7x40`, `fairlead_ingress_services{job="r", pod="a", reason="HostConflict"} 2x40`,
			`fairlead_ingress_services{job="r", pod="b", reason="HostConflict"} 0x40`, `fairlead_ingress_services{job="r", pod="a", reason="NoDomain"} 0x40`,
			`fairlead_ingress_services{job="r", pod="a", reason="Disabled"} 3x40`, `fairlead_ingress_services{job="r", pod="a", reason="ComponentNotReady"} 3x40`,
			`fairlead_ingress_services{job="r", pod="a", reason="ParentStatusNotAvailable"} 1x40`,
		},
		want: []string{`{job="r", reason="HostConflict"}`, `{job="r", reason="ParentStatusNotAvailable"}`},
	},
	{
		alert: "IngressReconcilerServiceNotProgrammed", name: "a new route", at: 25 * time.Minute,
		series: []string{`fairlead_ingress_services{job="r", reason="ParentStatusNotAvailable"} 0x20 1x20`},
	},
	{
		alert: "IngressReconcilerServiceNotProgrammed", name: "the leader changes", at: 30 * time.Minute,
		series: []string{
			`fairlead_ingress_services{job="r", pod="a", reason="HostConflict"} 1x20 0x20`, `fairlead_ingress_services{job="r", pod="b", reason="HostConflict"} 0x20 1x20`,
		},
		want: []string{`{job="r", reason="HostConflict"}`},
	},
	{
		alert: "IngressReconcilerServiceWaiting", name: "for hours", at: 2 * time.Hour,
		series: []string{`fairlead_ingress_services{job="r", reason="ComponentNotReady"} 1x130`, `fairlead_ingress_services{job="r", reason="NoDomain"} 1x130`},
		want:   []string{`{job="r", reason="ComponentNotReady"}`},
	},
	{
		alert: "IngressReconcilerServiceWaiting", name: "while a model loads", at: 2 * time.Hour,
		series: []string{`fairlead_ingress_services{job="r", reason="ComponentNotReady"} 0x80 1x50`},
	},
	{
		alert: "IngressReconcilerWritesFailing", name: "refused by a webhook", at: 30 * time.Minute,
		series: []string{
			`fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0+1x40`, `fairlead_ingress_writes_total{job="r", resource="httproutes", result="failed"} 3x40`,
		},
		want: []string{`{job="r", resource="ingresses"}`},
	},
	{
		alert: "IngressReconcilerWritesFailing", name: "written", at: 30 * time.Minute,
		series: []string{`fairlead_ingress_writes_total{job="r", resource="ingresses", result="created"} 0+1x40`, `fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0 1x40`},
	},
	{
		alert: "IngressReconcilerWritesFailing", name: "once", at: 30 * time.Minute,
		series: []string{`fairlead_ingress_writes_total{job="r", resource="ingresses", result="failed"} 0x26 1x10`},
	},
	{
		alert: "IngressReconcilerReconcileErrors", name: "one of five", at: time.Hour,
		series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="success"} 0+8x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0+1x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="terminal"} 0+1x70`,
		},
		want: []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerReconcileErrors", name: "requeues and conflicts", at: time.Hour,
		series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="requeue"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="conflict"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0+1x70`,
		},
	},
	{
		alert: "IngressReconcilerReconcileErrors", name: "another controller", at: time.Hour,
		series: []string{`fairlead_controller_reconcile_duration_seconds_count{job="other", controller="variant", result="error"} 0+8x70`},
	},
	{
		alert: "IngressReconcilerReconcileErrors", name: "for minutes", at: time.Hour,
		series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="success"} 0+4x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="r", controller="inferenceservice", result="error"} 0x50 8+8x20`,
		},
	},
	{
		alert: "IngressReconcilerQueueDeep", name: "it does not drain", at: 30 * time.Minute,
		series: []string{`workqueue_depth{job="r", name="inferenceservice", pod="a"} 150x40`, `workqueue_depth{job="r", name="inferenceservice", pod="b"} 0x40`},
		want:   []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerQueueDeep", name: "a new leader", at: 30 * time.Minute,
		series: []string{`workqueue_depth{job="r", name="inferenceservice"} 0x25 2000x20`, `workqueue_depth{job="other", name="variant"} 2000x40`},
	},
	{
		alert: "IngressReconcilerQueueSlow", name: "half of a minute", at: 40 * time.Minute,
		series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="8"} 0+1x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="32"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0+9x50`,
		},
		want: []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerQueueSlow", name: "milliseconds", at: 40 * time.Minute,
		series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="0.008"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0+9x50`,
		},
	},
	{
		alert: "IngressReconcilerQueueSlow", name: "a burst", at: 35 * time.Minute,
		series: []string{
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="8"} 0x50`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="32"} 0x30 9+9x20`,
			`workqueue_queue_duration_seconds_bucket{job="r", name="inferenceservice", le="+Inf"} 0x30 9+9x20`,
		},
	},
	{
		alert: "IngressReconcilerReconcileStuck", name: "on one replica", at: 20 * time.Minute,
		series: []string{
			`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice", pod="a"} 0+60x30`,
			`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice", pod="b"} 0x30`,
		},
		want: []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerReconcileStuck", name: "a slow one", at: 20 * time.Minute,
		series: []string{`workqueue_longest_running_processor_seconds{job="r", name="inferenceservice"} 0x17 70x30`},
	},
	{
		alert: "IngressReconcilerProgrammingSlow", name: "minutes", at: 2 * time.Hour,
		series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 0+1x130`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="300"} 0+9x130`,
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 0+9x130`,
		},
		want: []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerProgrammingSlow", name: "nothing is new", at: 2 * time.Hour,
		series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 1x130`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 9x130`,
		},
	},
	{
		alert: "IngressReconcilerProgrammingSlow", name: "a moment ago", at: time.Hour,
		series: []string{
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="30"} 0x70`, `fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="300"} 0x55 9x20`,
			`fairlead_ingress_time_to_programmed_seconds_bucket{job="r", le="+Inf"} 0x55 9x20`,
		},
	},
	{
		alert: "IngressReconcilerObjectsHeld", name: "for hours", at: 2 * time.Hour,
		series: []string{`fairlead_ingress_held_objects{job="r", pod="a"} 3x130`, `fairlead_ingress_held_objects{job="r", pod="b"} 0x130`},
		want:   []string{`{job="r"}`},
	},
	{
		alert: "IngressReconcilerObjectsHeld", name: "for minutes", at: 2 * time.Hour,
		series: []string{`fairlead_ingress_held_objects{job="r"} 0x100 3x30`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	rules := readRules(t)
	for _, tt := range tests {
		t.Run(tt.alert+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(rules, func(r prom.Rule) bool { return r.Alert == tt.alert })
			require.GreaterOrEqual(t, i, 0, "no such alert")
			world, err := prom.NewWorld(tt.series...)
			require.NoError(t, err)
			firing, err := world.Firing(t.Context(), rules[i], tt.at)
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.want, firing)
		})
	}
}

// TestEveryAlertIsTested checks that each alert has a case in which it fires and one in which it does not.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	for _, r := range readRules(t) {
		var fires, rests bool
		for _, tt := range tests {
			if tt.alert == r.Alert {
				fires, rests = fires || len(tt.want) > 0, rests || len(tt.want) == 0
			}
		}
		assert.True(t, fires, "%s: no test in which it fires", r.Alert)
		assert.True(t, rests, "%s: no test in which it does not fire", r.Alert)
	}
}
