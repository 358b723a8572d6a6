package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// Reasons counts the objects of a controller by the reason of their condition. A reason that no object has any more stays
// with the value 0, so that graphs show its end.
type Reasons struct {
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[cache.ObjectName]string
}

// NewReasons returns Reasons without objects, whose gauge has the label reason.
func NewReasons(r prometheus.Registerer, name, help string) *Reasons {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"reason"})
	r.MustRegister(gauge)
	return &Reasons{gauge: gauge, reasons: map[cache.ObjectName]string{}}
}

// Set records the present reason of an object.
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

// Clear drops all objects: a replica that does not lead knows none.
func (r *Reasons) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.reasons {
		r.gauge.WithLabelValues(reason).Dec()
	}
	clear(r.reasons)
}
