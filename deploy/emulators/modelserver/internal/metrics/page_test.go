package metrics

import (
	"bytes"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/steptime"
)

var (
	testSpec = engine.Spec{
		MaxNumSeqs: 2, MaxNumBatchedTokens: 1000, NumBlocks: 100, BlockSize: 16, MaxModelLen: 1600, MaxLoRAs: 4,
		Law:   steptime.Law{Base: 10 * time.Millisecond, PerSeq: time.Millisecond, PerToken: 100 * time.Microsecond},
		Speed: 1,
	}
	started = time.Unix(1_763_640_000, 250_000_000)
	now     = started.Add(time.Hour)
)

func newTestPage() *Page {
	return NewPage(Params{Model: `a "model"`, Spec: testSpec, Started: started, Names: BothNames, LoRA: true})
}

// busyEngine returns an engine with one finished, one aborted, two running and one waiting request.
func busyEngine(t *testing.T) *engine.Engine {
	t.Helper()
	e := engine.New(testSpec)
	submit := func(at time.Duration, prompt []uint32, out int, adapter string) *engine.Request {
		r := engine.NewRequest(engine.Params{
			Prompt: prompt, Output: tokens.FourBytes{}.Generate(1, out), Reason: engine.ReasonStop, MaxTokens: 20, Choices: 1, Adapter: adapter,
		}, testSpec.BlockSize)
		require.NoError(t, e.Submit(at, r))
		return r
	}
	shared := tokens.FourBytes{}.Generate(2, 100)
	submit(0, shared, 5, "")
	e.Abort(time.Second, submit(time.Second, shared, 5, ""))
	submit(2*time.Second, shared, 50, "")
	submit(2*time.Second, tokens.FourBytes{}.Generate(3, 50), 50, "lora-b")
	submit(2*time.Second, tokens.FourBytes{}.Generate(4, 50), 50, "lora-a")
	e.Advance(2200 * time.Millisecond)
	return e
}

func parse(t *testing.T, page []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	require.NoError(t, err)
	return families
}

