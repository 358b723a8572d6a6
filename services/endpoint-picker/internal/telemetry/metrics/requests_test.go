package metrics

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

func newEndpoint(pod string) *endpoint.Endpoint {
	return endpoint.New(endpoint.Description{
		Identity: endpoint.Identity{Namespace: "ns", Pod: pod, Address: netip.MustParseAddrPort("10.0.0.1:8000")}, Rank: 1,
	}, noon, nil)
}

func after(d time.Duration) time.Time { return noon.Add(d) }

// streamed is a streamed answer of 101 tokens in 51 pieces: a pick of 1 ms after 3 ms, 200 ms to the first, 2 s in all.
func streamed(e *endpoint.Endpoint) *request.Record {
	return &request.Record{
		PickRecord: request.PickRecord{
			Model: "chat", Target: "chat-v2", Rewrite: "ns/canary", Fairness: "tenant", Priority: 2, Streaming: true,
			Endpoint:     e,
			PickDuration: time.Millisecond,
			PromptTokens: 800, MatchedTokens: 600,
		},
		Outcome: request.Completed, Served: e.Address(), Status: 200,
		StartTime: noon, ArrivalTime: after(3 * time.Millisecond), FirstContent: after(200 * time.Millisecond), LastContent: after(2 * time.Second), EndTime: after(2 * time.Second),
		RequestBytes: 3000, ResponseBytes: 20_000, ContentPieces: 51,
		Usage: request.Usage{Known: true, Prompt: 790, Output: 101, Cached: 640},
	}
}

// sums writes count and sum of each histogram, and the value of everything else, one a line.
func sums(t *testing.T, g prometheus.Gatherer, prefix string) string {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d of %.6g", h.GetSampleCount(), h.GetSampleSum())
			}
			fmt.Fprintf(&b, "%s{%s} %s\n", f.GetName(), strings.Join(labels, ","), value)
		}
	}
	return b.String()
}

func TestAStreamedAnswerIsInAllMetricsOfRequests(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	m.StreamStarted()
	m.ObserveRequest(streamed(newEndpoint("a")))
	const set = "fairness_id=tenant,model_name=chat,priority=2,target_model_name=chat-v2"
	assert.Equal(t, `llm_d_epp_datalayer_poll_errors_total{source_type=metrics-data-source} 0
llm_d_epp_model_rewrite_decisions_total{model_name=chat,model_rewrite_name=canary,target_model=chat-v2} 1
llm_d_epp_prefix_indexer_hit_bytes{plugin_name=approx-prefix-cache-producer,plugin_type=approx-prefix-cache-producer} 1 of 2400
llm_d_epp_prefix_indexer_hit_ratio{plugin_name=approx-prefix-cache-producer,plugin_type=approx-prefix-cache-producer} 1 of 0.75
llm_d_epp_request_cached_tokens{`+set+`} 1 of 640
llm_d_epp_request_duration_seconds{`+set+`} 1 of 2
llm_d_epp_request_input_tokens{`+set+`} 1 of 790
llm_d_epp_request_ntpot_seconds{`+set+`} 1 of 0.019802
llm_d_epp_request_output_tokens{`+set+`} 1 of 101
llm_d_epp_request_processing_duration_seconds{} 1 of 0.004
llm_d_epp_request_running{`+set+`} 0
llm_d_epp_request_size_bytes{`+set+`} 1 of 3000
llm_d_epp_request_streaming_itl_seconds{`+set+`} 50 of 1.8
llm_d_epp_request_streaming_tpot_seconds{`+set+`} 1 of 0.018
llm_d_epp_request_total{`+set+`} 1
llm_d_epp_request_ttft_seconds{fairness_id=tenant,model_name=chat,priority=2,streaming=true,target_model_name=chat-v2} 1 of 0.2
llm_d_epp_response_size_bytes{`+set+`} 1 of 20000
llm_d_epp_scheduler_e2e_duration_seconds{} 1 of 0.001
`, sums(t, r, upstream))
	assert.Contains(t, sums(t, r, namespace), "fairlead_picker_streams_in_flight{} 0\n")
	assert.Contains(t, sums(t, r, namespace), "fairlead_picker_responses_total{code=200,served=picked} 1\n")
	assert.Contains(t, sums(t, r, namespace), "fairlead_picker_streams_total{outcome=completed} 1\n")
}

