package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/edge-cache/internal/journal"
	"fairlead.dev/services/edge-cache/internal/store"
)

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	RegisterStores(r, []*store.Store{store.New(store.Params{ID: "v1/services"})})
	RegisterDurability(r, func() journal.Status { return journal.Status{} }, func() int { return 1 }, func() int { return 2 })
	m.AddReceivedBytes("v1/services", "wire", 100)
	m.AddReceivedBytes("v1/services", "decoded", 1000)
	m.SetOnline(true)
	m.CountUpstreamRequest("probe", "200")
	m.CountEvent("v1/services", store.Added)
	m.ObserveReprojection("discovery.k8s.io/v1/endpointslices", 3, time.Millisecond)
	m.CountHistoryReset("v1/services")
	m.AddFilteredEndpoints(1, 99)
	m.CountRequest("list", "services", "store")
	m.CountUnconfirmedRead("v1/services")
	m.AddWatches(1)
	m.CountWatchEnd("timeout")
	m.SetUnfollowedReferences("missing", 1)
	golden.Metrics(t, "../../../../docs/reference/metrics/edge-cache.md", r, func(string) string { return "" })
}
