package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/edge-cache/internal/journal"
	"fairlead.dev/services/edge-cache/internal/store"
)

type source struct{}

func (source) ID() string                       { return "v1/services" }
func (source) MemorySize() (objects, bytes int) { return 3, 4096 }
func (source) Position() uint64                 { return 42 }

type adjuster struct{}

func (adjuster) Held() int     { return 1 }
func (adjuster) Replaced() int { return 2 }

func TestREADMEHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	WatchStores(r, []Source{source{}})
	WatchDurability(r, func() journal.Status { return journal.Status{} }, adjuster{})
	m.Received("v1/services", 100, 1000)
	m.Online(true)
	m.Request("probe", "200")
	m.CountEvent("v1/services", store.Added)
	m.ObserveReprojection("discovery.k8s.io/v1/endpointslices", 3, time.Millisecond)
	m.CountHistoryReset("v1/services")
	m.Filtered(1, 99)
	m.Served("list", "services", "store")
	m.Unconfirmed("v1/services")
	m.Watching(1)
	m.WatchEnded("timeout")
	m.Unfollowed("missing", 1)
	golden.Metrics(t, "../../README.md", r, func(string) string { return "" })
}
