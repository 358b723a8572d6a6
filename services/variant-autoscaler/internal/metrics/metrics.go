// Package metrics provides the series that tell autoscalers the desired replicas of variants, and the metrics of the service itself.
//
// The names of the former begin with wva, as in llm-d's workload-variant-autoscaler: rules, dashboards and HorizontalPodAutoscalers for
// it work here. Only the leader has series of decisions: EndTerm removes them at the end of its term.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Buckets, in seconds: a pass waits for queries to Prometheus, a part may be the optimizer alone.
var (
	passBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	partBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
)

// Metrics contains the collectors. All methods are safe for concurrent use.
type Metrics struct {
	series *Series
	plan   *plan

	passes   *prometheus.CounterVec
	duration prometheus.Histogram
	parts    *prometheus.HistogramVec
	interval prometheus.Gauge
	success  *prometheus.GaugeVec // with no or one series
	dropped  prometheus.Gauge

	config  *prometheus.GaugeVec
	answers *prometheus.CounterVec
	streams prometheus.Gauge

	scaled    *prometheus.CounterVec
	overwrote prometheus.Counter

	pickers *prometheus.GaugeVec
	wakeUps prometheus.Counter
}

// New creates and registers the collectors. instance is the value of the label controller_instance of series; without it, they do not have
// the label.
func New(r prometheus.Registerer, instance string) *Metrics {
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		series: newSeries(instance), plan: newPlan(),

		passes: counters("fairlead_autoscaler_passes_total", "Passes over all variants, by result.", "result"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_autoscaler_pass_seconds", Help: "Duration of a pass.", Buckets: passBuckets,
		}),
		parts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_autoscaler_pass_part_seconds", Help: "Duration of the parts of a pass.", Buckets: partBuckets,
		}, []string{"part"}),
		interval: gauge("fairlead_autoscaler_interval_seconds", "Time from the end of a pass to the next one, as it is in force."),
		success: gauges("fairlead_autoscaler_last_success_timestamp_seconds",
			"Unix time of the end of the last successful pass. Absent until there is one in the term of the leader."),
		dropped: gauge("fairlead_autoscaler_variants_without_series",
			"Variants without wva series: their labels equal those of another variant, because long names are cut."),

		config: gauges("fairlead_autoscaler_config_valid",
			"1 if the text of the ConfigMap is in force, 0 if it is invalid or the ConfigMap was deleted.", "config_map"),
		answers: counters("fairlead_autoscaler_scaler_requests_total", "Answers of the external scaler, by method and code of gRPC.", "method", "code"),
		streams: gauge("fairlead_autoscaler_scaler_streams", "Open streams of the external scaler."),

		scaled: counters("fairlead_autoscaler_target_writes_total",
			"Targets whose replicas were to change with --actuator=scale, by result: Scaled, or the reason of the condition Applied.", "result"),
		overwrote: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_autoscaler_target_overwrites_total",
			Help: "Targets whose replicas somebody else had changed since this program wrote them, and that it wrote again.",
		}),
	}
	m.pickers = gauges("fairlead_autoscaler_pickers", "Replicas of endpoint pickers to follow, by state: following, or failing.", "state")
	m.wakeUps = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairlead_autoscaler_wake_ups_total", Help: "Models without replicas that were started for a request that waits, before a pass.",
	})
	r.MustRegister(m.series, m.plan, m.passes, m.duration, m.parts, m.interval, m.success, m.dropped, m.config, m.answers, m.streams,
		m.scaled, m.overwrote, m.pickers, m.wakeUps)
	return m
}

// Publish replaces the series of all variants at once. A variant that is not among them loses its series.
func (m *Metrics) Publish(variants []decision.ActedVariant) {
	m.dropped.Set(float64(m.series.replaceSeries(variants)))
}

// EndTerm removes all series of decisions, because a replica that does not lead has none.
func (m *Metrics) EndTerm() {
	m.series.clearSeries()
	m.plan.clearPlan()
	m.success.Reset()
	m.dropped.Set(0)
}

// CountPass counts a pass that has ended. Results are constants of the caller.
func (m *Metrics) CountPass(result string, took time.Duration) {
	m.passes.WithLabelValues(labelValue(result)).Inc()
	m.duration.Observe(took.Seconds())
}

// MarkSuccess records the end of a successful pass.
func (m *Metrics) MarkSuccess(end time.Time) {
	m.success.WithLabelValues().Set(float64(end.UnixMilli()) / 1000)
}

// ObservePart records the duration of a part of a pass. Parts are constants of the caller.
func (m *Metrics) ObservePart(name string, took time.Duration) {
	m.parts.WithLabelValues(labelValue(name)).Observe(took.Seconds())
}

// SetInterval records the interval in force.
func (m *Metrics) SetInterval(d time.Duration) { m.interval.Set(d.Seconds()) }

// ObserveDecision replaces the figures of the last decision.
func (m *Metrics) ObserveDecision(s *snapshot.Snapshot, d *decision.Decision) {
	m.plan.setDecision(s, d)
}

// Configured records the problem of a ConfigMap. An empty problem means that the ConfigMap is valid.
func (m *Metrics) Configured(name, problem string) {
	valid := 0.0
	if problem == "" {
		valid = 1
	}
	m.config.WithLabelValues(labelValue(name)).Set(valid)
}

// CountAnswer counts an answer of the external scaler.
func (m *Metrics) CountAnswer(method, code string) { m.answers.WithLabelValues(method, code).Inc() }

// SetStreams records the number of open streams.
func (m *Metrics) SetStreams(open int) { m.streams.Set(float64(open)) }

// CountWrite counts a target whose replicas were to change. Results are constants of the caller.
func (m *Metrics) CountWrite(result string) { m.scaled.WithLabelValues(labelValue(result)).Inc() }

// CountOverwrite counts a target whose replicas somebody else had changed.
func (m *Metrics) CountOverwrite() { m.overwrote.Inc() }

// ObservePickers records how many pickers are followed, and how many cannot be.
func (m *Metrics) ObservePickers(following, failing int) {
	m.pickers.WithLabelValues("following").Set(float64(following))
	m.pickers.WithLabelValues("failing").Set(float64(failing))
}

// CountWakeUp counts a model that was started for a request that waits.
func (m *Metrics) CountWakeUp() { m.wakeUps.Inc() }
