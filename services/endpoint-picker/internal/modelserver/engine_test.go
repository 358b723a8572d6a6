package modelserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

func TestBuiltinEngines(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, engine string
		page         string
		want         endpoint.Gauges
	}{
		{
			name: "sglang", engine: EngineSGLang,
			page: "sglang:num_queue_reqs{tp_rank=\"0\"} 2\nsglang:num_running_reqs{tp_rank=\"0\"} 5\nsglang:token_usage{tp_rank=\"0\"} 0.5\n" +
				"sglang:page_size 64\nsglang:num_pages 100\nsglang:max_total_num_tokens 999\n",
			want: endpoint.Gauges{Waiting: 2, Running: 5, KVUsage: 0.5, Blocks: 400, Alignment: 64},
		},
		{
			name: "sglang with a host tier", engine: EngineSGLang,
			page: "sglang:num_running_reqs 1\nsglang:page_size 16\nsglang:num_pages 100\nsglang:hicache_host_total_tokens 3200\n",
			want: endpoint.Gauges{Running: 1, Blocks: 300, Alignment: 16},
		},
		{
			name: "sglang before it had pages", engine: EngineSGLang,
			page: "sglang:num_running_reqs 1\nsglang:max_total_num_tokens 1600\n",
			want: endpoint.Gauges{Running: 1, Blocks: 100},
		},
		{
			name: "sglang with data parallel ranks", engine: EngineSGLang,
			page: "sglang:num_running_reqs{dp_rank=\"0\"} 1\nsglang:num_running_reqs{dp_rank=\"1\"} 2\nsglang:page_size{dp_rank=\"0\"} 16\n" +
				"sglang:page_size{dp_rank=\"1\"} 16\nsglang:num_pages{dp_rank=\"0\"} 10\nsglang:num_pages{dp_rank=\"1\"} 20\n",
			want: endpoint.Gauges{Running: 3, Blocks: 30, Alignment: 16},
		},
		{
			name: "sglang's cached tokens, of all sources", engine: EngineSGLang,
			page: "sglang:num_running_reqs 1\nsglang:prompt_tokens_total{is_streaming=\"false\"} 100\nsglang:prompt_tokens_total{is_streaming=\"true\"} 900\n" +
				"sglang:cached_tokens_total{cache_source=\"device\"} 300\nsglang:cached_tokens_total{cache_source=\"host\"} 50\n",
			want: endpoint.Gauges{Running: 1, Queries: 1000, Hits: 350, Counted: true},
		},
		{
			name: "trtllm-serve", engine: EngineTRTLLMServe,
			page: "trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.25\n" +
				"trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 10\ntrtllm_kv_cache_reused_blocks_total 3\ntrtllm_kv_cache_missed_blocks_total 7\n",
			want: endpoint.Gauges{Waiting: 1, Running: 2, KVUsage: 0.25, Blocks: 20, Alignment: 32, Queries: 320, Hits: 96, Counted: true},
		},
		{
			name: "triton-tensorrt-llm, by labels", engine: EngineTritonTRTLLM,
			page: "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 3\n" +
				"nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 4\n" +
				"nv_trt_llm_request_metrics{model=\"m\",request_type=\"active\",version=\"1\"} 9\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.75\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 50\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 7\n",
			want: endpoint.Gauges{Waiting: 3, Running: 4, KVUsage: 0.75, Blocks: 200, Alignment: 64},
		},
		{
			name: "triton, whose executions are no gauge", engine: EngineTriton,
			page: "nv_inference_pending_request_count{model=\"a\"} 2\nnv_inference_pending_request_count{model=\"b\"} 1\nnv_inference_exec_count{model=\"a\"} 90210\n",
			want: endpoint.Gauges{Waiting: 3},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := reader(t, tt.engine).readPage(strings.NewReader(tt.page), make([]byte, maxLine))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestAnotherEnginesPageIsAnError(t *testing.T) {
	t.Parallel()
	_, err := reader(t, EngineSGLang).readPage(strings.NewReader("vllm:num_requests_running 1\n"), make([]byte, maxLine))
	require.ErrorIs(t, err, errNoGauges)
	assert.EqualError(t, err, "page without the request gauges of sglang")
}

func TestAdapters(t *testing.T) {
	t.Parallel()
	series := func(most int, running, waiting, at string) string {
		return fmt.Sprintf("vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=%q} %s\n", most, running, waiting, at)
	}
	tests := []struct {
		name string
		page string
		want *scheduling.Adapters
	}{
		{name: "none said", page: "", want: nil},
		{name: "none in use", page: series(4, "", "", "1.7e9"), want: &scheduling.Adapters{Max: 4}},
		{
			name: "both lists", page: series(4, "a, b", "c", "1.7e9"),
			want: &scheduling.Adapters{Max: 4, Running: []string{"a", "b"}, Waiting: []string{"c"}},
		},
		{
			name: "one set in both lists, as vLLM writes it, counts once", page: series(2, "a,b,a", "a,b", "1.7e9"),
			want: &scheduling.Adapters{Max: 2, Running: []string{"a", "b"}},
		},
		{
			name: "the newest series counts, whatever the order",
			page: series(4, "old", "", "1764000000.25") + series(4, "new", "", "1764000001.5") + series(4, "older", "", "1763999999"),
			want: &scheduling.Adapters{Max: 4, Running: []string{"new"}},
		},
		{name: "a value that is no time", page: series(4, "a", "", "NaN"), want: nil},
		{name: "quotes in names", page: series(1, `a"b\`, "", "1"), want: &scheduling.Adapters{Max: 1, Running: []string{`a"b\`}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := vllm(t).readPage(strings.NewReader("vllm:num_requests_running 1\n"+tt.page), make([]byte, maxLine))
			require.NoError(t, err)
			if tt.want == nil {
				assert.Nil(t, got.Page)
				return
			}
			require.NotNil(t, got.Page)
			assert.Equal(t, tt.want, got.Page.Adapters)
		})
	}
}

func TestCustomMetrics(t *testing.T) {
	t.Parallel()
	r := custom(t)
	got, err := r.readPage(strings.NewReader("mine_queue 1\nmine_heat{chip=\"0\"} -3\nmine_heat{chip=\"1\"} -2\nmine_heat{chip=\"2\"} NaN\n"), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"heat": -2}, got.Page.Attributes, "the greatest; what is not on the page is not there")
	got, err = r.readPage(strings.NewReader("mine_queue 1\nother{kind=\"x\"} 7\nother{kind=\"y\"} 8\n"), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"other": 7}, got.Page.Attributes)
	got, err = r.readPage(strings.NewReader("mine_queue 1\n"), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Nil(t, got.Page)
}

func custom(t *testing.T) *reading {
	t.Helper()
	s := DefaultSettings()
	s.Extractor.Engines = []Engine{{Name: "mine", Waiting: []string{"mine_queue"}, Custom: []CustomMetric{{"heat", "mine_heat"}, {"other", "other{kind=x}"}}}}
	p, err := CompilePlan(s, DefaultOptions())
	require.NoError(t, err)
	return newReading(p.engines["mine"])
}

func TestPageIsMadeAnewOnlyWhenItSaysSomethingElse(t *testing.T) {
	t.Parallel()
	r, buf := vllm(t), make([]byte, maxLine)
	read := func(running, at string) *scheduling.Page {
		got, err := r.readPage(strings.NewReader("vllm:num_requests_running 1\nvllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\""+
			running+"\",waiting_lora_adapters=\"\"} "+at+"\n"), buf)
		require.NoError(t, err)
		return got.Page
	}
	first := read("a", "1")
	assert.Same(t, first, read("a", "2"), "time alone is nothing new")
	second := read("b", "3")
	assert.NotSame(t, first, second)
	assert.Equal(t, []string{"a"}, first.Adapters.Running, "what was handed out does not change")
	assert.Equal(t, []string{"b"}, second.Adapters.Running)
}

// Servers without a built-in engine are read by engineConfigs, as those of upstream.
func TestDeclaredEngines(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Engine
		page string
		want endpoint.Gauges
	}{
		{
			name: "llama.cpp", give: Engine{Waiting: Metrics{"llamacpp:requests_deferred"}, Running: Metrics{"llamacpp:requests_processing"}, KVUsage: Metrics{"llamacpp:kv_cache_usage_ratio"}},
			page: "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 1120\nllamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n",
			want: endpoint.Gauges{Waiting: 2, Running: 3, KVUsage: 0.25},
		},
		{
			name: "TGI", give: Engine{Waiting: Metrics{"tgi_queue_size"}, Running: Metrics{"tgi_batch_current_size"}},
			page: "# TYPE tgi_queue_size gauge\ntgi_queue_size 4\ntgi_batch_current_size 7\ntgi_batch_current_max_tokens 4096\ntgi_request_count 9\n",
			want: endpoint.Gauges{Waiting: 4, Running: 7},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := DefaultSettings()
			tt.give.Name = "mine"
			s.Extractor.Engines, s.Extractor.DefaultEngine = []Engine{tt.give}, "mine"
			require.NoError(t, s.Validate())
			p, err := CompilePlan(s, DefaultOptions())
			require.NoError(t, err)
			got, err := newReading(p.engines["mine"]).readPage(strings.NewReader(tt.page), make([]byte, maxLine))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestUsersEnginesReplaceAndAreAdded(t *testing.T) {
	t.Parallel()
	all := mergeEngines([]Engine{{Name: EngineVLLM, Waiting: []string{"queue"}}, {Name: "mine", Waiting: []string{"mine"}}})
	require.Len(t, all, len(builtinEngines())+1)
	assert.Equal(t, Engine{Name: EngineVLLM, Waiting: []string{"queue"}}, all[0])
	assert.Equal(t, "mine", all[len(all)-1].Name)
}

func TestSharedBeginningsOfNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Engine
	}{
		{name: "one is the beginning of the other", give: Engine{Name: "e", Waiting: []string{"queue"}, Running: []string{"queue_run"}}},
		{name: "digits behind", give: Engine{Name: "e", Waiting: []string{"queue"}, Running: []string{"queue2"}}},
		{name: "one metric, two labels", give: Engine{Name: "e", Waiting: []string{"requests{kind=queue}"}, Running: []string{"requests{kind=run}"}}},
		{name: "nothing shared", give: Engine{Name: "e", Waiting: []string{"queue"}, Running: []string{"run"}}},
	}
	page := "queue 1\nqueue2 2\nqueue22 9\nqueue_run 2\nqueue_ 9\nqueu 9\nrequests{kind=\"queue\"} 1\nrequests{kind=\"run\"} 2\nrun 2\nrun_ 9\nq 9\n\n"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := newMatcher(&tt.give)
			require.NoError(t, err)
			got, err := newReading(m).readPage(strings.NewReader(page), make([]byte, maxLine))
			require.NoError(t, err)
			assert.Equal(t, endpoint.Gauges{Waiting: 1, Running: 2}, got)
		})
	}
}
