package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/replicas"
)

var (
	descReplicas = newDesc("replicas_heard", "Other replicas of the picker whose requests this one hears of.")
	descReaders  = newDesc("replicas_hearing", "Other replicas of the picker that hear of the requests of this one.")
	descEvents   = newDesc("replica_events_total", "Events of requests that replicas told each other, by direction.", "direction")
	descSlow     = newDesc("replica_disconnects_total", "Other replicas that were disconnected because they read too slowly.")
)

// replicaStats exports what a pool tells other replicas of the picker, and hears from them.
type replicaStats struct{ stats func() replicas.Stats }

// RegisterReplicas exports the figures of a pool.
func RegisterReplicas(r prometheus.Registerer, stats func() replicas.Stats) {
	r.MustRegister(replicaStats{stats})
}

// Describe implements prometheus.Collector.
func (replicaStats) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReplicas, descReaders, descEvents, descSlow} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r replicaStats) Collect(to chan<- prometheus.Metric) {
	s := r.stats()
	to <- prometheus.MustNewConstMetric(descReplicas, prometheus.GaugeValue, float64(s.Connected))
	to <- prometheus.MustNewConstMetric(descReaders, prometheus.GaugeValue, float64(s.Readers))
	to <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(s.Sent), "sent")
	to <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(s.Received), "received")
	to <- prometheus.MustNewConstMetric(descSlow, prometheus.CounterValue, float64(s.Slow))
}
