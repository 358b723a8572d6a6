// Package metrics provides the metrics of the cache.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/edge-cache/internal/store"
)

// Metrics contains the collectors. All methods are safe for concurrent use.
type Metrics struct {
	received         *prometheus.CounterVec
	requests         *prometheus.CounterVec
	online           prometheus.Gauge
	events           *prometheus.CounterVec
	reprojected      *prometheus.CounterVec
	reprojectionTime prometheus.Histogram
	historyResets    *prometheus.CounterVec
	endpoints        *prometheus.CounterVec
	served           *prometheus.CounterVec
	unconfirmed      *prometheus.CounterVec
	watches          prometheus.Gauge
	watchEnds        *prometheus.CounterVec
	unfollowed       *prometheus.GaugeVec
}

// reprojectionBuckets are the upper bounds of the time of a new projection, in seconds. The goal for the move of one node is 50 ms.
var reprojectionBuckets = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2}

// New creates and registers the collectors.
func New(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_edgecache_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_edgecache_" + name, Help: help})
	}
	m := &Metrics{
		received: counter("upstream_received_bytes_total",
			"Bytes of bodies from the API server, as sent (wire) and after decompression (decoded).", "source", "kind"),
		requests: counter("upstream_requests_total", "Requests to the API server, by status code, or error.", "source", "result"),
		online:   gauge("upstream_online", "1 while the API server answers."),
		events:   counter("store_events_total", "Events that clients could see.", "store", "type"),
		reprojected: counter("refiltered_objects_total",
			"Objects that were projected again, because the pool, a hold or an address changed.", "store"),
		reprojectionTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_edgecache_refilter_duration_seconds", Help: "Time to project again all objects that a change affects.",
			Buckets: reprojectionBuckets,
		}),
		historyResets: counter("store_history_resets_total",
			"Times that clients had to list again: another cluster, or one that went back in time.", "store"),
		endpoints: counter("filtered_endpoints_total", "Endpoints that the filter saw: kept or dropped.", "result"),
		served: counter("served_requests_total", "Requests of the client, by where the answer came from: store, kept, upstream.",
			"verb", "resource", "source"),
		unconfirmed: counter("unconfirmed_reads_total",
			"Lists of the newest state that the API server did not confirm: it is offline, or its watch is behind.", "resource"),
		watches:   gauge("watches", "Open watches of the client."),
		watchEnds: counter("watches_ended_total", "Ended watches, by reason: timeout, client, slow, expired, denied, error.", "reason"),
		unfollowed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_edgecache_unfollowed_references",
			Help: "Names of Secrets and ConfigMaps in objects that lead the controller to none, by problem: other_namespace, too_many, " +
				"namespace_not_cached, missing, unreadable.",
		}, []string{"problem"}),
	}
	r.MustRegister(m.received, m.requests, m.online, m.events, m.reprojected, m.reprojectionTime, m.historyResets, m.endpoints, m.served,
		m.unconfirmed, m.watches, m.watchEnds, m.unfollowed)
	return m
}

// AddReceivedBytes counts bytes from the API server, of the form wire or decoded.
func (m *Metrics) AddReceivedBytes(source, form string, n int) {
	m.received.WithLabelValues(source, form).Add(float64(n))
}

// SetOnline records whether the API server answers.
func (m *Metrics) SetOnline(online bool) { //nolint:revive // a state, not a choice
	value := 0.0
	if online {
		value = 1
	}
	m.online.Set(value)
}

// CountUpstreamRequest counts a request to the API server.
func (m *Metrics) CountUpstreamRequest(source, result string) {
	m.requests.WithLabelValues(source, result).Inc()
}

// CountEvent counts an event.
func (m *Metrics) CountEvent(id string, t store.EventType) {
	m.events.WithLabelValues(id, string(t)).Inc()
}

// ObserveReprojection records new projections.
func (m *Metrics) ObserveReprojection(id string, affected int, took time.Duration) {
	m.reprojected.WithLabelValues(id).Add(float64(affected))
	m.reprojectionTime.Observe(took.Seconds())
}

// CountHistoryReset counts a reset of a history.
func (m *Metrics) CountHistoryReset(id string) { m.historyResets.WithLabelValues(id).Inc() }

// AddFilteredEndpoints counts endpoints.
func (m *Metrics) AddFilteredEndpoints(kept, dropped int) {
	m.endpoints.WithLabelValues("kept").Add(float64(kept))
	m.endpoints.WithLabelValues("dropped").Add(float64(dropped))
}

// CountRequest counts a request of the client.
func (m *Metrics) CountRequest(verb, resource, source string) {
	m.served.WithLabelValues(verb, resource, source).Inc()
}

// CountUnconfirmedRead counts a list of the newest state that may be older.
func (m *Metrics) CountUnconfirmedRead(resource string) {
	m.unconfirmed.WithLabelValues(resource).Inc()
}

// AddWatches counts open watches.
func (m *Metrics) AddWatches(delta int) { m.watches.Add(float64(delta)) }

// CountWatchEnd counts an ended watch.
func (m *Metrics) CountWatchEnd(reason string) { m.watchEnds.WithLabelValues(reason).Inc() }

// SetUnfollowedReferences records the number of references that lead to no object.
func (m *Metrics) SetUnfollowedReferences(problem string, n int) {
	m.unfollowed.WithLabelValues(problem).Set(float64(n))
}

// RegisterStores registers the sizes of stores. They are measured when Prometheus asks.
func RegisterStores(r prometheus.Registerer, stores []*store.Store) {
	for _, s := range stores {
		gauge := func(name, help string, value func() float64) {
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "fairlead_edgecache_store_" + name, Help: help, ConstLabels: prometheus.Labels{"store": s.ID()},
			}, value))
		}
		gauge("objects", "Objects in a store.", func() float64 {
			objects, _ := s.MemorySize()
			return float64(objects)
		})
		gauge("bytes", "Bytes of the encoded objects in a store.", func() float64 {
			_, bytes := s.MemorySize()
			return float64(bytes)
		})
		gauge("resource_version", "Upstream resourceVersion of a store; 0: not synced.", func() float64 { return float64(s.Position()) })
	}
}
