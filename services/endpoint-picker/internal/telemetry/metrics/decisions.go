package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/decision"
)

// Limits of the decision API, as values of a label.
const (
	limitOpen  = "open"
	limitBytes = "bytes"
)

var (
	descDecisionsOpen = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "decisions_open"),
		"Picks of the decision API without an outcome. The limit is --decision-max-open.", nil, nil)
	descDecisionBytes = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "decision_bytes"),
		"Bytes of calls and open picks of the decision API in memory. The limit is --max-buffered-bytes.", nil, nil)
	descDecisionsLimited = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "decisions_limited_total"),
		"Calls of the decision API that were refused because of a limit, by limit.", []string{labelLimit}, nil)
)

// Decisions exports what becomes of the picks of the decision API.
type Decisions struct{ results map[string]prometheus.Counter }

// NewDecisions creates and registers the counters, for pickers that serve the decision API.
func NewDecisions(r prometheus.Registerer) *Decisions {
	results := counters("decision_outcomes_total",
		"Reports about picks of the decision API by event, and picks without an outcome: expired, gone (the client did not take the answer), stopped.", "event")
	r.MustRegister(results)
	return &Decisions{results: children(results, decision.Results()...)}
}

// ObserveDecision counts a result.
func (d *Decisions) ObserveDecision(result string) { d.results[result].Inc() }

// decisions exports what clients of the decision API use of the process.
type decisions struct{ stats func() decision.Stats }

// RegisterDecisions exports the figures of the decision API.
func RegisterDecisions(r prometheus.Registerer, stats func() decision.Stats) {
	r.MustRegister(decisions{stats})
}

// Describe implements prometheus.Collector.
func (decisions) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDecisionsOpen, descDecisionBytes, descDecisionsLimited} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (d decisions) Collect(to chan<- prometheus.Metric) {
	s := d.stats()
	to <- prometheus.MustNewConstMetric(descDecisionsOpen, prometheus.GaugeValue, float64(s.Open))
	to <- prometheus.MustNewConstMetric(descDecisionBytes, prometheus.GaugeValue, float64(s.Bytes))
	to <- prometheus.MustNewConstMetric(descDecisionsLimited, prometheus.CounterValue, float64(s.RefusedPicks), limitOpen)
	to <- prometheus.MustNewConstMetric(descDecisionsLimited, prometheus.CounterValue, float64(s.RefusedBytes), limitBytes)
}
