// Package metrics provides the metrics of requests to OCI, of backend sets and of bindings. pkg/controller provides those of the work
// queue.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/services/backendset-syncer/internal/actor"
)

// Buckets, in seconds.
var (
	requestBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	// workBuckets reach the time after which a work request counts as lost.
	workBuckets = []float64{.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600}
)

// Stages of the propagation of an event.
const (
	stageWritten   = "written"
	stageInService = "in_service"
)

// Metrics contains the collectors. All methods are safe for concurrent use.
type Metrics struct {
	Bindings *controller.Reasons // BackendSetBindings, by the reason of their condition

	configValid *prometheus.GaugeVec
	requests    *prometheus.HistogramVec
	rate        prometheus.Gauge
	works       *prometheus.HistogramVec
	propagation *prometheus.HistogramVec
	backends    *prometheus.GaugeVec
	behind      *prometheus.GaugeVec
	conflicts   *prometheus.CounterVec
	reviews     *prometheus.CounterVec
	answers     *prometheus.CounterVec
	gateways    *byReason
	listeners   *byReason
	routes      *byReason
}

// New creates and registers the collectors.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		configValid: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_backendset_config_valid",
			Help: "1 if the text of the ConfigMap is in force, 0 if it is invalid or the ConfigMap was deleted.",
		}, []string{"config_map"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_backendset_oci_request_seconds",
			Help: "Duration of requests to OCI, by operation and code: OK, NoAnswer or a code of OCI.", Buckets: requestBuckets,
		}, []string{"operation", "code"}),
		rate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_backendset_oci_requests_per_second_limit",
			Help: "Current limit of requests to OCI. It halves when OCI answers 429.",
		}),
		works: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_backendset_work_request_seconds",
			Help: "Duration of work requests, by operation and result: succeeded, failed, lost.", Buckets: workBuckets,
		}, []string{"operation", "result"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_backendset_propagation_seconds",
			Help: "Time since the event of an EndpointSlice until the work request has succeeded (written), or until the load balancer " +
				"reports a new backend as healthy (in_service).",
			Buckets: workBuckets,
		}, []string{"stage"}),
		backends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_backendset_backends",
			Help: "Backends of a set, by state: active, draining, waiting (ready endpoints that the set does not have yet), " +
				"excess (ready endpoints without room), early (removed before the end of their drain time).",
		}, []string{"load_balancer", "backend_set", "state"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_backendset_behind_since_timestamp_seconds",
			Help: "Unix time of the oldest change that a backend set does not have yet. Absent for a set that has all.",
		}, []string{"load_balancer", "backend_set"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_backendset_oci_conflicts_total", Help: "Writes that OCI refused because of other writes (409, 412), by code.",
		}, []string{"code"}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_backendset_webhook_reviews_total",
			Help: "Pods that the webhook has reviewed, by result: gated, unchanged (the pod had the gate), refused (not a review).",
		}, []string{"result"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_backendset_responder_answers_total",
			Help: "Requests of load balancers that the responder has answered, by code: 404 (no rule matches), 500 (the rule has no " +
				"backend).",
		}, []string{"code"}),
		Bindings: controller.NewReasons(r, "fairlead_backendset_bindings", "BackendSetBindings, by the reason of their condition."),
		gateways: newByReason(r, "fairlead_backendset_gateways",
			"Gateways, by the reason of Accepted if it is not True, otherwise of Programmed. Those without a load balancer that they may "+
				"program have an empty label."),
		listeners: newByReason(r, "fairlead_backendset_listeners",
			"Listeners of Gateways, by the reason of the first of Accepted, ResolvedRefs and Programmed that is not True, or Programmed."),
		routes: newByReason(r, "fairlead_backendset_routes",
			"HTTPRoutes, by the reason of the first of Accepted, ResolvedRefs and fairlead.dev/BackendsSynced that is not True, "+
				"PartiallyInvalid, or Synced."),
	}
	r.MustRegister(m.configValid, m.requests, m.rate, m.works, m.propagation, m.backends, m.behind, m.conflicts, m.reviews, m.answers)
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

// ObserveRequest records a request to OCI.
func (m *Metrics) ObserveRequest(operation, code string, took time.Duration) {
	m.requests.WithLabelValues(operation, code).Observe(took.Seconds())
}

// SetRateLimit records the limit of requests.
func (m *Metrics) SetRateLimit(perSecond float64) { m.rate.Set(perSecond) }

// ObserveWorkRequest records the end of a work request.
func (m *Metrics) ObserveWorkRequest(operation, result string, took time.Duration) {
	m.works.WithLabelValues(operation, result).Observe(took.Seconds())
}

// ObserveWrite records the time from an event to the end of its work request.
func (m *Metrics) ObserveWrite(took time.Duration) {
	m.propagation.WithLabelValues(stageWritten).Observe(took.Seconds())
}

// ObserveInService records the time from the event of an endpoint to a healthy backend.
func (m *Metrics) ObserveInService(took time.Duration) {
	m.propagation.WithLabelValues(stageInService).Observe(took.Seconds())
}

// CountConflict counts a refused write.
func (m *Metrics) CountConflict(code string) { m.conflicts.WithLabelValues(code).Inc() }

// CountReview counts a review of the webhook.
func (m *Metrics) CountReview(result string) { m.reviews.WithLabelValues(result).Inc() }

// CountAnswer counts an answer of the responder.
func (m *Metrics) CountAnswer(status int) { m.answers.WithLabelValues(strconv.Itoa(status)).Inc() }

// WatchCertificate exports when the certificate of the webhook expires. It also reveals a certificate that is not renewed.
func WatchCertificate(r prometheus.Registerer, expiry func() time.Time) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_backendset_webhook_certificate_expiry_timestamp_seconds",
		Help: "Unix time when the certificate of the webhook expires, 0 while the webhook has none.",
	}, func() float64 {
		if at := expiry(); !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	}))
}

// ObserveReport records the state of a backend set. A nil report removes it.
func (m *Metrics) ObserveReport(key actor.Key, r *actor.Report) {
	if r == nil || r.Since.IsZero() {
		m.behind.DeleteLabelValues(key.LoadBalancer, key.Set)
	} else {
		m.behind.WithLabelValues(key.LoadBalancer, key.Set).Set(float64(r.Since.Unix()))
	}
	if r == nil || !r.Known {
		m.backends.DeletePartialMatch(prometheus.Labels{"load_balancer": key.LoadBalancer, "backend_set": key.Set})
		return
	}
	for state, n := range map[string]int{
		"active": r.Active, "draining": r.Draining, "waiting": r.Waiting, "excess": r.Excess, "early": r.Early,
	} {
		m.backends.WithLabelValues(key.LoadBalancer, key.Set, state).Set(float64(n))
	}
}
