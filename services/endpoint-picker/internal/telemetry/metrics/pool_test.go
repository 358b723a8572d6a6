package metrics

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/listener/decisionapi"
	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
	"fairlead.dev/services/endpoint-picker/internal/listener/httpproxy"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// poolOf registers all collectors over these endpoints, three seconds after noon.
func poolOf(t *testing.T, r prometheus.Registerer, endpoints ...*endpoint.Endpoint) *Metrics {
	t.Helper()
	m := New(r, Options{Streams: true})
	RegisterPool(PoolParams{
		Pool: "chat", Snapshot: func() *pool.Snapshot { return &pool.Snapshot{Endpoints: endpoints} }, Metrics: m, Queue: pool.NewQueue(clocktesting.NewFakePassiveClock(after(3 * time.Second))), Estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)),
		StaleAfter: 2 * time.Second, Saturation: func() float64 { return 0.75 }, Clock: clocktesting.NewFakePassiveClock(after(3 * time.Second)),
	}, r)
	return m
}

// everything registers all that there is, with something in it.
func everything(t *testing.T, r prometheus.Registerer) {
	t.Helper()
	e := learnedEndpoint("a", endpoint.Estimates{Slowdown: 1, PrefillRate: 1, BatchCapacity: 1})
	scrape(e, after(2*time.Second), endpoint.Gauges{Waiting: 1, Running: 1, KVUsage: 0.5})
	m := poolOf(t, r, e)
	snapshot := func() *pool.Snapshot { return &pool.Snapshot{Endpoints: []*endpoint.Endpoint{e}} }
	RegisterEndpoints(snapshot, clocktesting.NewFakePassiveClock(after(3*time.Second)), r)
	RegisterGateways(r, func() grpcserver.Stats { return grpcserver.Stats{Clients: 1} })
	RegisterDecisions(r, func() decisionapi.Stats { return decisionapi.Stats{Open: 1} })
	NewDecisions(r)
	RegisterProxy(r, func() httpproxy.Stats {
		return httpproxy.Stats{Servers: []httpproxy.ServerStats{{Address: "10.0.0.1:8000", Connections: 1}}}
	})
	NewConfig(r).ConfigLoaded("1f")
	RegisterCertificate(r, "ext_proc", time.Now)
	RegisterReplicas(r, func() replicas.Stats { return replicas.Stats{} })
	NewEndpointsFile(r)
	NewRules(r).OfNamespace()("inferenceobjectives", 1, 0)
	NewPools(r, "conflict")
	NewRecording(r)
	m.ObserveEjection("failures")
	m.ObserveRequest(&request.Record{Outcome: request.Completed, Status: 200})
	m.ObserveRequest(streamed(e))
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Queue: request.EvictedNoEndpoints, QueueTime: time.Minute}, Outcome: request.Refused, Status: 503})
}

func scrape(e *endpoint.Endpoint, at time.Time, g endpoint.Gauges) {
	e.RecordSample(e.StartScrape(at), g)
}

func TestPoolAsAutoscalersReadIt(t *testing.T) {
	t.Parallel()
	a, b, silent := newEndpoint("a"), newEndpoint("b"), newEndpoint("silent")
	scrape(a, after(2*time.Second), endpoint.Gauges{Waiting: 1, Running: 4, KVUsage: 0.2})
	scrape(b, after(2*time.Second), endpoint.Gauges{Waiting: 4, Running: 8, KVUsage: 0.8})
	a.Acquire()
	r := prometheus.NewPedanticRegistry()
	poolOf(t, r, a, b, silent)
	assertMetrics(t, r, `
# HELP llm_d_epp_average_kv_cache_utilization Mean over the endpoints: share of the KV cache in use.
# TYPE llm_d_epp_average_kv_cache_utilization gauge
llm_d_epp_average_kv_cache_utilization{name="chat"} 0.5
# HELP llm_d_epp_average_queue_size Mean over the endpoints: queued requests.
# TYPE llm_d_epp_average_queue_size gauge
llm_d_epp_average_queue_size{name="chat"} 2.5
# HELP llm_d_epp_average_running_requests Mean over the endpoints: running requests.
# TYPE llm_d_epp_average_running_requests gauge
llm_d_epp_average_running_requests{name="chat"} 6
# HELP llm_d_epp_flow_control_pool_saturation Saturation of the pool: 1 is full, more is overload.
# TYPE llm_d_epp_flow_control_pool_saturation gauge
llm_d_epp_flow_control_pool_saturation{inference_pool="chat",stage="effective"} 0.75
# HELP llm_d_epp_inflight_requests Requests of this picker in flight on the endpoint.
# TYPE llm_d_epp_inflight_requests gauge
llm_d_epp_inflight_requests{endpoint_name="a-rank-1",fairness_id="",namespace="ns",priority="",producer_name="inflight-load-producer"} 1
llm_d_epp_inflight_requests{endpoint_name="b-rank-1",fairness_id="",namespace="ns",priority="",producer_name="inflight-load-producer"} 0
llm_d_epp_inflight_requests{endpoint_name="silent-rank-1",fairness_id="",namespace="ns",priority="",producer_name="inflight-load-producer"} 0
# HELP llm_d_epp_per_endpoint_queue_size Requests queued on the endpoint, as of the last scrape.
# TYPE llm_d_epp_per_endpoint_queue_size gauge
llm_d_epp_per_endpoint_queue_size{model_server_endpoint="a-rank-1",name="chat"} 1
llm_d_epp_per_endpoint_queue_size{model_server_endpoint="b-rank-1",name="chat"} 4
llm_d_epp_per_endpoint_queue_size{model_server_endpoint="silent-rank-1",name="chat"} 0
# HELP llm_d_epp_ready_endpoints Endpoints available for picks.
# TYPE llm_d_epp_ready_endpoints gauge
llm_d_epp_ready_endpoints{name="chat"} 3
# HELP llm_d_epp_std_dev_queue_size Standard deviation over the endpoints: queued requests.
# TYPE llm_d_epp_std_dev_queue_size gauge
llm_d_epp_std_dev_queue_size{name="chat"} 2.1213203435596424
`, "llm_d_epp_average_kv_cache_utilization", "llm_d_epp_average_queue_size", "llm_d_epp_average_running_requests",
		"llm_d_epp_flow_control_pool_saturation", "llm_d_epp_inflight_requests", "llm_d_epp_per_endpoint_queue_size",
		"llm_d_epp_ready_endpoints", "llm_d_epp_std_dev_queue_size")
}

