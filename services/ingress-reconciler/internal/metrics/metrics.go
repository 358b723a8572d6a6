// Package metrics has the collectors of the reconciler, in addition to those of pkg/controller.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the collectors.
type Metrics struct {
	configValid *prometheus.GaugeVec
	writes      *prometheus.CounterVec
	services    *prometheus.GaugeVec
	held        prometheus.Gauge
	conflicts   prometheus.Gauge
	programmed  prometheus.Histogram
}

// New makes the collectors and registers them.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		configValid: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_ingress_config_valid", Help: "1 if the configuration in a ConfigMap is in force, 0 if it is invalid or gone.",
		}, []string{"config_map"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_ingress_writes_total", Help: "Writes, by resource and result: created, updated, deleted, marked, failed.",
		}, []string{"resource", "result"}),
		services: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_ingress_services", Help: "InferenceServices, by the reason of their condition.",
		}, []string{"reason"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_ingress_held_objects", Help: "Objects that other objects have replaced and that wait out the hold.",
		}),
		conflicts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_ingress_conflicts", Help: "Hosts and paths that InferenceServices want and other InferenceServices own.",
		}),
		programmed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_ingress_time_to_programmed_seconds",
			Help:    "Time from the moment that the entry of an InferenceService is ready until all its routes are accepted.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}),
	}
	r.MustRegister(m.configValid, m.writes, m.services, m.held, m.conflicts, m.programmed)
	return m
}

// Held adds to the number of objects that wait out the hold.
func (m *Metrics) Held(change int) { m.held.Add(float64(change)) }

// Conflicting adds to the number of claims that are refused.
func (m *Metrics) Conflicting(change int) { m.conflicts.Add(float64(change)) }

// Programmed records how long a service was ready before it was exposed.
func (m *Metrics) Programmed(after time.Duration) { m.programmed.Observe(after.Seconds()) }

// Configured records the problem of a ConfigMap, empty for none.
func (m *Metrics) Configured(name, problem string) {
	valid := 0.0
	if problem == "" {
		valid = 1
	}
	m.configValid.WithLabelValues(name).Set(valid)
}

// Write counts one write.
func (m *Metrics) Write(resource, result string) { m.writes.WithLabelValues(resource, result).Inc() }

// Moved moves a service from one reason to another. An empty reason means that the service is not counted.
func (m *Metrics) Moved(before, now string) {
	if before == now {
		return
	}
	if before != "" {
		m.services.WithLabelValues(before).Dec()
	}
	if now != "" {
		m.services.WithLabelValues(now).Inc()
	}
}
