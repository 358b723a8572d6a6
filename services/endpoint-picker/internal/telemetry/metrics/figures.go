package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A figure is a metric with one value of a T, which is read at each scrape.
type figure[T any] struct {
	desc    *prometheus.Desc
	kind    prometheus.ValueType
	learned bool // 0 means that the value is not known: then there is no series
	value   func(from *T) float64
}

func gaugeOf[T any](name, help string, value func(from *T) float64, labels ...string) figure[T] {
	return figure[T]{desc: newDesc(name, help, labels...), kind: prometheus.GaugeValue, value: value}
}

func learnedOf[T any](name, help string, value func(from *T) float64, labels ...string) figure[T] {
	return figure[T]{desc: newDesc(name, help, labels...), kind: prometheus.GaugeValue, learned: true, value: value}
}

func counterOf[T any](name, help string, value func(from *T) float64, labels ...string) figure[T] {
	return figure[T]{desc: newDesc(name, help, labels...), kind: prometheus.CounterValue, value: value}
}

// countersBy returns the counters of one metric, by the values of its label, with other labels.
func countersBy[T any](name, help, label string, values map[string]func(from *T) float64, others ...string) figures[T] {
	var counters figures[T]
	for _, v := range slices.Sorted(maps.Keys(values)) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, others, prometheus.Labels{label: v})
		counters = append(counters, figure[T]{desc: desc, kind: prometheus.CounterValue, value: values[v]})
	}
	return counters
}

// figures are several figures of a T.
type figures[T any] []figure[T]

func (f figures[T]) describeFigures(out chan<- *prometheus.Desc) {
	for i := range f {
		out <- f[i].desc
	}
}

func (f figures[T]) collectFigures(out chan<- prometheus.Metric, from *T, labels ...string) {
	for i := range f {
		if value := f[i].value(from); value != 0 || !f[i].learned {
			out <- prometheus.MustNewConstMetric(f[i].desc, f[i].kind, value, labels...)
		}
	}
}

// A statsCollector exports the figures of what stats returns.
type statsCollector[T any] struct {
	figures[T]

	stats func() T
}

// Describe implements prometheus.Collector.
func (c *statsCollector[T]) Describe(out chan<- *prometheus.Desc) { c.describeFigures(out) }

// Collect implements prometheus.Collector.
func (c *statsCollector[T]) Collect(out chan<- prometheus.Metric) {
	s := c.stats()
	c.collectFigures(out, &s)
}
