package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// RegisterDurability registers the state of the journal, and the numbers of held endpoints and of replaced addresses. They are measured
// when Prometheus asks.
func RegisterDurability(r prometheus.Registerer, status func() journal.Status, held, replaced func() int) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_edgecache_" + name, Help: help}, value))
	}
	counter := func(name, help string, value func() uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_edgecache_" + name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("journal_degraded",
		"1 while changes are not written to disk: it is full, read-only or broken. The cache serves from memory, and repairs the "+
			"journal by itself.",
		func() float64 {
			if status().Degraded {
				return 1
			}
			return 0
		})
	gauge("journal_unsynced_seconds", "Age of the oldest change that a power loss would lose now.",
		func() float64 { return status().Unsynced.Seconds() })
	gauge("journal_slowest_sync_seconds",
		"Longest time since the start from a change until it was safe from a power loss. The goal is 0.2 s.",
		func() float64 { return status().SlowestSync.Round(time.Microsecond).Seconds() })
	gauge("journal_log_bytes", "Bytes of the logs since the last snapshot.", func() float64 { return float64(status().LogBytes) })
	gauge("journal_snapshot_bytes", "Bytes of the last snapshot.", func() float64 { return float64(status().SnapshotBytes) })
	counter("journal_syncs_total", "Completed fsyncs of the log.", func() uint64 { return status().Syncs })
	counter("journal_compactions_total", "Snapshots written.", func() uint64 { return status().Compactions })
	counter("journal_failures_total", "Failed writes and fsyncs of the log.", func() uint64 { return status().Failures })
	gauge("held_endpoints",
		"Endpoints that are shown as ready although the API server says otherwise, because their node is silent or was a short time "+
			"ago.",
		func() float64 { return float64(held()) })
	gauge("replaced_addresses", "Addresses of pods that are replaced by live ones, because the node restarted.",
		func() float64 { return float64(replaced()) })
}
