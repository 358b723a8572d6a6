package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/decisionapi"
)

// Limits of the decision API, as values of a label.
const (
	limitStreams     = "streams"
	limitBytes       = "bytes"
	limitConnections = "connections"
)

var (
	descDecisionsOpen = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "decisions_open"),
		"Picks of the decision API without an outcome. They are among the open streams, whose limit is --max-streams.", nil, nil)
	descDecisionsLimited = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "decisions_limited_total"),
		"Calls of the decision API that were refused, and connections that were closed, because their client had more than its share: of streams, of bytes, or of bytes at a connection.", []string{labelLimit}, nil)
)

// Decisions exports what becomes of the picks of the decision API.
type Decisions struct{ results map[string]prometheus.Counter }

// NewDecisions creates and registers the counters, for pickers that serve the decision API.
func NewDecisions(r prometheus.Registerer) *Decisions {
	results := newCounterVec("decision_outcomes_total",
		"Reports about picks of the decision API by event, and picks without an outcome: expired, gone (the client did not take the answer), stopped.", "event")
	r.MustRegister(results)
	return &Decisions{results: newCounters(results, decisionapi.Results()...)}
}

// ObserveDecision counts a result.
func (d *Decisions) ObserveDecision(result string) { d.results[result].Inc() }

// decisions exports what clients of the decision API use of the process.
type decisions struct{ stats func() decisionapi.Stats }

// RegisterDecisions exports the figures of the decision API.
func RegisterDecisions(r prometheus.Registerer, stats func() decisionapi.Stats) {
	r.MustRegister(decisions{stats})
}

// Describe implements prometheus.Collector.
func (decisions) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDecisionsOpen, descDecisionsLimited} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (d decisions) Collect(to chan<- prometheus.Metric) {
	s := d.stats()
	to <- prometheus.MustNewConstMetric(descDecisionsOpen, prometheus.GaugeValue, float64(s.Open))
	for limit, n := range map[string]int64{limitStreams: s.RefusedPicks, limitBytes: s.RefusedBytes, limitConnections: s.RefusedConnections} {
		to <- prometheus.MustNewConstMetric(descDecisionsLimited, prometheus.CounterValue, float64(n), limit)
	}
}
