package edgecache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/deploy/charts/internal/alerts"
	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// cases: the series of a few caches, one sample each minute, and the labels of the alerts that fire.
var cases = []alerts.Case{
	{Alert: "EdgeCacheDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{}`}},
	{Alert: "EdgeCacheDown", Name: "an offline cache", At: 10 * time.Minute, Series: []string{`fairlead_edgecache_upstream_online{pod="a"} 0x20`}},
	{
		Alert: "EdgeCacheOffline", Name: "one of two", At: 30 * time.Minute,
		Series: []string{`fairlead_edgecache_upstream_online{pod="a"} 0x40`, `fairlead_edgecache_upstream_online{pod="b"} 1x40`}, Want: []string{`{pod="a"}`},
	},
	{Alert: "EdgeCacheOffline", Name: "for ten minutes", At: 30 * time.Minute, Series: []string{`fairlead_edgecache_upstream_online{pod="a"} 1x20 0x9 1x20`}},
	{
		Alert: "EdgeCacheKindNotRead", Name: "a right is missing", At: 40 * time.Minute,
		Series: []string{
			`fairlead_edgecache_upstream_online{pod="a"} 1x50`, `fairlead_edgecache_upstream_requests_total{pod="a", source="v1/secrets", result="403"} 0+3x50`,
			`fairlead_edgecache_upstream_requests_total{pod="a", source="v1/services", result="200"} 0+3x50`,
		},
		Want: []string{`{pod="a", source="v1/secrets"}`},
	},
	{
		Alert: "EdgeCacheKindNotRead", Name: "offline, and an API server that is not ready", At: 40 * time.Minute,
		Series: []string{
			`fairlead_edgecache_upstream_online{pod="a"} 0x50`, `fairlead_edgecache_upstream_requests_total{pod="a", source="v1/secrets", result="error"} 0+3x50`,
			`fairlead_edgecache_upstream_online{pod="b"} 1x50`, `fairlead_edgecache_upstream_requests_total{pod="b", source="probe", result="500"} 0+12x50`,
		},
	},
	{
		Alert: "EdgeCacheUnfollowedReferences", Name: "a Secret of another namespace", At: 30 * time.Minute,
		Series: []string{`fairlead_edgecache_unfollowed_references{pod="a", problem="other_namespace"} 2x40`, `fairlead_edgecache_unfollowed_references{pod="a", problem="missing"} 0x40`},
		Want:   []string{`{pod="a", problem="other_namespace"}`},
	},
	{Alert: "EdgeCacheUnfollowedReferences", Name: "until a certificate is issued", At: 30 * time.Minute, Series: []string{`fairlead_edgecache_unfollowed_references{pod="a", problem="missing"} 0x18 1x9 0x20`}},
	{Alert: "EdgeCacheJournalDegraded", Name: "full disk", At: 20 * time.Minute, Series: []string{`fairlead_edgecache_journal_degraded{pod="a"} 1x30`}, Want: []string{`{pod="a"}`}},
	{Alert: "EdgeCacheJournalDegraded", Name: "repaired", At: 20 * time.Minute, Series: []string{`fairlead_edgecache_journal_degraded{pod="a"} 1x15 0x15`}},
	{
		Alert: "EdgeCacheUnconfirmedReads", Name: "a watch that is behind", At: 40 * time.Minute,
		Series: []string{`fairlead_edgecache_upstream_online{pod="a"} 1x50`, `fairlead_edgecache_unconfirmed_reads_total{pod="a", resource="services"} 0+1x50`},
		Want:   []string{`{pod="a", resource="services"}`},
	},
	{
		Alert: "EdgeCacheUnconfirmedReads", Name: "offline", At: 40 * time.Minute,
		Series: []string{`fairlead_edgecache_upstream_online{pod="a"} 0x50`, `fairlead_edgecache_unconfirmed_reads_total{pod="a", resource="services"} 0+1x50`},
	},
	{
		Alert: "EdgeCacheSlowClient", Name: "again and again", At: 50 * time.Minute,
		Series: []string{`fairlead_edgecache_watches_ended_total{pod="a", reason="slow"} 0+1x60`, `fairlead_edgecache_watches_ended_total{pod="a", reason="timeout"} 0+1x60`},
		Want:   []string{`{pod="a", reason="slow"}`},
	},
	{Alert: "EdgeCacheSlowClient", Name: "once", At: 50 * time.Minute, Series: []string{`fairlead_edgecache_watches_ended_total{pod="a", reason="slow"} 0x30 1x30`}},
	{
		Alert: "EdgeCacheHeldEndpoints", Name: "a silent kubelet", At: time.Hour,
		Series: []string{`fairlead_edgecache_held_endpoints{pod="a"} 3x70`, `fairlead_edgecache_upstream_online{pod="a"} 1x70`}, Want: []string{`{pod="a"}`},
	},
	{Alert: "EdgeCacheHeldEndpoints", Name: "an outage", At: time.Hour, Series: []string{`fairlead_edgecache_held_endpoints{pod="a"} 3x70`, `fairlead_edgecache_upstream_online{pod="a"} 0x70`}},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chartPath()), cases)
}

// TestNetworkPolicy lets clients reach the controller, and nobody the ports that it does not list. Ports are numbers: the cache is an init container.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	assert.Empty(t, objects.All[networkingv1.NetworkPolicy](t, objects.Render(t, chartPath(), values(nil))))
	policy := objects.The[networkingv1.NetworkPolicy](t, objects.Render(t, chartPath(), values(helm.Values{
		"networkPolicy": helm.Values{"enabled": true, "metrics": helm.Values{"from": []any{helm.Values{"podSelector": helm.Values{}}}}},
	})))
	var ports []int32
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.IntVal)
		}
	}
	assert.Equal(t, []int32{9090, 8081, 8000, 8080}, ports)
	assert.NotEmpty(t, policy.Spec.Ingress[0].From)
	require.Len(t, policy.Spec.Egress, 3)
	assert.Equal(t, int32(443), policy.Spec.Egress[0].Ports[0].Port.IntVal)
	assert.Equal(t, int32(53), policy.Spec.Egress[1].Ports[0].Port.IntVal)
	assert.NotNil(t, policy.Spec.Egress[2].To[0].NamespaceSelector)
}
