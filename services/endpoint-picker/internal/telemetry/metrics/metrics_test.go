package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func assertMetrics(t *testing.T, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	assert.NoError(t, testutil.GatherAndCompare(g, strings.NewReader(want), names...))
}

func TestPicksByResult(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	m.ObservePick(time.Microsecond, nil)
	m.ObservePick(time.Microsecond, nil)
	m.ObservePick(time.Microsecond, fmt.Errorf("%w: no pool", scheduling.ErrNoEndpoints))
	m.ObservePick(time.Microsecond, scheduling.ErrNoneInSubset)
	m.ObservePick(time.Microsecond, scheduling.ErrFiltered)
	m.ObservePick(time.Microsecond, fmt.Errorf("%w: at byte 7", api.ErrMalformed))
	m.ObservePick(time.Microsecond, scheduling.ErrSaturated)
	m.ObservePick(time.Microsecond, scheduling.ErrNoCapacity)
	assertMetrics(t, r, `
# HELP fairlead_picker_picks_total Requests that needed an endpoint, by result.
# TYPE fairlead_picker_picks_total counter
fairlead_picker_picks_total{result="filtered"} 1
fairlead_picker_picks_total{result="malformed"} 1
fairlead_picker_picks_total{result="no_capacity"} 1
fairlead_picker_picks_total{result="no_endpoints"} 1
fairlead_picker_picks_total{result="none_in_subset"} 1
fairlead_picker_picks_total{result="picked"} 2
fairlead_picker_picks_total{result="shed"} 1
`, "fairlead_picker_picks_total")
	assert.Equal(t, 1, testutil.CollectAndCount(m.pickDuration.(prometheus.Histogram)))
}

func TestStreams(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	for range 6 {
		m.StreamStarted()
	}
	moved := newEndpoint("a")
	m.ObserveRequest(&request.Record{Outcome: request.Completed, Status: 200})
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Endpoint: moved}, Outcome: request.Completed, Status: 200, Served: "10.0.0.9:8000"})
	m.ObserveRequest(&request.Record{Outcome: request.Interrupted, Status: 777})
	m.ObserveRequest(&request.Record{Outcome: request.Refused, Status: 503})
	m.ObserveRequest(&request.Record{Outcome: request.Unseen})
	assertMetrics(t, r, `
# HELP fairlead_picker_responses_total Observed responses of model servers, by status and by whether the picked endpoint served them.
# TYPE fairlead_picker_responses_total counter
fairlead_picker_responses_total{code="200",served="other"} 1
fairlead_picker_responses_total{code="200",served="picked"} 1
fairlead_picker_responses_total{code="other",served="picked"} 1
# HELP fairlead_picker_streams_in_flight Open ext_proc streams, and open requests at the proxy listener.
# TYPE fairlead_picker_streams_in_flight gauge
fairlead_picker_streams_in_flight 1
# HELP fairlead_picker_streams_total Finished exchanges, by outcome: ext_proc streams, and requests at the proxy listener.
# TYPE fairlead_picker_streams_total counter
fairlead_picker_streams_total{outcome="completed"} 2
fairlead_picker_streams_total{outcome="failed"} 0
fairlead_picker_streams_total{outcome="interrupted"} 1
fairlead_picker_streams_total{outcome="refused"} 1
fairlead_picker_streams_total{outcome="unpicked"} 0
fairlead_picker_streams_total{outcome="unseen"} 1
`, "fairlead_picker_responses_total", "fairlead_picker_streams_in_flight", "fairlead_picker_streams_total")
}

func TestScrapes(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	m.ObserveScrape(time.Millisecond, nil)
	m.ObserveScrape(time.Millisecond, errors.New("refused"))
	m.ObserveScrape(time.Millisecond, errors.New("refused"))
	assertMetrics(t, r, `
# HELP fairlead_picker_scrapes_total Scrapes of model servers' metrics, by result.
# TYPE fairlead_picker_scrapes_total counter
fairlead_picker_scrapes_total{result="error"} 2
fairlead_picker_scrapes_total{result="ok"} 1
`, "fairlead_picker_scrapes_total")
}

