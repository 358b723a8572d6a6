package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// AdjustmentCounts says what is shown differently from what the API server says.
type AdjustmentCounts interface {
	HeldEndpoints() int
	ReplacedAddresses() int
}

// durabilityCollector measures the journal and the adjuster when Prometheus asks.
type durabilityCollector struct {
	status   func() journal.Status
	adjuster AdjustmentCounts

	degraded, unsynced, slowest, log, snapshot, syncs, compactions, failures, held, replaced *prometheus.Desc
}

// RegisterDurability registers the state of the journal and of the adjuster.
func RegisterDurability(r prometheus.Registerer, status func() journal.Status, a AdjustmentCounts) {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_edgecache_"+name, help, nil, nil)
	}
	r.MustRegister(&durabilityCollector{
		status: status, adjuster: a,
		degraded: describe("journal_degraded",
			"1 while changes are not written to disk: it is full, read-only or broken. The cache serves from memory, and repairs the "+
				"journal by itself."),
		unsynced: describe("journal_unsynced_seconds", "Age of the oldest change that a power loss would lose now."),
		slowest: describe("journal_slowest_sync_seconds",
			"Longest time since the start from a change until it was safe from a power loss. The goal is 0.2 s."),
		log:         describe("journal_log_bytes", "Bytes of the logs since the last snapshot."),
		snapshot:    describe("journal_snapshot_bytes", "Bytes of the last snapshot."),
		syncs:       describe("journal_syncs_total", "Completed fsyncs of the log."),
		compactions: describe("journal_compactions_total", "Snapshots written."),
		failures:    describe("journal_failures_total", "Failed writes and fsyncs of the log."),
		held: describe("held_endpoints",
			"Endpoints that are shown as ready although the API server says otherwise, because their node is silent or was a short time "+
				"ago."),
		replaced: describe("replaced_addresses", "Addresses of pods that are replaced by live ones, because the node restarted."),
	})
}

// Describe implements prometheus.Collector.
func (d *durabilityCollector) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(d, c) }

// Collect implements prometheus.Collector.
func (d *durabilityCollector) Collect(c chan<- prometheus.Metric) {
	s := d.status()
	gauge := func(desc *prometheus.Desc, value float64) {
		c <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	counter := func(desc *prometheus.Desc, value uint64) {
		c <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value))
	}
	degraded := 0.0
	if s.Degraded {
		degraded = 1
	}
	gauge(d.degraded, degraded)
	gauge(d.unsynced, s.Unsynced.Seconds())
	gauge(d.slowest, s.SlowestSync.Round(time.Microsecond).Seconds())
	gauge(d.log, float64(s.LogBytes))
	gauge(d.snapshot, float64(s.SnapshotBytes))
	counter(d.syncs, s.Syncs)
	counter(d.compactions, s.Compactions)
	counter(d.failures, s.Failures)
	gauge(d.held, float64(d.adjuster.HeldEndpoints()))
	gauge(d.replaced, float64(d.adjuster.ReplacedAddresses()))
}