func TestBucketsAreThoseThatDashboardsKnow(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	New(r, Options{}).ObserveRequest(streamed(newEndpoint("a")))
	assertMetrics(t, r, `
# HELP llm_d_epp_request_streaming_itl_seconds Time between two chunks of a streamed answer, averaged per answer.
# TYPE llm_d_epp_request_streaming_itl_seconds histogram
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.001"} 0
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.005"} 0
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.01"} 0
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.02"} 0
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.04"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.06"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.08"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.1"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.15"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.2"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.3"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.5"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="0.75"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="1"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="2"} 50
llm_d_epp_request_streaming_itl_seconds_bucket{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2",le="+Inf"} 50
llm_d_epp_request_streaming_itl_seconds_sum{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2"} 1.8
llm_d_epp_request_streaming_itl_seconds_count{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2"} 50
# HELP llm_d_epp_scheduler_e2e_duration_seconds Time to choose an endpoint.
# TYPE llm_d_epp_scheduler_e2e_duration_seconds histogram
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.0001"} 0
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.0002"} 0
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.0005"} 0
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.001"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.002"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.005"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.01"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.02"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.05"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="0.1"} 1
llm_d_epp_scheduler_e2e_duration_seconds_bucket{le="+Inf"} 1
llm_d_epp_scheduler_e2e_duration_seconds_sum 0.001
llm_d_epp_scheduler_e2e_duration_seconds_count 1
`, "llm_d_epp_request_streaming_itl_seconds", "llm_d_epp_scheduler_e2e_duration_seconds")
	assert.Len(t, latencyBuckets, 35)
	assert.Equal(t, 120.0, firstTokenBuckets[len(firstTokenBuckets)-1])
	assert.Equal(t, float64(1<<30), requestSizeBuckets[len(requestSizeBuckets)-1])
	assert.Equal(t, 1048576.0, tokenBuckets[len(tokenBuckets)-1])
	assert.Equal(t, 8192.0, outputBuckets[len(outputBuckets)-1])
}

func TestWhatIsNotKnownIsNotObserved(t *testing.T) {
	t.Parallel()
	e := newEndpoint("a")
	tests := []struct {
		name   string
		change func(r *request.Record)
		absent []string
	}{
		{
			name:   "a server that does not say what it used",
			change: func(r *request.Record) { r.Usage = request.Usage{} },
			absent: []string{"request_input_tokens", "request_output_tokens", "request_cached_tokens", "request_ntpot_seconds", "request_streaming_tpot_seconds"},
		},
		{
			name:   "one that does not say what was cached",
			change: func(r *request.Record) { r.Usage.Cached = 0 },
			absent: []string{"request_cached_tokens"},
		},
		{
			name:   "an embedding has no answer",
			change: func(r *request.Record) { r.Usage.Output = 0; r.Streaming = false },
			absent: []string{"request_output_tokens", "request_ntpot_seconds", "request_streaming_tpot_seconds", "request_streaming_itl_seconds"},
		},
		{
			name:   "an answer in one piece",
			change: func(r *request.Record) { r.Streaming = false },
			absent: []string{"request_streaming_tpot_seconds", "request_streaming_itl_seconds"},
		},
		{
			name:   "no body of the response was shown",
			change: func(r *request.Record) { r.Outcome = request.Unseen; r.Status = 0 },
			absent: []string{"request_duration_seconds", "response_size_bytes", "request_output_tokens", "request_streaming_itl_seconds"},
		},
		{
			name:   "an error is fast for no merit",
			change: func(r *request.Record) { r.Status = 500 },
			absent: []string{"request_output_tokens", "request_ntpot_seconds", "request_streaming_itl_seconds"},
		},
		{
			name:   "no prompt",
			change: func(r *request.Record) { r.PromptTokens = 0 },
			absent: []string{"prefix_indexer_hit_ratio", "prefix_indexer_hit_bytes"},
		},
	}
	all := []string{
		"request_input_tokens", "request_output_tokens", "request_cached_tokens", "request_ntpot_seconds", "request_streaming_tpot_seconds",
		"request_streaming_itl_seconds", "request_duration_seconds", "response_size_bytes", "prefix_indexer_hit_ratio", "prefix_indexer_hit_bytes",
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := prometheus.NewPedanticRegistry()
			whole := streamed(e)
			New(r, Options{}).ObserveRequest(whole)
			assert.NotContains(t, sums(t, r, upstream), "} 0 of 0", "of a whole record all is observed")

			r = prometheus.NewPedanticRegistry()
			record := streamed(e)
			tt.change(record)
			New(r, Options{}).ObserveRequest(record)
			got := sums(t, r, upstream)
			for _, name := range all {
				empty := false
				for line := range strings.Lines(got) {
					empty = empty || strings.HasPrefix(line, upstream+"_"+name+"{") && strings.HasSuffix(line, " 0 of 0\n")
				}
				if slices.Contains(tt.absent, name) {
					assert.True(t, empty, name)
				}
			}
		})
	}
	assert.False(t, func() bool { // a cache that had nothing is known if the server says so
		r := prometheus.NewPedanticRegistry()
		record := streamed(e)
		record.Usage.Cached, record.Usage.CachedKnown = 0, true
		New(r, Options{}).ObserveRequest(record)
		return strings.Contains(sums(t, r, upstream), "} 0 of 0")
	}())
}

