package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// snapshots provides the endpoints.
type snapshots interface {
	Snapshot() *pool.Snapshot
}

// EndpointCollector exports the endpoints of the pool.
type EndpointCollector struct {
	snapshots snapshots
	clock     clock.PassiveClock

	poolFound *prometheus.Desc
	ready     *prometheus.Desc
	series    []endpointSeries
	sums      roleSums
}

// Labels of the series of endpoints.
const (
	labelAddress = "endpoint"
	labelPod     = "pod"
	labelRole    = "role" // of the pod, empty if it has none
)

// endpointSeries is one value of each endpoint.
type endpointSeries struct {
	desc    *prometheus.Desc
	kind    prometheus.ValueType
	value   func(s *endpoint.Stats) float64
	learned bool // 0 means that the value is not known: such an endpoint has no series
}

// NewEndpointCollector creates and registers the collector.
func NewEndpointCollector(s snapshots, c clock.PassiveClock, r prometheus.Registerer) *EndpointCollector {
	e := &EndpointCollector{
		snapshots: s,
		clock:     c,
		poolFound: newDesc("pool_found", "1 if the InferencePool is known."),
		ready:     newDesc("endpoints_ready", "Endpoints available for picks."),
		sums:      newRoleSums(),
	}
	gaugeOf := func(name, help string, value func(s *endpoint.Stats) float64) {
		e.series = append(e.series, endpointSeries{desc: newDesc(name, help, labelAddress, labelPod, labelRole), kind: prometheus.GaugeValue,
			value: value})
	}
	learnedOf := func(name, help string, value func(s *endpoint.Stats) float64) {
		e.series = append(e.series, endpointSeries{desc: newDesc(name, help, labelAddress, labelPod, labelRole), kind: prometheus.GaugeValue,
			value: value, learned: true})
	}
	counterOf := func(name, help string, value func(s *endpoint.Stats) float64) {
		e.series = append(e.series, endpointSeries{desc: newDesc(name, help, labelAddress, labelPod, labelRole),
			kind: prometheus.CounterValue, value: value})
	}
	counterOf("endpoint_picks_total", "Requests sent to the endpoint.", func(s *endpoint.Stats) float64 { return float64(s.Picks) })
	counterOf("endpoint_scrape_failures_total", "Failed scrapes of the endpoint.",
		func(s *endpoint.Stats) float64 { return float64(s.ScrapeFailures) })
	counterOf("endpoint_prefix_prompt_tokens_total", "Prompt tokens of this picker's requests for which the endpoint reported how many it had cached, in answers or else on its page.",
		func(s *endpoint.Stats) float64 { return float64(s.Prefix.Prompt) })
	counterOf("endpoint_prefix_expected_tokens_total", "Tokens of these prompts that the picker expected in the endpoint's prefix cache. The ratio to the prompt tokens is the expected hit rate.",
		func(s *endpoint.Stats) float64 { return float64(s.Prefix.Expected) })
	counterOf("endpoint_prefix_reported_tokens_total", "Tokens of these prompts that the endpoint reported as cached. The ratio to the prompt tokens is the real hit rate.",
		func(s *endpoint.Stats) float64 { return float64(s.Prefix.Reported) })
	gaugeOf("endpoint_requests_in_flight", "Requests of this picker in flight on the endpoint.",
		func(s *endpoint.Stats) float64 { return float64(s.InFlight) })
	gaugeOf("endpoint_requests_waiting", "Requests queued on the endpoint, as of the last scrape.",
		func(s *endpoint.Stats) float64 { return s.Gauges.Waiting })
	gaugeOf("endpoint_requests_running", "Requests running on the endpoint, as of the last scrape.",
		func(s *endpoint.Stats) float64 { return s.Gauges.Running })
	gaugeOf("endpoint_kv_cache_usage", "Share of the endpoint's KV cache in use, as of the last scrape.",
		func(s *endpoint.Stats) float64 { return s.Gauges.KVUsage })
	gaugeOf("endpoint_prompt_tokens_owed", "Prompt tokens sent by this picker that the endpoint has neither cached nor computed yet.",
		func(s *endpoint.Stats) float64 { return float64(s.Backlog) })
	gaugeOf("endpoint_backlog_seconds", "Time that the endpoint needs for the prompt tokens that it owes to this picker, at the learned speed.",
		func(s *endpoint.Stats) float64 { return s.BacklogTime.Seconds() })
	learnedOf("endpoint_prefill_tokens_per_second", "Learned speed at which the endpoint computes prompt tokens. Absent until 50 first tokens have shown it.",
		func(s *endpoint.Stats) float64 { return s.PrefillRate })
	learnedOf("endpoint_batch_capacity", "Learned number of requests that the endpoint runs at once. Absent until it has had a queue behind a full batch.",
		func(s *endpoint.Stats) float64 { return s.BatchCapacity })
	gaugeOf("endpoint_wait_factor", "Learned slowdown of the endpoint relative to its pool.",
		func(s *endpoint.Stats) float64 { return s.Slowdown })
	gaugeOf("endpoint_sample_age_seconds", "Time since the last successful scrape of the endpoint, or since its discovery.",
		func(s *endpoint.Stats) float64 { return s.SampleAge.Seconds() })
	r.MustRegister(e)
	return e
}

// Describe implements prometheus.Collector.
func (c *EndpointCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.poolFound
	out <- c.ready
	for _, s := range c.series {
		out <- s.desc
	}
	for _, s := range c.sums {
		out <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *EndpointCollector) Collect(out chan<- prometheus.Metric) {
	snapshot, now := c.snapshots.Snapshot(), c.clock.Now()
	found := 0.0
	if snapshot.Err == nil {
		found = 1
	}
	out <- prometheus.MustNewConstMetric(c.poolFound, prometheus.GaugeValue, found)
	out <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, float64(len(snapshot.Endpoints)))
	byRole := map[string]*roleTotals{}
	for _, e := range snapshot.Endpoints {
		stats, role := e.StatsAt(now), plugins.Role(e.Server().Labels)
		for _, s := range c.series {
			if value := s.value(&stats); value != 0 || !s.learned {
				out <- prometheus.MustNewConstMetric(s.desc, s.kind, value, stats.Address, stats.Pod, role)
			}
		}
		if byRole[role] == nil {
			byRole[role] = &roleTotals{}
		}
		byRole[role].addEndpoint(&stats)
	}
	c.sums.collectSums(out, byRole)
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