func TestAnEmptyPoolHasNoAverages(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	poolOf(t, r)
	assert.Empty(t, sums(t, r, upstream+"_average"))
	assert.Empty(t, sums(t, r, upstream+"_std_dev"))
	assert.Equal(t, "llm_d_epp_ready_endpoints{name=chat} 0\n", sums(t, r, upstream+"_ready"))
}

func TestNamesOfSeveralNamespaces(t *testing.T) {
	t.Parallel()
	of := func(namespace, pod string) *endpoint.Endpoint {
		return endpoint.New(endpoint.Description{Identity: endpoint.Identity{Namespace: namespace, Pod: pod}}, noon, nil)
	}
	r := prometheus.NewPedanticRegistry()
	poolOf(t, r, of("x", "a"), of("y", "a"), of("y", "b"))
	assert.Equal(t, `llm_d_epp_per_endpoint_queue_size{model_server_endpoint=b-rank-0,name=chat} 0
llm_d_epp_per_endpoint_queue_size{model_server_endpoint=x/a-rank-0,name=chat} 0
llm_d_epp_per_endpoint_queue_size{model_server_endpoint=y/a-rank-0,name=chat} 0
`, sums(t, r, upstream+"_per_endpoint"))
}

func TestPicksOfAnEndpointEndWithIt(t *testing.T) {
	t.Parallel()
	e := endpoint.New(endpoint.Description{
		Identity: endpoint.Identity{Namespace: "ns", Pod: "a", Address: netip.MustParseAddrPort("[2001:db8::1]:8200")},
	}, noon, nil)
	r := prometheus.NewPedanticRegistry()
	m := poolOf(t, r, e)
	m.ObserveRequest(streamed(e))
	m.ObserveRequest(streamed(e))
	m.ObserveRequest(streamed(newEndpoint("gone")))
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "chat"}, Outcome: request.Refused, Status: 503})
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "chat"}, Outcome: request.Refused, Status: 400})
	assertMetrics(t, r, `
# HELP llm_d_epp_scheduler_attempts_total Attempts to choose an endpoint, by status.
# TYPE llm_d_epp_scheduler_attempts_total counter
llm_d_epp_scheduler_attempts_total{endpoint_name="",namespace="",port="",status="failure",target_model_name="chat"} 1
llm_d_epp_scheduler_attempts_total{endpoint_name="a",namespace="ns",port="8200",status="success",target_model_name="chat-v2"} 2
`, "llm_d_epp_scheduler_attempts_total")
	assert.Len(t, m.requests.attempts.known, 2, "those of one that has gone are forgotten")
}

// TestWaitingRequestsOfManyModels has clients that invent names: series are bounded, and requests that no server got take no names of
// others.
func TestWaitingRequestsOfManyModels(t *testing.T) {
	t.Parallel()
	q := newRequests(prometheus.NewRegistry())
	var counts []pool.QueueCount
	for i := range 3 * maxSeries {
		counts = append(counts, pool.QueueCount{QueueLabels: pool.QueueLabels{Model: "m", Target: "m" + strconv.Itoa(i), Fairness: strconv.Itoa(i % 7)}, Requests: 1, Bytes: 2})
	}
	merged, requests := q.mergeCounts(counts), 0
	assert.LessOrEqual(t, len(merged), maxSeries+1)
	for _, c := range merged {
		requests += c.Requests
	}
	assert.Equal(t, 3*maxSeries, requests, "none is lost")
	assert.Empty(t, q.models.copies)
}