func TestEndpointsOfTheMoment(t *testing.T) {
	t.Parallel()
	e := newEndpoint("a")
	e.Acquire()
	e.RecordSample(e.StartScrape(noon.Add(time.Second)), endpoint.Gauges{Waiting: 1, Running: 2, KVUsage: 0.5})
	e.Acquire().Release()
	e.RecordFailure(e.StartScrape(noon.Add(time.Second)))
	for _, result := range []endpoint.Result{endpoint.ResultAnswered, endpoint.ResultServerError, endpoint.ResultAnswered} {
		e.CountResult(result)
	}

	var snapshot *pool.Snapshot
	r := prometheus.NewPedanticRegistry()
	RegisterEndpoints(func() *pool.Snapshot { return snapshot }, clocktesting.NewFakePassiveClock(noon.Add(3*time.Second)), r)

	snapshot = &pool.Snapshot{Endpoints: []*endpoint.Endpoint{e}}
	assertMetrics(t, r, `
# HELP fairlead_picker_endpoint_backlog_seconds Time that the endpoint needs for the prompt tokens that it owes to this picker, at the learned speed.
# TYPE fairlead_picker_endpoint_backlog_seconds gauge
fairlead_picker_endpoint_backlog_seconds{endpoint="10.0.0.1:8000",pod="a",role=""} 0
# HELP fairlead_picker_endpoint_kv_cache_usage Share of the endpoint's KV cache in use, as of the last scrape.
# TYPE fairlead_picker_endpoint_kv_cache_usage gauge
fairlead_picker_endpoint_kv_cache_usage{endpoint="10.0.0.1:8000",pod="a",role=""} 0.5
# HELP fairlead_picker_endpoint_picks_total Requests sent to the endpoint.
# TYPE fairlead_picker_endpoint_picks_total counter
fairlead_picker_endpoint_picks_total{endpoint="10.0.0.1:8000",pod="a",role=""} 2
# HELP fairlead_picker_endpoint_prefix_expected_tokens_total Tokens of these prompts that the picker expected in the endpoint's prefix cache. The ratio to the prompt tokens is the expected hit rate.
# TYPE fairlead_picker_endpoint_prefix_expected_tokens_total counter
fairlead_picker_endpoint_prefix_expected_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 0
# HELP fairlead_picker_endpoint_prefix_prompt_tokens_total Prompt tokens of this picker's requests for which the endpoint reported how many it had cached, in answers or else on its page.
# TYPE fairlead_picker_endpoint_prefix_prompt_tokens_total counter
fairlead_picker_endpoint_prefix_prompt_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 0
# HELP fairlead_picker_endpoint_prefix_reported_tokens_total Tokens of these prompts that the endpoint reported as cached. The ratio to the prompt tokens is the real hit rate.
# TYPE fairlead_picker_endpoint_prefix_reported_tokens_total counter
fairlead_picker_endpoint_prefix_reported_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 0
# HELP fairlead_picker_endpoint_prompt_tokens_owed Prompt tokens sent by this picker that the endpoint has neither cached nor computed yet.
# TYPE fairlead_picker_endpoint_prompt_tokens_owed gauge
fairlead_picker_endpoint_prompt_tokens_owed{endpoint="10.0.0.1:8000",pod="a",role=""} 0
# HELP fairlead_picker_endpoint_requests_in_flight Requests of this picker in flight on the endpoint.
# TYPE fairlead_picker_endpoint_requests_in_flight gauge
fairlead_picker_endpoint_requests_in_flight{endpoint="10.0.0.1:8000",pod="a",role=""} 1
# HELP fairlead_picker_endpoint_requests_running Requests running on the endpoint, as of the last scrape.
# TYPE fairlead_picker_endpoint_requests_running gauge
fairlead_picker_endpoint_requests_running{endpoint="10.0.0.1:8000",pod="a",role=""} 2
# HELP fairlead_picker_endpoint_requests_waiting Requests queued on the endpoint, as of the last scrape.
# TYPE fairlead_picker_endpoint_requests_waiting gauge
fairlead_picker_endpoint_requests_waiting{endpoint="10.0.0.1:8000",pod="a",role=""} 1
# HELP fairlead_picker_endpoint_responses_total Responses of the endpoint, and failed attempts at it, by result: answered; 3xx, 4xx, 5xx; incomplete: an error, nothing, or the beginning of an answer, with a good status; none: no response. A request that another endpoint answered in the end counts for each endpoint that was tried.
# TYPE fairlead_picker_endpoint_responses_total counter
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="3xx",role=""} 0
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="4xx",role=""} 0
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="5xx",role=""} 1
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="answered",role=""} 2
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="incomplete",role=""} 0
fairlead_picker_endpoint_responses_total{endpoint="10.0.0.1:8000",pod="a",result="none",role=""} 0
# HELP fairlead_picker_endpoint_sample_age_seconds Time since the last successful scrape of the endpoint, or since its discovery.
# TYPE fairlead_picker_endpoint_sample_age_seconds gauge
fairlead_picker_endpoint_sample_age_seconds{endpoint="10.0.0.1:8000",pod="a",role=""} 2
# HELP fairlead_picker_endpoint_scrape_failures_total Failed scrapes of the endpoint.
# TYPE fairlead_picker_endpoint_scrape_failures_total counter
fairlead_picker_endpoint_scrape_failures_total{endpoint="10.0.0.1:8000",pod="a",role=""} 1
# HELP fairlead_picker_endpoint_wait_factor Learned slowdown of the endpoint relative to its pool.
# TYPE fairlead_picker_endpoint_wait_factor gauge
fairlead_picker_endpoint_wait_factor{endpoint="10.0.0.1:8000",pod="a",role=""} 1
# HELP fairlead_picker_endpoints_ready Endpoints available for picks.
# TYPE fairlead_picker_endpoints_ready gauge
fairlead_picker_endpoints_ready 1
# HELP fairlead_picker_pool_backlog_seconds Sum over the endpoints of a role: time for the prompt tokens that they owe to this picker.
# TYPE fairlead_picker_pool_backlog_seconds gauge
fairlead_picker_pool_backlog_seconds{role=""} 0
# HELP fairlead_picker_pool_endpoints Endpoints of the pool, by role.
# TYPE fairlead_picker_pool_endpoints gauge
fairlead_picker_pool_endpoints{role=""} 1
# HELP fairlead_picker_pool_found 1 if the InferencePool is known.
# TYPE fairlead_picker_pool_found gauge
fairlead_picker_pool_found 1
# HELP fairlead_picker_pool_prompt_tokens_owed Sum over the endpoints of a role: prompt tokens sent by this picker that are neither cached nor computed yet.
# TYPE fairlead_picker_pool_prompt_tokens_owed gauge
fairlead_picker_pool_prompt_tokens_owed{role=""} 0
# HELP fairlead_picker_pool_requests_running Sum over the endpoints of a role: running requests, as of the last scrapes.
# TYPE fairlead_picker_pool_requests_running gauge
fairlead_picker_pool_requests_running{role=""} 2
# HELP fairlead_picker_pool_requests_waiting Sum over the endpoints of a role: queued requests, as of the last scrapes.
# TYPE fairlead_picker_pool_requests_waiting gauge
fairlead_picker_pool_requests_waiting{role=""} 1
`)

	snapshot = &pool.Snapshot{Err: pool.ErrNoPool}
	assertMetrics(t, r, `
# HELP fairlead_picker_endpoints_ready Endpoints available for picks.
# TYPE fairlead_picker_endpoints_ready gauge
fairlead_picker_endpoints_ready 0
# HELP fairlead_picker_pool_found 1 if the InferencePool is known.
# TYPE fairlead_picker_pool_found gauge
fairlead_picker_pool_found 0
`)
}