func labelsOf(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.GetLabel() {
		pairs = append(pairs, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(pairs, " ")
}

func TestPageSaysWhatTheEngineCounted(t *testing.T) {
	t.Parallel()
	stats := busyEngine(t).Stats()
	require.Equal(t, []int{2, 1}, []int{stats.Running, stats.Waiting})
	families := parse(t, newTestPage().Append(nil, &stats, now))

	single := map[string]float64{
		"vllm:num_requests_running":                2,
		"vllm:num_requests_waiting":                1,
		"vllm:kv_cache_usage_perc":                 float64(stats.BlocksUsed) / 100,
		"vllm:gpu_cache_usage_perc":                float64(stats.BlocksUsed) / 100,
		"vllm:prefix_cache_queries_total":          350,
		"vllm:prefix_cache_hits_total":             2 * 96,
		"vllm:gpu_prefix_cache_queries_total":      350,
		"vllm:gpu_prefix_cache_hits_total":         2 * 96,
		"vllm:external_prefix_cache_queries_total": 0,
		"vllm:external_prefix_cache_hits_total":    0,
		"vllm:mm_cache_queries_total":              0,
		"vllm:mm_cache_hits_total":                 0,
		"vllm:num_preemptions_total":               0,
		"vllm:prompt_tokens_total":                 250,
		"vllm:generation_tokens_total":             float64(stats.GenerationTokens),
	}
	require.Greater(t, stats.BlocksUsed, 0)
	for name, want := range single {
		require.Contains(t, families, name)
		require.Len(t, families[name].GetMetric(), 1, name)
		m := families[name].GetMetric()[0]
		assert.Equal(t, `engine=0 model_name=a "model"`, labelsOf(m), name)
		assert.InDelta(t, want, m.GetGauge().GetValue()+m.GetCounter().GetValue(), 1e-9, name)
		isCounter := strings.HasSuffix(name, "_total")
		assert.Equal(t, isCounter, families[name].GetType() == dto.MetricType_COUNTER, name)
		assert.Equal(t, isCounter, families[strings.TrimSuffix(name, "_total")+"_created"] != nil, name)
	}

	success := map[string]float64{}
	for _, m := range families["vllm:request_success_total"].GetMetric() {
		success[labelsOf(m)] = m.GetCounter().GetValue()
	}
	assert.Equal(t, map[string]float64{
		`engine=0 finished_reason=stop model_name=a "model"`: 1, `engine=0 finished_reason=length model_name=a "model"`: 0,
		`engine=0 finished_reason=abort model_name=a "model"`: 1, `engine=0 finished_reason=error model_name=a "model"`: 0,
		`engine=0 finished_reason=repetition model_name=a "model"`: 0,
	}, success)
	waiting := families["vllm:num_requests_waiting_by_reason"].GetMetric()
	require.Len(t, waiting, 2)
	assert.Equal(t, []float64{1, 0}, []float64{waiting[0].GetGauge().GetValue(), waiting[1].GetGauge().GetValue()})
	sources := families["vllm:prompt_tokens_by_source_total"].GetMetric()
	require.Len(t, sources, 3)
	assert.Equal(t, []float64{250 - 96, 96}, []float64{sources[0].GetCounter().GetValue(), sources[1].GetCounter().GetValue()})
}

func TestHistogramsOnThePageAreTheEngines(t *testing.T) {
	t.Parallel()
	stats := busyEngine(t).Stats()
	families := parse(t, newTestPage().Append(nil, &stats, now))
	want := map[string]engine.Histogram{
		"request_prompt_tokens":                 stats.RequestPromptTokens,
		"request_generation_tokens":             stats.RequestGenerationTokens,
		"iteration_tokens_total":                stats.IterationTokens,
		"request_max_num_generation_tokens":     stats.RequestMaxGenerate,
		"request_params_n":                      stats.RequestN,
		"request_params_max_tokens":             stats.RequestMaxTokens,
		"time_to_first_token_seconds":           stats.TimeToFirstToken,
		"time_per_output_token_seconds":         stats.InterTokenLatency,
		"inter_token_latency_seconds":           stats.InterTokenLatency,
		"request_time_per_output_token_seconds": stats.TimePerOutputToken,
		"e2e_request_latency_seconds":           stats.E2ELatency,
		"request_queue_time_seconds":            stats.QueueTime,
		"request_inference_time_seconds":        stats.InferenceTime,
		"request_prefill_time_seconds":          stats.PrefillTime,
		"request_decode_time_seconds":           stats.DecodeTime,
		"request_prefill_kv_computed_tokens":    stats.RequestComputedTokens,
		"request_num_preemptions":               stats.RequestPreemptions,
	}
	for name, h := range want {
		family := families["vllm:"+name]
		require.NotNil(t, family, name)
		require.Len(t, family.GetMetric(), 1, name)
		assert.Equal(t, `engine=0 model_name=a "model"`, labelsOf(family.GetMetric()[0]), name)
		got := family.GetMetric()[0].GetHistogram()
		assert.Equal(t, h.Count(), got.GetSampleCount(), name)
		assert.InDelta(t, h.Sum, got.GetSampleSum(), 1e-9, name)
		total := uint64(0)
		bounds := append(slices.Clone(h.Bounds), math.Inf(1))
		require.Len(t, got.GetBucket(), len(bounds), name)
		for i, bucket := range got.GetBucket() {
			total += h.Counts[i]
			assert.Equal(t, bounds[i], bucket.GetUpperBound(), name)
			assert.Equal(t, total, bucket.GetCumulativeCount(), name)
		}
	}
	vllmHistograms := 0
	for name, family := range families {
		if strings.HasPrefix(name, "vllm:") && family.GetType() == dto.MetricType_HISTOGRAM {
			vllmHistograms++
		}
	}
	assert.Equal(t, len(want), vllmHistograms, "the page has a histogram that this test does not expect")
}

func TestInfoFamilies(t *testing.T) {
	t.Parallel()
	e := busyEngine(t)
	stats := e.Stats()
	page := newTestPage()
	page.Append(nil, &stats, now)
	e.Advance(time.Hour)
	stats = e.Stats()
	families := parse(t, page.Append(nil, &stats, now.Add(time.Second)))

	lora := map[string]float64{}
	for _, m := range families["vllm:lora_requests_info"].GetMetric() {
		lora[labelsOf(m)] = m.GetGauge().GetValue()
	}
	assert.Equal(t, map[string]float64{
		"max_lora=4 running_lora_adapters=lora-b waiting_lora_adapters=lora-a": 1_763_643_600.25,
		"max_lora=4 running_lora_adapters= waiting_lora_adapters=":             1_763_643_601.25,
	}, lora, "old label sets stay on the page, as in vLLM")

	require.Len(t, families["vllm:cache_config_info"].GetMetric(), 1)
	cache := labelsOf(families["vllm:cache_config_info"].GetMetric()[0])
	for _, want := range []string{"block_size=16", "num_gpu_blocks=100", "engine=0", "enable_prefix_caching=True"} {
		assert.Contains(t, cache, want)
	}
	assert.NotContains(t, cache, "model_name")
	assert.Equal(t, 1_763_640_000.25, families["vllm:prompt_tokens_created"].GetMetric()[0].GetGauge().GetValue())
}

// testdata/vllm-0.32.txt lists the families of a page of vLLM 0.32.0, with their types and labels.
func TestFamiliesAreThoseOfRealVLLM(t *testing.T) {
	t.Parallel()
	page := NewPage(Params{Model: "m", Spec: testSpec, Started: started, Names: NewNames})
	page.ObserveHTTP(HTTPRequest{Handler: "/v1/models", Method: "GET", Status: 200})
	stats := busyEngine(t).Stats()
	want, err := os.ReadFile("testdata/vllm-0.32.txt")
	require.NoError(t, err)
	labels := map[string]map[string]bool{}
	kinds := map[string]string{}
	current := ""
	for line := range strings.Lines(string(page.Append(nil, &stats, now))) {
		if fields := strings.Fields(line); fields[0] == "#" {
			if current = fields[2]; fields[1] == "TYPE" {
				kinds[current], labels[current] = fields[3], map[string]bool{}
			}
			continue
		}
		for _, match := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(line, -1) {
			labels[current][match[1]] = true
		}
	}
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		got.WriteString(strings.Join(append([]string{name, kinds[name]}, slices.Sorted(maps.Keys(labels[name]))...), " ") + "\n")
	}
	assert.Equal(t, string(want), got.String())
}

func TestNames(t *testing.T) {
	t.Parallel()
	const oldName, newName = "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"
	const oldLatency, newLatency = "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"
	tests := []struct {
		give    Names
		want    []string
		without []string
	}{
		{NewNames, []string{newName, newLatency, "vllm:prompt_tokens_cached_total"}, []string{oldName, oldLatency}},
		{OldNames, []string{oldName, oldLatency}, []string{newName, newLatency, "vllm:prompt_tokens_cached_total"}},
		{BothNames, []string{oldName, newName, oldLatency, newLatency}, nil},
	}
	stats := engine.New(testSpec).Stats()
	for _, tt := range tests {
		families := parse(t, NewPage(Params{Model: "m", Spec: testSpec, Started: started, Names: tt.give}).Append(nil, &stats, now))
		for _, name := range append(tt.want, "vllm:num_requests_running") {
			assert.Contains(t, families, name, tt.give)
		}
		for _, name := range append(tt.without, "vllm:lora_requests_info") {
			assert.NotContains(t, families, name, tt.give)
		}
	}
	var n Names
	require.NoError(t, n.Set("old"))
	assert.Equal(t, OldNames, n)
	require.ErrorContains(t, n.Set("older"), "is not new, old or both")
}

func TestLoRASeriesAreBounded(t *testing.T) {
	t.Parallel()
	l := newLoRAHistory(1)
	for i := range 2 * maxLoRASeries {
		l.append(nil, &engine.Stats{Gauges: engine.Gauges{RunningAdapters: []string{string(rune('A' + i))}}}, now.Add(time.Duration(i)*time.Second))
	}
	require.Len(t, l.series, maxLoRASeries)
	assert.InDelta(t, float64(now.Unix())+maxLoRASeries, l.series[0].at, 1, "the page removes the oldest series first")
}

func TestPageLooksLikePythons(t *testing.T) {
	t.Parallel()
	stats := busyEngine(t).Stats()
	page := string(newTestPage().Append(nil, &stats, now))
	for _, want := range []string{
		"# HELP vllm:num_requests_running Number of requests in model execution batches.\n# TYPE vllm:num_requests_running gauge\n" +
			`vllm:num_requests_running{engine="0",model_name="a \"model\""} 2.0` + "\n",
		`vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="a \"model\""} 0.0` + "\n",
		`vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="a \"model\""} 3.0` + "\n" +
			`vllm:time_to_first_token_seconds_count{engine="0",model_name="a \"model\""} 3.0` + "\n" +
			`vllm:time_to_first_token_seconds_sum{engine="0",model_name="a \"model\""} `,
		"# TYPE vllm:time_to_first_token_seconds_created gauge\n" +
			`vllm:time_to_first_token_seconds_created{engine="0",model_name="a \"model\""} 1.76364000025e+09` + "\n",
		"python_gc_collections_total{generation=\"0\"} ", "process_start_time_seconds 1.76364000025e+09\n",
	} {
		assert.Contains(t, page, want)
	}
}

// The size of the page determines the cost of a scrape.
func TestPageIsAsLongAsARealOne(t *testing.T) {
	t.Parallel()
	spec := testSpec
	spec.MaxModelLen, spec.NumBlocks = 16384, 4096
	stats := engine.New(spec).Stats()
	page := NewPage(Params{Model: "base-model", Spec: spec, Started: started, Names: NewNames})
	for _, handler := range []string{"/v1/chat/completions", "/v1/completions", "/v1/models"} {
		page.ObserveHTTP(HTTPRequest{Handler: handler, Method: "POST", Status: 200})
	}
	text := page.Append(nil, &stats, now)
	assert.InDelta(t, 52<<10, len(text), 6<<10)
	assert.InDelta(t, 640, bytes.Count(text, []byte("\n")), 60)
}

func TestHTTPFamilies(t *testing.T) {
	t.Parallel()
	page := newTestPage()
	for _, r := range []HTTPRequest{
		{"/v1/completions", "POST", 200, 200 * time.Millisecond, 10, 100},
		{"/v1/completions", "POST", 204, 3 * time.Second, -1, 0},
		{"/v1/completions", "POST", 404, time.Millisecond, 5, 7},
		{"/v1/models", "GET", 200, time.Millisecond, 0, 50},
	} {
		page.ObserveHTTP(r)
	}
	stats := engine.New(testSpec).Stats()
	families := parse(t, page.Append(nil, &stats, now))
	got := map[string]float64{}
	for _, m := range families["http_requests_total"].GetMetric() {
		got[labelsOf(m)] = m.GetCounter().GetValue()
	}
	assert.Equal(t, map[string]float64{
		"handler=/v1/completions method=POST status=2xx": 2, "handler=/v1/completions method=POST status=4xx": 1,
		"handler=/v1/models method=GET status=2xx": 1,
	}, got)
	assert.EqualValues(t, 3, families["http_request_size_bytes"].GetMetric()[0].GetSummary().GetSampleCount())
	assert.EqualValues(t, 15, families["http_request_size_bytes"].GetMetric()[0].GetSummary().GetSampleSum())
	assert.EqualValues(t, 107, families["http_response_size_bytes"].GetMetric()[0].GetSummary().GetSampleSum())
	assert.EqualValues(t, 4, families["http_request_duration_highr_seconds"].GetMetric()[0].GetHistogram().GetSampleCount())
	low := families["http_request_duration_seconds"].GetMetric()
	require.Len(t, low, 2)
	assert.Equal(t, "handler=/v1/completions method=POST", labelsOf(low[0]))
	assert.EqualValues(t, 2, low[0].GetHistogram().GetBucket()[1].GetCumulativeCount())
}

func TestProcessFamiliesAreReadOnceASecond(t *testing.T) {
	t.Parallel()
	p := newProcessStats(started)
	first := string(p.append(nil, now))
	families := parse(t, []byte(first))
	for _, name := range []string{"process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds", "process_max_fds"} {
		assert.Positive(t, families[name].GetMetric()[0].GetGauge().GetValue(), name)
	}
	ballast := make([]byte, 32<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	assert.Equal(t, first, string(p.append(nil, now.Add(processMaxAge-1))))
	assert.NotEqual(t, first, string(p.append(nil, now.Add(processMaxAge))))
	assert.EqualValues(t, 1, ballast[0])
}

func TestFloatsAreWrittenAsPythonDoes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give float64
		want string
	}{
		{0, "0.0"}, {1, "1.0"}, {123456, "123456.0"}, {999999, "999999.0"}, {1000000, "1e+06"}, {41367205, "4.1367205e+07"},
		{0.001, "0.001"}, {1049.8486831188202, "1049.8486831188202"}, {0.00001, "1e-05"}, {1.7654321e9, "1.7654321e+09"}, {0.1, "0.1"},
		{-1, "-1.0"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, string(appendFloat(nil, tt.give)))
	}
}

func BenchmarkPage(b *testing.B) {
	spec := testSpec
	spec.MaxModelLen, spec.NumBlocks = 16384, 4096
	e := engine.New(spec)
	page := NewPage(Params{Model: "base-model", Spec: spec, Started: started})
	b.ReportAllocs()
	for b.Loop() {
		stats := e.Stats()
		page.Append(nil, &stats, now)
	}
}
