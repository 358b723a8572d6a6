// Package metrics counts what the reconciler does to objects, beside what pkg/controller counts of its work.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the collectors.
type Metrics struct {
	configValid *prometheus.GaugeVec
	writes      *prometheus.CounterVec
	services    *prometheus.GaugeVec
}

// New makes the collectors and registers them.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		configValid: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_ingress_config_valid", Help: "1 if what a ConfigMap says is in force, 0 if it cannot be read.",
		}, []string{"config_map"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_ingress_writes_total", Help: "Objects that were written, by resource and what was done: created, updated, deleted, marked, failed.",
		}, []string{"resource", "result"}),
		services: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_ingress_services", Help: "InferenceServices, by the reason of their condition.",
		}, []string{"reason"}),
	}
	r.MustRegister(m.configValid, m.writes, m.services)
	return m
}

// Configured takes what is wrong with a ConfigMap, empty for nothing.
func (m *Metrics) Configured(name, problem string) {
	valid := 0.0
	if problem == "" {
		valid = 1
	}
	m.configValid.WithLabelValues(name).Set(valid)
}

// Write counts one write.
func (m *Metrics) Write(resource, result string) { m.writes.WithLabelValues(resource, result).Inc() }

// Moved takes that a service has another reason than before; an empty one is that of no service.
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