func TestRequestsThatFail(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	for _, status := range []int{400, 401, 403, 404, 412, 413, 429, 500, 503, 502} {
		m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "m"}, Outcome: request.Refused, Status: status})
	}
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "m", Endpoint: newEndpoint("a")}, Outcome: request.Completed, Status: 404})
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "m"}, Outcome: request.Failed})
	m.ObserveRequest(&request.Record{PickRecord: request.PickRecord{Model: "m"}, Outcome: request.Unpicked})
	const set = `fairness_id="default-flow",model_name="m",priority="0",target_model_name="m"`
	assertMetrics(t, r, `
# HELP llm_d_epp_request_error_total Requests that failed in the picker or at the model server.
# TYPE llm_d_epp_request_error_total counter
llm_d_epp_request_error_total{error_code="BadRequest",`+set+`} 2
llm_d_epp_request_error_total{error_code="Forbidden",`+set+`} 1
llm_d_epp_request_error_total{error_code="Internal",`+set+`} 1
llm_d_epp_request_error_total{error_code="ModelServerError",`+set+`} 1
llm_d_epp_request_error_total{error_code="NotFound",`+set+`} 1
llm_d_epp_request_error_total{error_code="PreconditionFailed",`+set+`} 1
llm_d_epp_request_error_total{error_code="ResourceExhausted",`+set+`} 1
llm_d_epp_request_error_total{error_code="ServiceUnavailable",`+set+`} 1
llm_d_epp_request_error_total{error_code="Unauthorized",`+set+`} 1
llm_d_epp_request_error_total{error_code="Unknown",`+set+`} 2
# HELP llm_d_epp_request_total Requests sent to an endpoint.
# TYPE llm_d_epp_request_total counter
llm_d_epp_request_total{`+set+`} 1
`, "llm_d_epp_request_error_total", "llm_d_epp_request_total")
}

func TestRequestsThatRun(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	running := func() float64 { return testutil.ToFloat64(m.requests.running) }
	first, second := streamed(newEndpoint("a")), streamed(newEndpoint("a"))
	for _, record := range []*request.Record{first, second} {
		m.StreamStarted()
		record.Placed = true
		m.RequestPlaced(record)
	}
	assert.Equal(t, 2.0, running())
	assert.Equal(t, 2.0, testutil.ToFloat64(m.requests.total), "counted when they are placed")
	m.ObserveRequest(first)
	assert.Equal(t, 1.0, running())
	second.Outcome = request.Interrupted
	m.ObserveRequest(second)
	assert.Zero(t, running())
	assert.Equal(t, 2.0, testutil.ToFloat64(m.requests.total), "and not again")
}

func TestStreamsOfGRPC(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{Streams: true})
	for range 3 {
		m.StreamStarted()
	}
	m.ObserveRequest(streamed(newEndpoint("a")))
	m.ObserveRequest(&request.Record{Outcome: request.Failed, Code: codes.InvalidArgument, StartTime: noon, EndTime: noon})
	assert.Equal(t, `llm_d_epp_extproc_stream_duration_seconds{} 2 of 2
llm_d_epp_extproc_streams_inflight{} 1
llm_d_epp_extproc_streams_total{code=InvalidArgument} 1
llm_d_epp_extproc_streams_total{code=OK} 1
`, sums(t, r, upstream+"_extproc"))

	r = prometheus.NewPedanticRegistry()
	New(r, Options{}).ObserveRequest(streamed(newEndpoint("a")))
	assert.Empty(t, sums(t, r, upstream+"_extproc"), "only if wanted")
}

