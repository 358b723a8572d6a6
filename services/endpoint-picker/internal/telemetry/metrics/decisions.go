package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/decisionapi"
)

// Decisions exports what becomes of the picks of the decision API.
type Decisions struct{ results map[string]prometheus.Counter }

// NewDecisions creates and registers the counters, for pickers that serve the decision API.
func NewDecisions(r prometheus.Registerer) *Decisions {
	return &Decisions{results: newCounters(ownMetrics(r), "decision_outcomes_total", "Reports about picks of the decision API by event, "+
		"and picks without an outcome: expired, gone (the client did not take the answer), stopped.", "event", decisionapi.Results()...)}
}

// ObserveDecision counts a result.
func (d *Decisions) ObserveDecision(result string) { d.results[result].Inc() }

// RegisterDecisions exports what clients of the decision API use of the process.
func RegisterDecisions(r prometheus.Registerer, stats func() decisionapi.Stats) {
	limited := countersBy("decisions_limited_total", "Calls of the decision API that were refused, and connections that were closed, "+
		"because their client had more than its share: of streams, of bytes, or of bytes at a connection.",
		labelLimit, map[string]func(s *decisionapi.Stats) float64{
			"streams":     func(s *decisionapi.Stats) float64 { return float64(s.RefusedPicks) },
			"bytes":       func(s *decisionapi.Stats) float64 { return float64(s.RefusedBytes) },
			"connections": func(s *decisionapi.Stats) float64 { return float64(s.RefusedConnections) },
		})
	open := gaugeOf("decisions_open",
		"Picks of the decision API without an outcome. They are among the open streams, whose limit is --max-streams.",
		func(s *decisionapi.Stats) float64 { return float64(s.Open) })
	r.MustRegister(&statsCollector[decisionapi.Stats]{figures: append(limited, open), stats: stats})
}
