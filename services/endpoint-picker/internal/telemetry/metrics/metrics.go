// Package metrics contains the metrics of the picker, in two sets.
//
// fairlead_picker_* are its own. llm_d_epp_* have the names, labels, units and buckets of the llm-d router, so that
// dashboards and autoscalers made for it work unchanged; LegacyNames adds its older names.
//
// Metrics counts events. It takes most values from the record of a finished request, and neither allocates nor locks for
// labels that it has seen before. endpointCollector and poolCollector export the current state at each scrape, so the series
// of an endpoint disappear with it.
//
// Label values that clients choose are limited in length and number: further values are "other".
package metrics

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Values of the picker's own labels.
const (
	resultPicked       = "picked"
	resultNoEndpoints  = "no_endpoints"
	resultNoneInSubset = "none_in_subset"
	resultFiltered     = "filtered"
	resultMalformed    = "malformed"
	resultShed         = "shed"
	resultNoCapacity   = "no_capacity"
	resultOK           = "ok"
	resultError        = "error"
	servedPicked       = "picked"
	servedOther        = "other"
)

const namespace = "fairlead_picker"

// Status codes with their own label value.
const (
	leastCode = 100
	mostCode  = 599
)

// Options enables optional metrics.
type Options struct {
	Streams bool // llm_d_epp_extproc_*
}

// Metrics contains the collectors for events.
type Metrics struct {
	picks           map[string]prometheus.Counter
	pickDuration    prometheus.Observer
	streamsInFlight prometheus.Gauge
	ejections       *prometheus.CounterVec
	streams         map[request.Outcome]prometheus.Counter
	responses       responses
	scrapes         map[string]prometheus.Counter
	scrapeDuration  prometheus.Observer

	requests   *requests
	pollErrors prometheus.Counter
	extProc    *extProc // nil if disabled
}

// New creates and registers the collectors.
func New(r prometheus.Registerer, o Options) *Metrics {
	own := ownMetrics(r)
	m := &Metrics{
		picks: newCounters(own, "picks_total", "Requests that needed an endpoint, by result.", "result",
			resultPicked, resultNoEndpoints, resultNoneInSubset, resultFiltered, resultMalformed, resultShed, resultNoCapacity),
		pickDuration: own.newHistogram("pick_duration_seconds", "Time to choose an endpoint.",
			prometheus.ExponentialBuckets(1e-6, 4, 10)),
		streamsInFlight: own.newGauge("streams_in_flight", "Open ext_proc streams, and open requests at the proxy listener."),
		streams: newCounters(own, "streams_total", "Finished exchanges, by outcome: ext_proc streams, and requests at the proxy listener.",
			labelOutcome, request.Outcomes()...),
		responses: responses{vec: own.newCounterVec("responses_total",
			"Observed responses of model servers, by status and by whether the picked endpoint served them.", "code", "served")},
		scrapes: newCounters(own, "scrapes_total", "Scrapes of model servers' metrics, by result.", "result", resultOK, resultError),
		ejections: own.newCounterVec("ejections_total",
			"Ejections of failing endpoints, by cause; model: of the requests for one model only.", "cause"),
		scrapeDuration: own.newHistogram("scrape_duration_seconds", "Time to fetch and parse one metrics page.",
			prometheus.ExponentialBuckets(0.00025, 4, 8)),
		requests: newRequests(r),
		pollErrors: upstreamMetrics(r).newCounterVec("datalayer_poll_errors_total", "Failed scrapes of model servers' metrics.",
			"source_type").WithLabelValues(sourceMetrics),
	}
	if o.Streams {
		m.extProc = newExtProc(r)
	}
	return m
}

// PinModels makes configured models keep their names as labels, independent of the number of other models.
func (m *Metrics) PinModels(models ...string) { m.requests.pinModels(models) }

// ObservePick counts a pick.
func (m *Metrics) ObservePick(d time.Duration, err error) {
	m.pickDuration.Observe(d.Seconds())
	m.picks[pickResult(err)].Inc()
}

// StreamStarted counts a new stream.
func (m *Metrics) StreamStarted() {
	m.streamsInFlight.Inc()
	if m.extProc != nil {
		m.extProc.inFlight.Inc()
	}
}

// RequestPlaced counts a request whose endpoint has just been picked, with the information known then. The caller sets the
// record's Placed, and calls ObserveRequest with the same record at its end.
func (m *Metrics) RequestPlaced(r *request.Record) { m.requests.countPlaced(r) }

