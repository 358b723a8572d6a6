// Package metrics has the picker's own metrics, all named fairlead_picker_*.
//
// Metrics collects what happens, event by event. EndpointCollector shows, at each scrape, what the endpoints of the
// moment have; the series of an endpoint that has left the pool are gone with it.
package metrics

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Values of labels that are not someone else's.
const (
	resultPicked       = "picked"
	resultNoEndpoints  = "no_endpoints"
	resultNoneInSubset = "none_in_subset"
	resultFiltered     = "filtered"
	resultMalformed    = "malformed"
	resultOK           = "ok"
	resultError        = "error"
	servedPicked       = "picked"
	servedOther        = "other"
)

const namespace = "fairlead_picker"

// Metrics are the collectors that events go to.
type Metrics struct {
	picks           *prometheus.CounterVec
	pickDuration    prometheus.Histogram
	streamsInFlight prometheus.Gauge
	streams         *prometheus.CounterVec
	responses       *prometheus.CounterVec
	ejections       *prometheus.CounterVec
	scrapes         *prometheus.CounterVec
	scrapeDuration  prometheus.Histogram
}

// New returns the collectors, registered.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		picks:           counters("picks_total", "Requests for which an endpoint was wanted, by what came of it.", "result"),
		pickDuration:    histogram("pick_duration_seconds", "Time to choose an endpoint.", prometheus.ExponentialBuckets(1e-6, 4, 10)),
		streamsInFlight: gauge("streams_in_flight", "Requests whose ext_proc stream is open."),
		streams:         counters("streams_total", "Streams that have ended, by how far they came.", "outcome"),
		responses: counters("responses_total",
			"Responses of model servers that were seen, by status and by whether the picked endpoint served them.", "code", "served"),
		ejections: counters("ejections_total", "Endpoints that were kept from requests because they fail, by what showed it.", "cause"),
		scrapes:   counters("scrapes_total", "Scrapes of model servers' metrics, by what came of them.", "result"),
		scrapeDuration: histogram("scrape_duration_seconds", "Time to get and read one metrics page.",
			prometheus.ExponentialBuckets(0.00025, 4, 8)),
	}
	for _, result := range []string{resultPicked, resultNoEndpoints, resultNoneInSubset, resultFiltered, resultMalformed} {
		m.picks.WithLabelValues(result)
	}
	for _, outcome := range exchange.Outcomes() {
		m.streams.WithLabelValues(string(outcome))
	}
	for _, result := range []string{resultOK, resultError} {
		m.scrapes.WithLabelValues(result)
	}
	r.MustRegister(m.picks, m.pickDuration, m.streamsInFlight, m.streams, m.responses, m.ejections, m.scrapes, m.scrapeDuration)
	return m
}

// ObservePick counts a pick.
func (m *Metrics) ObservePick(d time.Duration, err error) {
	m.pickDuration.Observe(d.Seconds())
	m.picks.WithLabelValues(pickResult(err)).Inc()
}

// StreamStarted counts a stream that has begun.
func (m *Metrics) StreamStarted() { m.streamsInFlight.Inc() }

// StreamEnded counts a stream that has ended.
func (m *Metrics) StreamEnded(r *exchange.Record) {
	m.streamsInFlight.Dec()
	m.streams.WithLabelValues(string(r.Outcome)).Inc()
	if r.Status == 0 || r.Outcome == exchange.Refused {
		return
	}
	served := servedPicked
	if r.Moved() {
		served = servedOther
	}
	m.responses.WithLabelValues(statusCode(r.Status), served).Inc()
}

// ObserveEjection counts an endpoint that is kept from requests.
func (m *Metrics) ObserveEjection(cause string) { m.ejections.WithLabelValues(cause).Inc() }

// ObserveScrape counts a scrape.
func (m *Metrics) ObserveScrape(d time.Duration, err error) {
	m.scrapeDuration.Observe(d.Seconds())
	result := resultOK
	if err != nil {
		result = resultError
	}
	m.scrapes.WithLabelValues(result).Inc()
}

func pickResult(err error) string {
	switch {
	case err == nil:
		return resultPicked
	case errors.Is(err, scheduling.ErrNoneInSubset):
		return resultNoneInSubset
	case errors.Is(err, scheduling.ErrFiltered):
		return resultFiltered
	case errors.Is(err, request.ErrMalformed):
		return resultMalformed
	}
	return resultNoEndpoints
}

// statusCode is a label of which there can be but so many.
func statusCode(code int) string {
	if code < 100 || code > 599 {
		return "other"
	}
	return strconv.Itoa(code)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}
