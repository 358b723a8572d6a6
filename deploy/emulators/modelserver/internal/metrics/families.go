package metrics

import (
	"strings"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// finishReasons are the series of vllm:request_success_total, in vLLM's order.
var finishReasons = []engine.FinishReason{engine.ReasonStop, engine.ReasonLength, engine.ReasonAbort, "error"}

// schedulerFamilies are the state of the scheduler, which endpoint pickers read.
func (b *builder) schedulerFamilies() {
	b.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
		func(s *engine.Stats) float64 { return float64(s.Running) })
	b.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		func(s *engine.Stats) float64 { return float64(s.Waiting) })
	b.sleepState()
	usage := func(s *engine.Stats) float64 { return float64(s.BlocksUsed) / float64(s.Blocks) }
	queries := func(s *engine.Stats) float64 { return float64(s.PrefixCacheQueries) }
	hits := func(s *engine.Stats) float64 { return float64(s.PrefixCacheHits) }
	b.gauge("vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.DEPRECATED: Use vllm:kv_cache_usage_perc instead.", usage)
	b.counter("vllm:gpu_prefix_cache_queries",
		"GPU prefix cache queries, in terms of number of queriedtokens. DEPRECATED: Use vllm:prefix_cache_queries instead.", queries)
	b.counter("vllm:gpu_prefix_cache_hits",
		"GPU prefix cache hits, in terms of number of cached tokens. DEPRECATED: Use vllm:prefix_cache_hits instead.", hits)
	b.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage)
	b.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queries)
	b.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", hits)
	none := func(*engine.Stats) float64 { return 0 }
	b.counter("vllm:external_prefix_cache_queries",
		"External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.", none)
	b.counter("vllm:external_prefix_cache_hits",
		"External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", none)
	b.counter("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", none)
	b.counter("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", none)
	b.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.",
		func(s *engine.Stats) float64 { return float64(s.Preemptions) })
}

func (b *builder) sleepState() {
	const name = "vllm:engine_sleep_state"
	text := header(name, "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "+
		"weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.")
	for _, state := range []struct{ name, value string }{{"awake", "1.0"}, {"weights_offloaded", "0.0"}, {"discard_all", "0.0"}} {
		text += series(name, append(b.labels[:2:2], label{"sleep_state", state.name})...) + state.value + "\n"
	}
	b.static(text)
}

// tokenFamilies count tokens and finished requests.
func (b *builder) tokenFamilies() {
	b.counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
		func(s *engine.Stats) float64 { return float64(s.PromptTokens) })
	b.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		func(s *engine.Stats) float64 { return float64(s.GenerationTokens) })

	const name, help = "vllm:request_success", "Count of successfully processed requests."
	head := header(name+"_total", "counter", help)
	var prefixes []string
	var created strings.Builder
	created.WriteString(header(name+"_created", "gauge", help))
	for _, reason := range finishReasons {
		labels := []label{b.labels[0], {"finished_reason", string(reason)}, b.labels[1]}
		prefixes = append(prefixes, series(name+"_total", labels...))
		created.WriteString(series(name+"_created", labels...) + string(b.created) + "\n")
	}
	b.add(func(dst []byte, s *engine.Stats) []byte {
		dst = append(dst, head...)
		for i, reason := range finishReasons {
			dst = appendSample(dst, prefixes[i], float64(s.Finished[reason]))
		}
		return append(dst, created.String()...)
	})
}

// requestFamilies are the histograms.
func (b *builder) requestFamilies() {
	for _, h := range []struct {
		name, help string
		get        func(*engine.Stats) *engine.Histogram
	}{
		{"request_prompt_tokens", "Number of prefill tokens processed.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestPromptTokens }},
		{"request_generation_tokens", "Number of generation tokens processed.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestGenerationTokens }},
		{"iteration_tokens_total", "Histogram of number of tokens per engine_step.",
			func(s *engine.Stats) *engine.Histogram { return &s.IterationTokens }},
		{"request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestMaxGenerate }},
		{"request_params_n", "Histogram of the n request parameter.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestN }},
		{"request_params_max_tokens", "Histogram of the max_tokens request parameter.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestMaxTokens }},
		{"time_to_first_token_seconds", "Histogram of time to first token in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.TimeToFirstToken }},
		{"time_per_output_token_seconds", "Histogram of time per output token in seconds.DEPRECATED: Use vllm:inter_token_latency_seconds instead.",
			func(s *engine.Stats) *engine.Histogram { return &s.InterTokenLatency }},
		{"inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.InterTokenLatency }},
		{"request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.",
			func(s *engine.Stats) *engine.Histogram { return &s.TimePerOutputToken }},
		{"e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.E2ELatency }},
		{"request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.QueueTime }},
		{"request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.InferenceTime }},
		{"request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.PrefillTime }},
		{"request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.DecodeTime }},
		{"request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestComputedTokens }},
	} {
		b.histogram("vllm:"+h.name, h.help, h.get)
	}
}
