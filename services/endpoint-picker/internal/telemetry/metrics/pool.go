package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// poolCollector exports the pool and its endpoints under the names of the llm-d router, and the learned values.
type poolCollector struct {
	PoolParams

	averages, deviations [3]*prometheus.Desc // of KV cache, queue and running requests
	ready, queueSize     *prometheus.Desc
	requests, tokens     *prometheus.Desc
	saturation           *prometheus.Desc
	waiting              waitingMetrics
	prefixSize, info     *prometheus.Desc
	learned              figures[learnedState]
}

// PoolParams are the parameters of RegisterPool.
type PoolParams struct {
	Pool       string // name of the InferencePool
	Snapshot   func() *pool.Snapshot
	Metrics    *Metrics // source of picks by endpoint, for current endpoints
	Queue      *pool.Queue
	Estimator  *estimate.Estimator
	StaleAfter time.Duration  // duration of scrape failures after which an endpoint's values are stale
	Saturation func() float64 // of the pool: 1 is full
	Clock      clock.PassiveClock
}

// learnedState is what the estimator of a pool has learned.
type learnedState struct {
	costs *estimate.Costs
	index prefixindex.Stats
}

// RegisterPool exports the pool under the names of the llm-d router, and the learned values.
func RegisterPool(p PoolParams, r prometheus.Registerer) {
	c := &poolCollector{
		PoolParams: p,
		ready:      upstreamDesc("ready_endpoints", "Endpoints available for picks.", labelPool),
		queueSize: upstreamDesc("per_endpoint_queue_size", "Requests queued on the endpoint, as of the last scrape.",
			labelPool, "model_server_endpoint"),
		saturation: upstreamDesc("flow_control_pool_saturation", "Saturation of the pool: 1 is full, more is overload.", "inference_pool",
			"stage"),
		waiting:    newWaiting(),
		prefixSize: upstreamDesc("prefix_indexer_size", "Estimated cached blocks of all endpoints.", labelPlugin, labelPluginType),
		info:       upstreamDesc("info", "The running build.", "commit", "build_ref"),
	}
	for i, figure := range []struct{ name, help string }{
		{"kv_cache_utilization", "share of the KV cache in use"},
		{"queue_size", "queued requests"},
		{"running_requests", "running requests"},
	} {
		c.averages[i] = upstreamDesc("average_"+figure.name, "Mean over the endpoints: "+figure.help+".", labelPool)
		c.deviations[i] = upstreamDesc("std_dev_"+figure.name, "Standard deviation over the endpoints: "+figure.help+".", labelPool)
	}
	flow := []string{labelEndpoint, labelNamespace, "producer_name", labelFairness, labelPriority}
	c.requests = upstreamDesc("inflight_requests", "Requests of this picker in flight on the endpoint.", flow...)
	c.tokens = upstreamDesc("inflight_tokens", "Prompt tokens sent by this picker that the endpoint has neither cached nor computed yet.",
		flow...)
	c.learned = newLearnedFigures()
	r.MustRegister(c)
}

func newLearnedFigures() figures[learnedState] {
	return figures[learnedState]{
		gaugeOf("speed_base_seconds", "Learned minimum time to first token.", func(l *learnedState) float64 { return l.costs.Base }),
		gaugeOf("speed_per_decoding_seconds", "Learned increase of the time to first token per decoding request.",
			func(l *learnedState) float64 { return l.costs.PerDecoding }),
		gaugeOf("speed_per_token_seconds", "Learned increase of the time to first token per uncached prompt token.",
			func(l *learnedState) float64 { return l.costs.PerToken }),
		gaugeOf("prefix_index_nodes", "Runs of blocks in the index of prefixes.",
			func(l *learnedState) float64 { return float64(l.index.Nodes) }),
		gaugeOf("prefix_index_bytes", "Approximate memory of the index of prefixes.",
			func(l *learnedState) float64 { return float64(l.index.Bytes) }),
		gaugeOf("prefix_index_blocks", "Estimated cached blocks of all endpoints.",
			func(l *learnedState) float64 { return float64(l.index.Blocks) }),
	}
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(out chan<- *prometheus.Desc) {
	for i := range c.averages {
		out <- c.averages[i]
		out <- c.deviations[i]
	}
	for _, d := range []*prometheus.Desc{
		c.ready, c.queueSize, c.requests, c.tokens, c.saturation, c.prefixSize, c.info, c.Metrics.requests.attempts.desc,
	} {
		out <- d
	}
	c.waiting.describeWaiting(out)
	c.learned.describeFigures(out)
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	endpoints, now := c.Snapshot().Endpoints, c.Clock.Now()
	var figures [3]sample // of endpoints with fresh values
	names := uniqueNames(endpoints)
	for i, e := range endpoints {
		stats := e.StatsAt(now)
		if !stats.Stale(c.StaleAfter) {
			for i, v := range []float64{stats.Gauges.KVUsage, stats.Gauges.Waiting, stats.Gauges.Running} {
				figures[i].addValue(v)
			}
		}
		name, space := endpointName(e), e.Identity().Namespace
		gauge(c.queueSize, stats.Gauges.Waiting, c.Pool, names[i])
		gauge(c.requests, float64(stats.InFlight), name, space, loadProducer, "", "")
		gauge(c.tokens, float64(stats.Backlog), name, space, loadProducer, "", "")
	}
	gauge(c.ready, float64(len(endpoints)), c.Pool)
	gauge(c.saturation, c.Saturation(), c.Pool, stageEffective)
	c.waiting.collectWaiting(gauge, c.Metrics.requests.mergeCounts(c.Queue.Report()), c.Pool, now)
	for i := range figures {
		if figures[i].n > 0 {
			gauge(c.averages[i], figures[i].mean, c.Pool)
			gauge(c.deviations[i], figures[i].standardDeviation(), c.Pool)
		}
	}
	c.Metrics.requests.attempts.collectAttempts(out, endpoints)
	learned := learnedState{costs: c.Estimator.Costs(), index: c.Estimator.IndexStats()}
	gauge(c.prefixSize, float64(learned.index.Blocks), prefixProducer, prefixProducer)
	gauge(c.info, 1, version.Commit(), version.String())
	c.learned.collectFigures(out, &learned)
}

// uniqueNames returns the llm-d router's names of the endpoints. Names that several namespaces have begin with the namespace.
func uniqueNames(endpoints []*endpoint.Endpoint) []string {
	names, uses := make([]string, len(endpoints)), make(map[string]int, len(endpoints))
	for i, e := range endpoints {
		names[i] = endpointName(e)
		uses[names[i]]++
	}
	for i, e := range endpoints {
		if uses[names[i]] > 1 {
			names[i] = e.Identity().Namespace + "/" + names[i]
		}
	}
	return names
}

// endpointName is the llm-d router's name of an endpoint.
func endpointName(e *endpoint.Endpoint) string {
	return e.Identity().Pod + "-rank-" + strconv.Itoa(e.Description().Rank)
}

// sample computes mean and deviation in one pass, with Welford's method.
type sample struct {
	n             int
	mean, squares float64
}

func (s *sample) addValue(v float64) {
	s.n++
	off := v - s.mean
	s.mean += off / float64(s.n)
	s.squares += off * (v - s.mean)
}

// standardDeviation returns the standard deviation, 0 for a single value.
func (s *sample) standardDeviation() float64 { return math.Sqrt(s.squares / float64(max(s.n-1, 1))) }