// learned is an observer with fixed estimates.
type learned struct{ of endpoint.Estimates }

func (l learned) Estimates() endpoint.Estimates { return l.of }
func (learned) ObservePage(*endpoint.Sample)    {}
func (learned) HeldTokens() int64               { return 0 }

func learnedEndpoint(pod string, of endpoint.Estimates) *endpoint.Endpoint {
	return endpoint.New(*newEndpoint(pod).Description(), noon, learned{of})
}

// TestLearnedValuesOfEndpoints: what is not known has no series, as 0 would be a value.
func TestLearnedValuesOfEndpoints(t *testing.T) {
	t.Parallel()
	var snapshot *pool.Snapshot
	r := prometheus.NewPedanticRegistry()
	RegisterEndpoints(func() *pool.Snapshot { return snapshot }, clocktesting.NewFakePassiveClock(noon), r)
	snapshot = &pool.Snapshot{Endpoints: []*endpoint.Endpoint{
		learnedEndpoint("a", endpoint.Estimates{
			Slowdown: 2, Backlog: 30_000, PrefillRate: 12_000, BacklogTime: 2500 * time.Millisecond, BatchCapacity: 48,
			Prefix: endpoint.PrefixTokens{Prompt: 1000, Expected: 800, Reported: 640},
		}),
		learnedEndpoint("new", endpoint.Estimates{Slowdown: 1}),
	}}
	assertMetrics(t, r, `
# HELP fairlead_picker_endpoint_backlog_seconds Time that the endpoint needs for the prompt tokens that it owes to this picker, at the learned speed.
# TYPE fairlead_picker_endpoint_backlog_seconds gauge
fairlead_picker_endpoint_backlog_seconds{endpoint="10.0.0.1:8000",pod="a",role=""} 2.5
fairlead_picker_endpoint_backlog_seconds{endpoint="10.0.0.1:8000",pod="new",role=""} 0
# HELP fairlead_picker_endpoint_batch_capacity Learned number of requests that the endpoint runs at once. Absent until it has had a queue behind a full batch.
# TYPE fairlead_picker_endpoint_batch_capacity gauge
fairlead_picker_endpoint_batch_capacity{endpoint="10.0.0.1:8000",pod="a",role=""} 48
# HELP fairlead_picker_endpoint_prefill_tokens_per_second Learned speed at which the endpoint computes prompt tokens. Absent until 50 first tokens have shown it.
# TYPE fairlead_picker_endpoint_prefill_tokens_per_second gauge
fairlead_picker_endpoint_prefill_tokens_per_second{endpoint="10.0.0.1:8000",pod="a",role=""} 12000
# HELP fairlead_picker_endpoint_prefix_expected_tokens_total Tokens of these prompts that the picker expected in the endpoint's prefix cache. The ratio to the prompt tokens is the expected hit rate.
# TYPE fairlead_picker_endpoint_prefix_expected_tokens_total counter
fairlead_picker_endpoint_prefix_expected_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 800
fairlead_picker_endpoint_prefix_expected_tokens_total{endpoint="10.0.0.1:8000",pod="new",role=""} 0
# HELP fairlead_picker_endpoint_prefix_prompt_tokens_total Prompt tokens of this picker's requests for which the endpoint reported how many it had cached, in answers or else on its page.
# TYPE fairlead_picker_endpoint_prefix_prompt_tokens_total counter
fairlead_picker_endpoint_prefix_prompt_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 1000
fairlead_picker_endpoint_prefix_prompt_tokens_total{endpoint="10.0.0.1:8000",pod="new",role=""} 0
# HELP fairlead_picker_endpoint_prefix_reported_tokens_total Tokens of these prompts that the endpoint reported as cached. The ratio to the prompt tokens is the real hit rate.
# TYPE fairlead_picker_endpoint_prefix_reported_tokens_total counter
fairlead_picker_endpoint_prefix_reported_tokens_total{endpoint="10.0.0.1:8000",pod="a",role=""} 640
fairlead_picker_endpoint_prefix_reported_tokens_total{endpoint="10.0.0.1:8000",pod="new",role=""} 0
`, "fairlead_picker_endpoint_backlog_seconds", "fairlead_picker_endpoint_batch_capacity", "fairlead_picker_endpoint_prefill_tokens_per_second",
		"fairlead_picker_endpoint_prefix_expected_tokens_total", "fairlead_picker_endpoint_prefix_prompt_tokens_total",
		"fairlead_picker_endpoint_prefix_reported_tokens_total")
}

// The names of the other set are not ours to choose.
func TestMetricsFollowTheNamingRules(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, upstream) {
			assert.Fail(t, p.Metric, p.Text)
		}
	}
}
