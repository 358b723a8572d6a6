package nodepoolingress_test

import (
	"testing"
	"time"

	"fairlead.dev/deploy/charts/internal/alerts"
)

// cases: the series of a few replicas, one sample each minute, and the labels of the alerts that fire. Two replicas of a release are one job;
// another service of Fairlead is another one.
var cases = []alerts.Case{
	{Alert: "NodePoolIngressDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{name="yurtingress"}`}},
	{Alert: "NodePoolIngressDown", Name: "for a moment", Series: []string{`workqueue_depth{job="s", name="yurtingress"} 0x5`}, At: 12 * time.Minute},
	{
		Alert: "NodePoolIngressNoLeader", Name: "two followers", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="s", namespace="n", pod="b"} 0x20`,
			`workqueue_depth{job="s", namespace="n", pod="a", name="yurtingress"} 0x20`, `workqueue_depth{job="s", namespace="n", pod="b", name="yurtingress"} 0x20`,
		},
		Want: []string{`{job="s", namespace="n"}`},
	},
	{
		Alert: "NodePoolIngressNoLeader", Name: "a leader and a follower", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", pod="a"} 0x20`, `fairlead_leader{job="s", pod="b"} 1x20`, `workqueue_depth{job="s", pod="a", name="yurtingress"} 0x20`,
		},
	},
	{
		Alert: "NodePoolIngressNoLeader", Name: "another service has no leader", At: 10 * time.Minute,
		Series: []string{`fairlead_leader{job="other", pod="a"} 0x20`, `workqueue_depth{job="other", pod="a", name="backendsetbinding"} 0x20`},
	},
	{
		Alert: "NodePoolIngressPoolDown", Name: "pods crash", At: 15 * time.Minute,
		Series: []string{
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="hangzhou", state="desired"} 2x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 0x20`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 3x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="desired"} 2x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="ready"} 1x20`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="ready"} 3x20`,
		},
		Want: []string{`{job="s", pool="hangzhou", yurtingress="edge"}`},
	},
	{
		Alert: "NodePoolIngressPoolDown", Name: "scaled to zero, and a site without a connection", At: 15 * time.Minute,
		Series: []string{
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="hangzhou", state="desired"} 0x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 0x20`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 3x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="desired"} 1x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="ready"} 0x20`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="ready"} 0x20`,
		},
	},
	{
		Alert: "NodePoolIngressPoolWithoutNodes", Name: "a site without a connection", At: 30 * time.Minute,
		Series: []string{
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="desired"} 1x40`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="all"} 3x40`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="ready"} 0x40`,
		},
		Want: []string{`{job="s", pool="shanghai", yurtingress="edge"}`},
	},
	{
		Alert: "NodePoolIngressPoolWithoutNodes", Name: "for ten minutes, and a pool that needs none", At: 30 * time.Minute,
		Series: []string{
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="shanghai", state="desired"} 1x40`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="ready"} 1x20 0x9 1x20`,
			`fairlead_nodepool_pool_replicas{job="s", yurtingress="edge", pool="hangzhou", state="desired"} 0x40`,
			`fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 0x40`,
		},
	},
	{
		Alert: "NodePoolIngressPoolNotReady", Name: "for an hour", At: time.Hour,
		Series: []string{
			`fairlead_nodepool_pool_ready{job="s", yurtingress="edge", pool="hangzhou"} 0x70`, `fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 1x70`,
			`fairlead_nodepool_pool_ready{job="s", yurtingress="edge", pool="shanghai"} 1x70`, `fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="shanghai", state="ready"} 1x70`,
		},
		Want: []string{`{job="s", pool="hangzhou", yurtingress="edge"}`},
	},
	{
		Alert: "NodePoolIngressPoolNotReady", Name: "without nodes", At: time.Hour,
		Series: []string{`fairlead_nodepool_pool_ready{job="s", yurtingress="edge", pool="hangzhou"} 0x70`, `fairlead_nodepool_pool_nodes{job="s", yurtingress="edge", pool="hangzhou", state="ready"} 0x70`},
	},
	{
		Alert: "NodePoolIngressRolloutStopped", Name: "at a bad image", At: 15 * time.Minute,
		Series: []string{`fairlead_nodepool_pools{job="s", pod="a", reason="RolloutStopped"} 3x20`, `fairlead_nodepool_pools{job="s", pod="b", reason="RolloutStopped"} 0x20`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "NodePoolIngressRolloutStopped", Name: "it goes on", At: 15 * time.Minute,
		Series: []string{`fairlead_nodepool_pools{job="s", reason="RolloutStopped"} 3x12 0x9`, `fairlead_nodepool_pools{job="s", reason="Waiting"} 3x20`},
	},
	{
		Alert: "NodePoolIngressPoolNotAccepted", Name: "by reason", At: 30 * time.Minute,
		Series: []string{`fairlead_nodepool_pools{job="s", reason="PoolConflict"} 2x40`, `fairlead_nodepool_pools{job="s", reason="NotAllowed"} 1x40`, `fairlead_nodepool_pools{job="s", reason="Ready"} 9x40`},
		Want:   []string{`{job="s", reason="PoolConflict"}`, `{job="s", reason="NotAllowed"}`},
	},
	{
		Alert: "NodePoolIngressPoolNotAccepted", Name: "reasons with alerts of their own", At: 30 * time.Minute,
		Series: []string{`fairlead_nodepool_pools{job="s", reason="NoReadyNodes"} 2x40`, `fairlead_nodepool_pools{job="s", reason="RolloutStopped"} 1x40`},
	},
	{
		Alert: "NodePoolIngressWriteConflict", Name: "another program", At: 80 * time.Minute,
		Series: []string{`fairlead_nodepool_writes_total{job="s", resource="services", result="updated"} 0+2x90`, `fairlead_nodepool_writes_total{job="s", resource="deployments", result="updated"} 5x90`},
		Want:   []string{`{job="s", resource="services"}`},
	},
	{
		Alert: "NodePoolIngressWriteConflict", Name: "a roll-out", At: 80 * time.Minute,
		Series: []string{`fairlead_nodepool_writes_total{job="s", resource="services", result="updated"} 0+2x90`, `fairlead_nodepool_pools{job="s", reason="Waiting"} 1x90`},
	},
	{
		Alert: "NodePoolIngressReconcileErrors", Name: "one of five", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="yurtingress", result="success"} 0+8x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="yurtingress", result="error"} 0+2x70`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "NodePoolIngressReconcileErrors", Name: "another controller", At: time.Hour,
		Series: []string{`fairlead_controller_reconcile_duration_seconds_count{job="other", controller="inferenceservice", result="error"} 0+8x70`},
	},
	{
		Alert: "NodePoolIngressQueueSlow", Name: "half of a minute", At: 40 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="s", name="yurtingress", le="8"} 0+1x50`, `workqueue_queue_duration_seconds_bucket{job="s", name="yurtingress", le="32"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="s", name="yurtingress", le="+Inf"} 0+9x50`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "NodePoolIngressQueueSlow", Name: "milliseconds", At: 40 * time.Minute,
		Series: []string{`workqueue_queue_duration_seconds_bucket{job="s", name="yurtingress", le="0.008"} 0+9x50`, `workqueue_queue_duration_seconds_bucket{job="s", name="yurtingress", le="+Inf"} 0+9x50`},
	},
	{
		Alert: "NodePoolIngressReconcileStuck", Name: "on one replica", At: 20 * time.Minute,
		Series: []string{`workqueue_longest_running_processor_seconds{job="s", name="yurtingress", pod="a"} 0+60x30`, `workqueue_longest_running_processor_seconds{job="s", name="yurtingress", pod="b"} 0x30`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "NodePoolIngressReconcileStuck", Name: "a slow one", At: 20 * time.Minute,
		Series: []string{`workqueue_longest_running_processor_seconds{job="s", name="yurtingress"} 0x17 70x30`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chart), cases)
}
