// Package metrics provides metrics for writes and for the state of services. pkg/controller provides the metrics of the work queue.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/controller"
)

// programmedBuckets are the upper bounds of the time to Programmed, in seconds. Conditions have a resolution of one second, so the
// first bound, half a second, means that the times are equal. A slow cloud load balancer takes a minute. The last bound is the
// default of holdSeconds.
var programmedBuckets = []float64{0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300}

// Metrics contains the collectors. All methods are safe for concurrent use.
type Metrics struct {
	configValid *prometheus.GaugeVec
	writes      *prometheus.CounterVec
	reasons     *controller.Reasons
	programmed  prometheus.Histogram
	heldObjects prometheus.Gauge

	mu            sync.Mutex
	heldByService map[cache.ObjectName]int // number of held objects, by service
}

// New creates and registers the collectors.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		configValid: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_ingress_config_valid",
			Help: "1 if the text of a ConfigMap is in force, 0 if it is invalid or the ConfigMap was deleted.",
		}, []string{"config_map"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_ingress_writes_total",
			Help: "Writes of objects, by resource and result: created, updated, deleted, marked, failed.",
		}, []string{"resource", "result"}),
		reasons: controller.NewReasons(r, "fairlead_ingress_services", "InferenceServices, by the reason of their condition."),
		programmed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_ingress_time_to_programmed_seconds",
			Help:    "Time until the condition of a service becomes True, since a component became ready or the condition last changed.",
			Buckets: programmedBuckets,
		}),
		heldObjects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_ingress_held_objects", Help: "Replaced objects that are kept until holdSeconds have passed.",
		}),
		heldByService: map[cache.ObjectName]int{},
	}
	r.MustRegister(m.configValid, m.writes, m.programmed, m.heldObjects)
	return m
}

// Configured records the problem of a ConfigMap. An empty problem means that the ConfigMap is valid.
func (m *Metrics) Configured(name, problem string) {
	valid := 0.0
	if problem == "" {
		valid = 1
	}
	m.configValid.WithLabelValues(name).Set(valid)
}

// CountWrite counts one write.
func (m *Metrics) CountWrite(resource, result string) {
	m.writes.WithLabelValues(resource, result).Inc()
}

// SetReason records the reason of a service's condition. Services with a conflict have the reason HostConflict.
func (m *Metrics) SetReason(service cache.ObjectName, reason string) { m.reasons.Set(service, reason) }

// SetHeld records how many objects of a service are held.
func (m *Metrics) SetHeld(service cache.ObjectName, objects int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldObjects.Add(float64(objects - m.heldByService[service]))
	if m.heldByService[service] = objects; objects == 0 {
		delete(m.heldByService, service)
	}
}

// ObserveProgrammed records the time until the condition of a service became True, since a component became ready or the condition last
// changed. A negative time, caused by clock skew, counts as zero.
func (m *Metrics) ObserveProgrammed(after time.Duration) {
	m.programmed.Observe(max(after, 0).Seconds())
}

// Forget removes a service that no longer exists.
func (m *Metrics) Forget(service cache.ObjectName) {
	m.reasons.Forget(service)
	m.SetHeld(service, 0)
}

// Clear removes the state of all services, because a replica that does not lead has no current state.
func (m *Metrics) Clear() {
	m.reasons.Clear()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.heldByService)
	m.heldObjects.Set(0)
}
