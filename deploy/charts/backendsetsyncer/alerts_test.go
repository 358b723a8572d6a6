package backendsetsyncer_test

import (
	"testing"
	"time"

	"fairlead.dev/deploy/charts/internal/alerts"
)

// cases: the series of a few replicas, one sample each minute, and the labels of the alerts that fire. Two replicas of
// a release are one job; another service of Fairlead is another one.
var cases = []alerts.Case{
	{Alert: "BackendSetSyncerDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{}`}},
	{Alert: "BackendSetSyncerDown", Name: "for a moment", Series: []string{`fairlead_backendset_oci_requests_per_second_limit{job="s"} 10x5`}, At: 12 * time.Minute},
	{Alert: "BackendSetSyncerDown", Name: "one replica is left", Series: []string{`fairlead_backendset_oci_requests_per_second_limit{job="s"} 10x20`}, At: 20 * time.Minute},
	{
		Alert: "BackendSetSyncerNoLeader", Name: "two followers", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="s", namespace="n", pod="b"} 0x20`,
			`fairlead_backendset_oci_requests_per_second_limit{job="s", namespace="n", pod="a"} 10x20`, `fairlead_backendset_oci_requests_per_second_limit{job="s", namespace="n", pod="b"} 10x20`,
		},
		Want: []string{`{job="s", namespace="n"}`},
	},
	{
		Alert: "BackendSetSyncerNoLeader", Name: "a leader and a follower", At: 10 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", namespace="n", pod="a"} 0x20`, `fairlead_leader{job="s", namespace="n", pod="b"} 1x20`,
			`fairlead_backendset_oci_requests_per_second_limit{job="s", namespace="n", pod="a"} 10x20`,
		},
	},
	{
		Alert: "BackendSetSyncerNoLeader", Name: "another service has no leader", At: 10 * time.Minute,
		Series: []string{`fairlead_leader{job="other", namespace="n", pod="a"} 0x20`, `fairlead_backendset_oci_requests_per_second_limit{job="s", namespace="n", pod="b"} 10x20`},
	},
	{
		Alert: "BackendSetSyncerNoLeader", Name: "change of leaders", At: 9 * time.Minute,
		Series: []string{`fairlead_leader{job="s", pod="a"} 1x8 0 1x10`, `fairlead_backendset_oci_requests_per_second_limit{job="s", pod="a"} 10x20`},
	},
	{
		Alert: "BackendSetSyncerConfigInvalid", Name: "on one replica", At: 10 * time.Minute,
		Series: []string{
			`fairlead_backendset_config_valid{job="s", pod="a", config_map="n/c"} 1x20`, `fairlead_backendset_config_valid{job="s", pod="b", config_map="n/c"} 0x20`,
		},
		Want: []string{`{config_map="n/c", job="s"}`},
	},
	{
		Alert: "BackendSetSyncerConfigInvalid", Name: "for a moment", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_config_valid{job="s", config_map="n/c"} 1x7 0x10`},
	},
	{
		Alert: "BackendSetSyncerAuthFailed", Name: "on the leader", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_bindings{job="s", pod="a", reason="AuthFailed"} 3x20`, `fairlead_backendset_bindings{job="s", pod="b", reason="AuthFailed"} 0x20`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerAuthFailed", Name: "once", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_bindings{job="s", reason="AuthFailed"} 0x8 1 0x10`, `fairlead_backendset_bindings{job="s", reason="Synced"} 3x20`},
	},
	{
		Alert: "BackendSetSyncerBindingNotSynced", Name: "by reason", At: 30 * time.Minute,
		Series: []string{
			`fairlead_backendset_bindings{job="s", pod="a", reason="Synced"} 7x40`, `fairlead_backendset_bindings{job="s", pod="a", reason="Conflict"} 2x40`,
			`fairlead_backendset_bindings{job="s", pod="b", reason="Conflict"} 0x40`, `fairlead_backendset_bindings{job="s", pod="a", reason="NotAllowed"} 0x40`,
			`fairlead_backendset_bindings{job="s", pod="a", reason="Pending"} 3x40`, `fairlead_backendset_bindings{job="s", pod="a", reason="AuthFailed"} 3x40`,
			`fairlead_backendset_bindings{job="s", pod="a", reason="CapacityExceeded"} 3x40`, `fairlead_backendset_bindings{job="s", pod="a", reason="RateLimited"} 1x40`,
		},
		Want: []string{`{job="s", reason="Conflict"}`, `{job="s", reason="RateLimited"}`},
	},
	{
		Alert: "BackendSetSyncerBindingNotSynced", Name: "a new binding", At: 25 * time.Minute,
		Series: []string{`fairlead_backendset_bindings{job="s", reason="ServiceInvalid"} 0x20 1x20`},
	},
	{
		Alert: "BackendSetSyncerBindingNotSynced", Name: "the leader changes", At: 30 * time.Minute,
		Series: []string{
			`fairlead_backendset_bindings{job="s", pod="a", reason="Drifting"} 1x24 0x20`, `fairlead_backendset_bindings{job="s", pod="b", reason="Drifting"} 0x24 1x20`,
		},
		Want: []string{`{job="s", reason="Drifting"}`},
	},
	{
		Alert: "BackendSetSyncerPendingLong", Name: "for half an hour", At: 30 * time.Minute,
		Series: []string{
			`fairlead_backendset_behind_since_timestamp_seconds{job="s", pod="a", load_balancer="l", backend_set="chat"} 60x40`,
			`fairlead_backendset_behind_since_timestamp_seconds{job="s", pod="a", load_balancer="l", backend_set="embed"} 60x9 _x20 1740x10`,
		},
		Want: []string{`{backend_set="chat", job="s", load_balancer="l"}`},
	},
	{
		Alert: "BackendSetSyncerPendingLong", Name: "a roll-out", At: 30 * time.Minute,
		Series: []string{`fairlead_backendset_behind_since_timestamp_seconds{job="s", load_balancer="l", backend_set="chat"} 60+60x40`},
	},
	{
		Alert: "BackendSetSyncerWebhookCertificateExpiring", Name: "in an hour", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_webhook_certificate_expiry_timestamp_seconds{job="s", pod="a"} 3600x30`, `fairlead_backendset_webhook_certificate_expiry_timestamp_seconds{job="s", pod="b"} 9000000x30`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerWebhookCertificateExpiring", Name: "none yet", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_webhook_certificate_expiry_timestamp_seconds{job="s"} 0x30`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerWebhookCertificateExpiring", Name: "in a month", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_webhook_certificate_expiry_timestamp_seconds{job="s"} 2592000x30`},
	},
	{
		Alert: "BackendSetSyncerCapacityExceeded", Name: "a full load balancer", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_bindings{job="s", pod="a", reason="CapacityExceeded"} 2x20`, `fairlead_backendset_bindings{job="s", pod="b", reason="CapacityExceeded"} 0x20`},
		Want:   []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerCapacityExceeded", Name: "until others have drained", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_bindings{job="s", reason="CapacityExceeded"} 1x7 0x10`},
	},
	{
		Alert: "BackendSetSyncerGatewayNotProgrammed", Name: "a lost record", At: 20 * time.Minute,
		Series: []string{
			`fairlead_backendset_gateways{job="s", pod="a", load_balancer="l", reason="RecordLost"} 1x30`, `fairlead_backendset_gateways{job="s", pod="a", load_balancer="l", reason="Programmed"} 4x30`,
			`fairlead_backendset_gateways{job="s", pod="b", load_balancer="l", reason="RecordLost"} 0x30`,
		},
		Want: []string{`{job="s", load_balancer="l", reason="RecordLost"}`},
	},
	{
		Alert: "BackendSetSyncerGatewayNotProgrammed", Name: "a new Gateway", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_gateways{job="s", load_balancer="l", reason="Pending"} 1x5 0x30`, `fairlead_backendset_gateways{job="s", load_balancer="l", reason="Programmed"} 0x5 1x30`},
	},
	{
		Alert: "BackendSetSyncerRouteFailing", Name: "work requests fail", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_routes{job="s", load_balancer="l", reason="WorkRequestFailed"} 3x30`},
		Want:   []string{`{job="s", load_balancer="l", reason="WorkRequestFailed"}`},
	},
	{
		Alert: "BackendSetSyncerRouteFailing", Name: "mistakes of tenants", At: 20 * time.Minute,
		Series: []string{`fairlead_backendset_routes{job="s", load_balancer="l", reason="UnsupportedValue"} 3x30`, `fairlead_backendset_routes{job="s", load_balancer="l", reason="HostConflict"} 3x30`},
	},
	{
		Alert: "BackendSetSyncerGatewayCapacityExceeded", Name: "routes without a set", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_routes{job="s", load_balancer="l", reason="CapacityExceeded"} 2x20`, `fairlead_backendset_listeners{job="s", load_balancer="l", reason="CapacityExceeded"} 0x20`},
		Want:   []string{`{job="s", load_balancer="l"}`},
	},
	{
		Alert: "BackendSetSyncerGatewayCapacityExceeded", Name: "too many listeners", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_listeners{job="s", load_balancer="l", reason="CapacityExceeded"} 1x20`},
		Want:   []string{`{job="s", load_balancer="l"}`},
	},
	{
		Alert: "BackendSetSyncerGatewayCapacityExceeded", Name: "for a moment", At: 10 * time.Minute,
		Series: []string{`fairlead_backendset_routes{job="s", load_balancer="l", reason="CapacityExceeded"} 2x7 0x20`},
	},
	{
		Alert: "BackendSetSyncerThrottled", Name: "the limit stays low", At: 2 * time.Hour,
		Series: []string{
			`fairlead_leader{job="s", instance="1"} 1x130`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="1"} 10x60 2.5x70`,
			`fairlead_leader{job="s", instance="2"} 0x130`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="2"} 10x130`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerThrottled", Name: "429 again and again", At: 30 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", instance="1"} 1x40`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="1"} 8x40`,
			`fairlead_backendset_oci_request_seconds_count{job="s", instance="1", operation="GetLoadBalancer", code="TooManyRequests"} 0+1x40`,
			`fairlead_backendset_oci_request_seconds_count{job="s", instance="1", operation="GetLoadBalancer", code="OK"} 0+100x40`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerThrottled", Name: "a former leader", At: 2 * time.Hour,
		Series: []string{
			`fairlead_leader{job="s", instance="1"} 0x130`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="1"} 2.5x130`,
			`fairlead_leader{job="s", instance="2"} 1x130`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="2"} 10x130`,
		},
	},
	{
		Alert: "BackendSetSyncerThrottled", Name: "a few 429", At: 30 * time.Minute,
		Series: []string{
			`fairlead_leader{job="s", instance="1"} 1x40`, `fairlead_backendset_oci_requests_per_second_limit{job="s", instance="1"} 10x20 2.5x5 10x15`,
			`fairlead_backendset_oci_request_seconds_count{job="s", instance="1", operation="GetLoadBalancer", code="TooManyRequests"} 0x20 3x20`,
			`fairlead_backendset_oci_request_seconds_count{job="s", instance="1", operation="GetLoadBalancer", code="IncorrectState"} 0+1x40`,
		},
	},
	{
		Alert: "BackendSetSyncerWorkRequestsFailing", Name: "every ten minutes", At: 90 * time.Minute,
		Series: []string{
			`fairlead_backendset_work_request_seconds_count{job="s", operation="UpdateBackendSet", result="failed"} 1x10 2x10 3x10 4x10 5x10 6x10 7x10 8x10 9x10 10x10`,
			`fairlead_backendset_work_request_seconds_count{job="s", operation="UpdateBackendSet", result="succeeded"} 0+1x100`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerWorkRequestsFailing", Name: "one failed and one was lost", At: 40 * time.Minute,
		Series: []string{
			`fairlead_backendset_work_request_seconds_count{job="s", operation="UpdateBackendSet", result="failed"} 0x25 1x30`,
			`fairlead_backendset_work_request_seconds_count{job="s", operation="CreateBackend", result="lost"} 0x25 1x30`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerWorkRequestsFailing", Name: "one failed", At: 40 * time.Minute,
		Series: []string{
			`fairlead_backendset_work_request_seconds_count{job="s", operation="UpdateBackendSet", result="failed"} 0x25 1x30`,
			`fairlead_backendset_work_request_seconds_count{job="s", operation="UpdateBackendSet", result="succeeded"} 0+1x60`,
		},
	},
	{
		Alert: "BackendSetSyncerPropagationSlow", Name: "minutes", At: 40 * time.Minute,
		Series: []string{
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="60"} 0+9x50`, `fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="300"} 0+10x50`,
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="+Inf"} 0+10x50`,
		},
		Want: []string{`{job="s"}`},
	},
	{
		Alert: "BackendSetSyncerPropagationSlow", Name: "slow health checks", At: 40 * time.Minute,
		Series: []string{
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="8"} 0+9x50`, `fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="+Inf"} 0+9x50`,
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="in_service", le="60"} 0x50`, `fairlead_backendset_propagation_seconds_bucket{job="s", stage="in_service", le="300"} 0+9x50`,
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="in_service", le="+Inf"} 0+9x50`,
		},
	},
	{
		Alert: "BackendSetSyncerPropagationSlow", Name: "a moment ago", At: 35 * time.Minute,
		Series: []string{
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="60"} 0x50`, `fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="300"} 0x30 9x20`,
			`fairlead_backendset_propagation_seconds_bucket{job="s", stage="written", le="+Inf"} 0x30 9x20`,
		},
	},
	{
		Alert: "BackendSetSyncerReconcileErrors", Name: "one of five", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="backendsetbinding", result="success"} 0+8x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="backendsetbinding", result="error"} 0+2x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="readinessgate", result="success"} 0+8x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="readinessgate", result="error"} 0x70`,
		},
		Want: []string{`{controller="backendsetbinding", job="s"}`},
	},
	{
		Alert: "BackendSetSyncerReconcileErrors", Name: "requeues and conflicts", At: time.Hour,
		Series: []string{
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="readinessgate", result="requeue"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="readinessgate", result="conflict"} 0+5x70`,
			`fairlead_controller_reconcile_duration_seconds_count{job="s", controller="readinessgate", result="error"} 0+1x70`,
		},
	},
	{
		Alert: "BackendSetSyncerReconcileErrors", Name: "another controller", At: time.Hour,
		Series: []string{`fairlead_controller_reconcile_duration_seconds_count{job="other", controller="inferenceservice", result="error"} 0+8x70`},
	},
	{
		Alert: "BackendSetSyncerQueueDeep", Name: "it does not drain", At: 30 * time.Minute,
		Series: []string{`workqueue_depth{job="s", name="readinessgate", pod="a"} 150x40`, `workqueue_depth{job="s", name="readinessgate", pod="b"} 0x40`},
		Want:   []string{`{job="s", name="readinessgate"}`},
	},
	{
		Alert: "BackendSetSyncerQueueDeep", Name: "a new leader", At: 30 * time.Minute,
		Series: []string{`workqueue_depth{job="s", name="backendsetbinding"} 0x25 2000x20`, `workqueue_depth{job="other", name="inferenceservice"} 2000x40`},
	},
	{
		Alert: "BackendSetSyncerQueueSlow", Name: "half of a minute", At: 40 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="s", name="backendsetbinding", le="8"} 0+1x50`,
			`workqueue_queue_duration_seconds_bucket{job="s", name="backendsetbinding", le="32"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="s", name="backendsetbinding", le="+Inf"} 0+9x50`,
		},
		Want: []string{`{job="s", name="backendsetbinding"}`},
	},
	{
		Alert: "BackendSetSyncerQueueSlow", Name: "milliseconds", At: 40 * time.Minute,
		Series: []string{
			`workqueue_queue_duration_seconds_bucket{job="s", name="backendsetbinding", le="0.008"} 0+9x50`,
			`workqueue_queue_duration_seconds_bucket{job="s", name="backendsetbinding", le="+Inf"} 0+9x50`,
		},
	},
	{
		Alert: "BackendSetSyncerReconcileStuck", Name: "on one replica", At: 20 * time.Minute,
		Series: []string{
			`workqueue_longest_running_processor_seconds{job="s", name="backendsetbinding", pod="a"} 0+60x30`,
			`workqueue_longest_running_processor_seconds{job="s", name="backendsetbinding", pod="b"} 0x30`,
		},
		Want: []string{`{job="s", name="backendsetbinding"}`},
	},
	{
		Alert: "BackendSetSyncerReconcileStuck", Name: "a slow one", At: 20 * time.Minute,
		Series: []string{`workqueue_longest_running_processor_seconds{job="s", name="backendsetbinding"} 0x17 70x30`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chart), cases)
}