// ObserveRequest records a finished request. Call it once for each StreamStarted.
func (m *Metrics) ObserveRequest(r *request.Record) {
	m.streamEnded(r.Outcome)
	if r.Outcome != request.Refused {
		m.responses.countResponse(r.Status, r.HasMoved())
	}
	m.requests.observeRequest(r)
	if m.extProc != nil {
		m.extProc.observeEnd(r)
	}
}

// ObserveEjection counts an ejection.
func (m *Metrics) ObserveEjection(cause string) { m.ejections.WithLabelValues(cause).Inc() }

// ObserveScrape counts a scrape.
func (m *Metrics) ObserveScrape(d time.Duration, err error) {
	m.scrapeDuration.Observe(d.Seconds())
	if err != nil {
		m.scrapes[resultError].Inc()
		m.pollErrors.Inc()
		return
	}
	m.scrapes[resultOK].Inc()
}

func (m *Metrics) streamEnded(o request.Outcome) {
	m.streamsInFlight.Dec()
	if c := m.streams[o]; c != nil {
		c.Inc()
	}
}

// responses counts responses of model servers.
type responses struct {
	vec *prometheus.CounterVec
	// By status code from leastCode on, the last for all others, and by whether another endpoint than the picked one served.
	counters [mostCode - leastCode + 2][2]lazy[prometheus.Counter]
}

func (s *responses) countResponse(code int, moved bool) { //nolint:revive // what happened, not what to do
	if code == 0 { // the response was not observed
		return
	}
	at, served, place := code-leastCode, servedPicked, 0
	if code < leastCode || code > mostCode {
		at = len(s.counters) - 1
	}
	if moved {
		served, place = servedOther, 1
	}
	s.counters[at][place].loadOrCreate(func() prometheus.Counter { return s.vec.WithLabelValues(statusCode(code), served) }).Inc()
}

// lazy creates a value at its first use. Creating it twice must give the same value.
type lazy[T any] struct{ value atomic.Pointer[T] }

func (l *lazy[T]) loadOrCreate(create func() T) T {
	if p := l.value.Load(); p != nil {
		return *p
	}
	v := create()
	l.value.Store(&v)
	return v
}

func pickResult(err error) string {
	switch {
	case err == nil:
		return resultPicked
	case errors.Is(err, scheduling.ErrNoneInSubset):
		return resultNoneInSubset
	case errors.Is(err, scheduling.ErrFiltered):
		return resultFiltered
	case errors.Is(err, api.ErrMalformed):
		return resultMalformed
	case errors.Is(err, scheduling.ErrSaturated):
		return resultShed
	case errors.Is(err, scheduling.ErrNoCapacity):
		return resultNoCapacity
	}
	return resultNoEndpoints
}

// statusCode returns a label value from a limited set.
func statusCode(code int) string {
	if code < leastCode || code > mostCode {
		return "other"
	}
	return strconv.Itoa(code)
}

// newCounters creates the counters for all values of a label, so that none is missing.
func newCounters[T ~string](f factory, name, help, label string, values ...T) map[T]prometheus.Counter {
	counters, vec := make(map[T]prometheus.Counter, len(values)), f.newCounterVec(name, help, label)
	for _, v := range values {
		counters[v] = vec.WithLabelValues(string(v))
	}
	return counters
}

// A factory makes metrics whose names have a prefix, and registers them.
type factory struct {
	promauto.Factory

	prefix string
}

func ownMetrics(r prometheus.Registerer) factory { return factory{promauto.With(r), namespace} }

func upstreamMetrics(r prometheus.Registerer) factory { return factory{promauto.With(r), upstream} }

func (f factory) newCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Namespace: f.prefix, Name: name, Help: help}, labels)
}

func (f factory) newCounter(name, help string) prometheus.Counter {
	return f.newCounterVec(name, help).WithLabelValues()
}

func (f factory) newGaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: f.prefix, Name: name, Help: help}, labels)
}

func (f factory) newGauge(name, help string) prometheus.Gauge {
	return f.newGaugeVec(name, help).WithLabelValues()
}

func (f factory) newHistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{Namespace: f.prefix, Name: name, Help: help, Buckets: buckets}, labels)
}

func (f factory) newHistogram(name, help string, buckets []float64) prometheus.Observer {
	return f.newHistogramVec(name, help, buckets).WithLabelValues()
}
