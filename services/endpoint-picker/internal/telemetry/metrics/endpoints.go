package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// endpointCollector exports the endpoints of the pool.
type endpointCollector struct {
	snapshot func() *pool.Snapshot
	clock    clock.PassiveClock

	poolFound *prometheus.Desc
	ready     *prometheus.Desc
	series    figures[endpoint.Stats] // of each endpoint
	sums      figures[roleTotals]     // of each role
}

// Labels of the series of endpoints.
const (
	labelAddress = "endpoint"
	labelPod     = "pod"
	labelRole    = "role" // of the pod, empty if it has none
)

// RegisterEndpoints exports the endpoints of a pool.
func RegisterEndpoints(snapshot func() *pool.Snapshot, c clock.PassiveClock, r prometheus.Registerer) {
	r.MustRegister(&endpointCollector{
		snapshot:  snapshot,
		clock:     c,
		poolFound: newDesc("pool_found", "1 if the InferencePool is known."),
		ready:     newDesc("endpoints_ready", "Endpoints available for picks."),
		series:    newEndpointSeries(),
		sums:      newRoleSums(),
	})
}

// newEndpointSeries returns the series of each endpoint.
func newEndpointSeries() figures[endpoint.Stats] {
	labels := []string{labelAddress, labelPod, labelRole}
	byResult := map[string]func(*endpoint.Stats) float64{}
	for _, r := range endpoint.Results() {
		byResult[r.String()] = func(s *endpoint.Stats) float64 { return float64(s.Results[r]) }
	}
	responses := countersBy("endpoint_responses_total", "Responses of the endpoint, and failed attempts at it, by result: answered; 3xx, "+
		"4xx, 5xx; incomplete: an error, nothing, or the beginning of an answer, with a good status; none: no response. A request that "+
		"another endpoint answered in the end counts for each endpoint that was tried.", "result", byResult, labels...)
	return append(responses, figures[endpoint.Stats]{
		counterOf("endpoint_picks_total", "Requests sent to the endpoint.",
			func(s *endpoint.Stats) float64 { return float64(s.Picks) }, labels...),
		counterOf("endpoint_scrape_failures_total", "Failed scrapes of the endpoint.",
			func(s *endpoint.Stats) float64 { return float64(s.ScrapeFailures) }, labels...),
		counterOf("endpoint_prefix_prompt_tokens_total",
			"Prompt tokens of this picker's requests for which the endpoint reported how many it had cached, in answers or else on its "+
				"page.",
			func(s *endpoint.Stats) float64 { return float64(s.Prefix.Prompt) }, labels...),
		counterOf("endpoint_prefix_expected_tokens_total",
			"Tokens of these prompts that the picker expected in the endpoint's prefix cache. The ratio to the prompt "+
				"tokens is the expected hit rate.",
			func(s *endpoint.Stats) float64 { return float64(s.Prefix.Expected) }, labels...),
		counterOf("endpoint_prefix_reported_tokens_total",
			"Tokens of these prompts that the endpoint reported as cached. The ratio to the prompt tokens is the real hit rate.",
			func(s *endpoint.Stats) float64 { return float64(s.Prefix.Reported) }, labels...),
		gaugeOf("endpoint_requests_in_flight", "Requests of this picker in flight on the endpoint.",
			func(s *endpoint.Stats) float64 { return float64(s.InFlight) }, labels...),
		gaugeOf("endpoint_requests_waiting", "Requests queued on the endpoint, as of the last scrape.",
			func(s *endpoint.Stats) float64 { return s.Gauges.Waiting }, labels...),
		gaugeOf("endpoint_requests_running", "Requests running on the endpoint, as of the last scrape.",
			func(s *endpoint.Stats) float64 { return s.Gauges.Running }, labels...),
		gaugeOf("endpoint_kv_cache_usage", "Share of the endpoint's KV cache in use, as of the last scrape.",
			func(s *endpoint.Stats) float64 { return s.Gauges.KVUsage }, labels...),
		gaugeOf("endpoint_prompt_tokens_owed", "Prompt tokens sent by this picker that the endpoint has neither cached nor computed yet.",
			func(s *endpoint.Stats) float64 { return float64(s.Backlog) }, labels...),
		gaugeOf("endpoint_backlog_seconds",
			"Time that the endpoint needs for the prompt tokens that it owes to this picker, at the learned speed.",
			func(s *endpoint.Stats) float64 { return s.BacklogTime.Seconds() }, labels...),
		learnedOf("endpoint_prefill_tokens_per_second",
			"Learned speed at which the endpoint computes prompt tokens. Absent until 50 first tokens have shown it.",
			func(s *endpoint.Stats) float64 { return s.PrefillRate }, labels...),
		learnedOf("endpoint_batch_capacity",
			"Learned number of requests that the endpoint runs at once. Absent until it has had a queue behind a full batch.",
			func(s *endpoint.Stats) float64 { return s.BatchCapacity }, labels...),
		gaugeOf("endpoint_wait_factor", "Learned slowdown of the endpoint relative to its pool.",
			func(s *endpoint.Stats) float64 { return s.Slowdown }, labels...),
		gaugeOf("endpoint_sample_age_seconds", "Time since the last successful scrape of the endpoint, or since its discovery.",
			func(s *endpoint.Stats) float64 { return s.SampleAge.Seconds() }, labels...),
	}...)
}

// Describe implements prometheus.Collector.
func (c *endpointCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.poolFound
	out <- c.ready
	c.series.describeFigures(out)
	c.sums.describeFigures(out)
}

// Collect implements prometheus.Collector.
func (c *endpointCollector) Collect(out chan<- prometheus.Metric) {
	snapshot, now := c.snapshot(), c.clock.Now()
	found := 0.0
	if snapshot.Err == nil {
		found = 1
	}
	out <- prometheus.MustNewConstMetric(c.poolFound, prometheus.GaugeValue, found)
	out <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, float64(len(snapshot.Endpoints)))
	byRole := map[string]*roleTotals{}
	for _, e := range snapshot.Endpoints {
		stats, role := e.StatsAt(now), plugins.Role(e.Server().Labels)
		c.series.collectFigures(out, &stats, stats.Address, stats.Pod, role)
		if byRole[role] == nil {
			byRole[role] = &roleTotals{}
		}
		byRole[role].addEndpoint(&stats)
	}
	for role, totals := range byRole {
		c.sums.collectFigures(out, totals, role)
	}
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
