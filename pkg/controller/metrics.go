package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// Metrics are the measurements of all controllers of a process. Those of queues have the names that Kubernetes gives them.
type Metrics struct {
	duration *prometheus.HistogramVec

	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec
}

// NewMetrics makes the collectors and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	queue := []string{"name"}
	seconds := prometheus.ExponentialBuckets(0.0005, 4, 9) // 0.5 ms to 33 s
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, queue)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, queue)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	}
	m := &Metrics{
		duration: histogram("fairlead_controller_reconcile_duration_seconds",
			"Time that one object took, by how it ended: success, requeue, terminal, conflict, error, canceled.", "controller", "result"),
		depth:      gauge("workqueue_depth", "Objects that wait for a worker."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Time that the objects in hand have taken so far, in all."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Time that the object longest in hand has taken so far."),
		adds:       counter("workqueue_adds_total", "Objects that were enqueued."),
		retries:    counter("workqueue_retries_total", "Objects that were enqueued again after an error or a conflict."),
		waited:     histogram("workqueue_queue_duration_seconds", "Time that objects waited for a worker.", queue...),
		worked:     histogram("workqueue_work_duration_seconds", "Time that objects were in hand.", queue...),
	}
	r.MustRegister(m.duration, m.depth, m.unfinished, m.longest, m.adds, m.retries, m.waited, m.worked)
	return m
}

// observe counts one reconcile.
func (m *Metrics) observe(controller string, r result, took time.Duration) {
	m.duration.WithLabelValues(controller, r.String()).Observe(took.Seconds())
}

// queues is what a queue wants its metrics from.
func (m *Metrics) queues() workqueue.MetricsProvider { return queueMetrics{m} }

// queueMetrics hands out the metrics of a queue by its name.
type queueMetrics struct{ *Metrics }

func (m queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.waited.WithLabelValues(name)
}

func (m queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.worked.WithLabelValues(name)
}

func (m queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
