package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// Reasons counts the objects of a controller by the reason of their condition. A reason that no object has anymore stays in
// the gauge with the value 0, so that graphs show the drop.
type Reasons struct {
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[cache.ObjectName]string
}

// NewReasons registers a gauge with the label reason and returns Reasons without objects.
func NewReasons(r prometheus.Registerer, name, help string) *Reasons {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"reason"})
	r.MustRegister(gauge)
	return &Reasons{gauge: gauge, reasons: map[cache.ObjectName]string{}}
}

// Set records the current reason of an object.
func (r *Reasons) Set(name cache.ObjectName, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.reasons[name]
	if known && before == reason {
		return
	}
	if known {
		r.gauge.WithLabelValues(before).Dec()
	}
	r.gauge.WithLabelValues(reason).Inc()
	r.reasons[name] = reason
}

// Forget drops an object that no longer exists.
func (r *Reasons) Forget(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason, known := r.reasons[name]; known {
		r.gauge.WithLabelValues(reason).Dec()
		delete(r.reasons, name)
	}
}

// Clear drops all objects. A replica calls it when it stops leading.
func (r *Reasons) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.reasons {
		r.gauge.WithLabelValues(reason).Dec()
	}
	clear(r.reasons)
}
