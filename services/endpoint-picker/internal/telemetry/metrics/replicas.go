package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/replicas"
)

// RegisterReplicas exports what a pool tells other replicas of the picker, and hears from them.
func RegisterReplicas(r prometheus.Registerer, stats func() replicas.Stats) {
	own := figures[replicas.Stats]{
		gaugeOf("replicas_heard", "Other replicas of the picker whose requests this one hears of.",
			func(s *replicas.Stats) float64 { return float64(s.Connected) }),
		gaugeOf("replicas_hearing", "Other replicas of the picker that hear of the requests of this one.",
			func(s *replicas.Stats) float64 { return float64(s.Readers) }),
		counterOf("replica_disconnects_total", "Other replicas that were disconnected because they read too slowly.",
			func(s *replicas.Stats) float64 { return float64(s.Slow) }),
	}
	told := countersBy("replica_events_total", "Events of requests that replicas told each other, by direction.",
		"direction", map[string]func(s *replicas.Stats) float64{
			"sent":     func(s *replicas.Stats) float64 { return float64(s.Sent) },
			"received": func(s *replicas.Stats) float64 { return float64(s.Received) },
		})
	r.MustRegister(&statsCollector[replicas.Stats]{figures: append(own, told...), stats: stats})
}