func TestClientsCannotMakeSeriesWithoutEnd(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	m.PinModels("ours")
	record := streamed(newEndpoint("a"))
	record.Rewrite = ""
	for i := range 2500 {
		record.Model = fmt.Sprintf("model-%d", i)
		record.Target = record.Model
		m.ObserveRequest(record)
	}
	for i := range 2500 { // of few models, and of too many tenants
		record.Model, record.Target = "model-1", "model-1"
		record.Fairness = fmt.Sprintf("tenant-%d", i)
		m.ObserveRequest(record)
	}
	record.Model, record.Target = "ours", "ours"
	m.ObserveRequest(record)
	record.Model, record.Target, record.Fairness = "model-1", "model-1", "tenant"
	m.ObserveRequest(record)

	known := *m.requests.known.Load()
	assert.LessOrEqual(t, len(known), maxSeries+2)
	counts := map[labels]float64{}
	for l, s := range known {
		counts[l] = testutil.ToFloat64(s.total)
	}
	assert.Equal(t, 1.0, counts[labels{"ours", "ours", otherName, 2}], "models that are configured keep their names")
	assert.Equal(t, 2.0, counts[labels{"model-1", "model-1", "tenant", 2}], "and so do those that came in time")
	assert.Equal(t, 1500.0+2500, counts[labels{otherName, otherName, otherName, 2}]+counts[labels{otherName, otherName, "tenant", 2}])
	total := 0.0
	for n := range maps.Values(counts) {
		total += n
	}
	assert.Equal(t, 5002.0, total, "nothing is lost")
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := newLimiter(2)
	l.allowValue("pinned")
	for _, tt := range []struct{ give, want string }{
		{"a", "a"}, {"", ""}, {"b", "b"}, {"c", otherName}, {"a", "a"}, {"pinned", "pinned"}, {"c", otherName},
	} {
		assert.Equal(t, tt.want, l.boundLabel(tt.give))
	}
	assert.Len(t, l.copies, 2)
}

func FuzzPrintable(f *testing.F) {
	f.Add("chat")
	f.Add(strings.Repeat("ä", 200))
	f.Add("a\xff\xfeb" + strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, s string) {
		got := toPrintable(s)
		assert.True(t, utf8.ValidString(got))
		assert.LessOrEqual(t, len(got), maxLength)
		assert.Equal(t, got, toPrintable(got))
		if utf8.ValidString(s) && len(s) <= maxLength {
			assert.Equal(t, s, got)
		}
	})
}

func TestStrangeNamesAreLabels(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	record := streamed(newEndpoint("a"))
	record.Model, record.Target, record.Fairness, record.Rewrite = "\xff\xfe", strings.Repeat("x", 999), "a\"b\nc", "\xff"
	m.ObserveRequest(record)
	m.ObserveRequest(record)
	assert.Contains(t, sums(t, r, upstream), `llm_d_epp_request_total{fairness_id=a"b
c,model_name=?,priority=2,target_model_name=`+strings.Repeat("x", maxLength)+`} 2`)
}

// The record's strings may be parts of buffers that are used again.
func TestNothingOfARecordIsKept(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{})
	freed := make(chan struct{})
	func() {
		body := new([1 << 16]byte)
		runtime.AddCleanup(body, func(done chan struct{}) { close(done) }, freed)
		record := streamed(newEndpoint("a"))
		copy(body[:], "chat")
		record.Model = unsafeString(body[:4])
		record.Target, record.Fairness, record.Rewrite = record.Model, record.Model, record.Model
		m.ObserveRequest(record)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	}, kubetest.Patience, time.Millisecond, "the body is still in use")
	runtime.KeepAlive(m)
}

func TestObservingAllocatesNothing(t *testing.T) {
	m := New(prometheus.NewRegistry(), Options{Streams: true})
	e := newEndpoint("a")
	ended, failed, refused := streamed(e), streamed(e), &request.Record{PickRecord: request.PickRecord{Model: "chat"}, Outcome: request.Refused, Status: 503}
	ended.Placed = true
	failed.Status = 500
	observe := func() {
		m.StreamStarted()
		m.RequestPlaced(ended)
		m.ObserveRequest(ended)
		m.ObserveRequest(failed)
		m.ObserveRequest(refused)
		m.ObservePick(time.Microsecond, nil)
	}
	observe()
	assert.Zero(t, testing.AllocsPerRun(100, observe))

	for i := range maxSeries + 10 {
		ended.Fairness = fmt.Sprintf("tenant-%d", i)
		m.ObserveRequest(ended)
	}
	assert.Zero(t, testing.AllocsPerRun(100, observe), "nor for labels that are beyond the limit")
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := New(r, Options{Streams: true})
	e := newEndpoint("a")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 200 {
				record := streamed(e)
				record.Fairness, record.Placed = fmt.Sprint(i%50), true
				m.StreamStarted()
				m.RequestPlaced(record)
				m.ObserveRequest(record)
			}
		})
	}
	for range 20 {
		_, err := r.Gather()
		require.NoError(t, err)
	}
	group.Wait()
	total, running := 0.0, 0.0
	for _, s := range *m.requests.known.Load() {
		total += testutil.ToFloat64(s.total)
		running += testutil.ToFloat64(s.running)
	}
	assert.Equal(t, 1600.0, total)
	assert.Zero(t, running)
}

func BenchmarkObserveRequest(b *testing.B) {
	m := New(prometheus.NewRegistry(), Options{})
	record := streamed(newEndpoint("a"))
	record.Placed = true
	b.ReportAllocs()
	for b.Loop() {
		m.StreamStarted()
		m.RequestPlaced(record)
		m.ObserveRequest(record)
	}
}

func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }
