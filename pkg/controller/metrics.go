package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// Metrics holds the metrics of all controllers of a process. Queue metrics have the same names as in Kubernetes components.
type Metrics struct {
	duration *prometheus.HistogramVec

	depth, unfinished, longestRunning *prometheus.GaugeVec
	adds, retries                     *prometheus.CounterVec
	queueDuration, workDuration       *prometheus.HistogramVec
}

// NewMetrics creates and registers the collectors.
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
			"Duration of one reconcile, by result: success, requeue, terminal, conflict, error, canceled.", "controller", "result"),
		depth:          gauge("workqueue_depth", "Objects waiting for a worker."),
		unfinished:     gauge("workqueue_unfinished_work_seconds", "Total time spent so far on the objects that workers are processing."),
		longestRunning: gauge("workqueue_longest_running_processor_seconds", "Time spent so far on the object that has been processing for longest."),
		adds:           counter("workqueue_adds_total", "Objects enqueued."),
		retries:        counter("workqueue_retries_total", "Objects enqueued again after an error or a conflict."),
		queueDuration:  histogram("workqueue_queue_duration_seconds", "Time that objects waited in the queue.", queue...),
		workDuration:   histogram("workqueue_work_duration_seconds", "Time that workers spent on objects.", queue...),
	}
	r.MustRegister(m.duration, m.depth, m.unfinished, m.longestRunning, m.adds, m.retries, m.queueDuration, m.workDuration)
	return m
}

// observeReconcile records one reconcile.
func (m *Metrics) observeReconcile(controller string, r result, took time.Duration) {
	m.duration.WithLabelValues(controller, r.String()).Observe(took.Seconds())
}

// queueMetrics implements workqueue.MetricsProvider.
type queueMetrics struct{ *Metrics }

func (m queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.queueDuration.WithLabelValues(name)
}

func (m queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.workDuration.WithLabelValues(name)
}

func (m queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longestRunning.WithLabelValues(name)
}

func (m queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
