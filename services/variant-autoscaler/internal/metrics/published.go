package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// published is a collector of series that are replaced all at once: all series of a scrape are of the same decision.
type published struct {
	constant prometheus.Labels // of all series
	descs    []*prometheus.Desc
	current  atomic.Pointer[[]series]
}

// series is one of published. As a prometheus.Metric it would take four times the memory, as that has a copy of all labels: it is one for
// the time of a scrape.
type series struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []string // those of a variant are one slice
}

// newDesc returns the description of a series.
func (p *published) newDesc(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc(name, help, labels, p.constant)
	p.descs = append(p.descs, desc)
	return desc
}

// Describe implements prometheus.Collector.
func (p *published) Describe(out chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (p *published) Collect(out chan<- prometheus.Metric) {
	if current := p.current.Load(); current != nil {
		for i := range *current {
			element := &(*current)[i]
			out <- prometheus.MustNewConstMetric(element.desc, element.kind, element.value, element.labels...)
		}
	}
}
