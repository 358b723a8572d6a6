package metrics

import (
	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// finishReasons are the series of vllm:request_success_total, in vLLM's order.
var finishReasons = []engine.FinishReason{engine.ReasonStop, engine.ReasonLength, engine.ReasonAbort, "error", "repetition"}

func none(*engine.Stats) float64 { return 0 }

// utilizationFamilies adds the estimates of the GPU's utilization. vLLM's page has them even if vLLM does not estimate.
func (b *builder) utilizationFamilies() {
	for _, f := range []struct{ name, what string }{
		{"flops", "floating point operations"}, {"read_bytes", "bytes read from memory"}, {"write_bytes", "bytes written to memory"},
	} {
		b.counter("vllm:estimated_"+f.name+"_per_gpu", "Estimated number of "+f.what+" per GPU (for Model Flops Utilization calculations).", none)
	}
}

// schedulerFamilies adds the state of the scheduler, which endpoint pickers read.
func (b *builder) schedulerFamilies() {
	b.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
		func(s *engine.Stats) float64 { return float64(s.Running) })
	b.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		func(s *engine.Stats) float64 { return float64(s.Waiting) })
	if b.names.recent() {
		b.splitGauge(splitFamily{name: "vllm:num_requests_waiting_by_reason", by: "reason", labels: b.labels, help: "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for " +
			"scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons " +
			"equals vllm:num_requests_waiting.", parts: []part{
			{"capacity", func(s *engine.Stats) float64 { return float64(s.Waiting - s.Deferred) }},
			{"deferred", func(s *engine.Stats) float64 { return float64(s.Deferred) }},
		}})
	}
	b.sleepState()
	usage := func(s *engine.Stats) float64 { return float64(s.BlocksUsed) / float64(s.Blocks) }
	queries := func(s *engine.Stats) float64 { return float64(s.PrefixCacheQueries) }
	hits := func(s *engine.Stats) float64 { return float64(s.PrefixCacheHits) }
	if b.names.old() {
		b.gauge("vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.DEPRECATED: Use vllm:kv_cache_usage_perc instead.", usage)
		b.counter("vllm:gpu_prefix_cache_queries",
			"GPU prefix cache queries, in terms of number of queriedtokens. DEPRECATED: Use vllm:prefix_cache_queries instead.", queries)
		b.counter("vllm:gpu_prefix_cache_hits",
			"GPU prefix cache hits, in terms of number of cached tokens. DEPRECATED: Use vllm:prefix_cache_hits instead.", hits)
	}
	if b.names.recent() {
		b.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage)
		b.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queries)
		b.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", hits)
	}
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

// tokenFamilies adds the counters of tokens and finished requests.
func (b *builder) tokenFamilies() {
	b.counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
		func(s *engine.Stats) float64 { return float64(s.PromptTokens) })
	if b.names.recent() {
		b.promptSources()
	}
	b.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		func(s *engine.Stats) float64 { return float64(s.GenerationTokens) })

	var reasons []part
	for _, reason := range finishReasons {
		reasons = append(reasons, part{string(reason), func(s *engine.Stats) float64 { return float64(s.Finished[reason]) }})
	}
	b.splitCounter(splitFamily{"vllm:request_success", "Count of successfully processed requests.", "finished_reason", b.labels, reasons})
	if b.names.recent() {
		b.splitCounter(splitFamily{"vllm:admission_rejections", "Number of admission attempts rejected by a queue limit, by reason.", "reason",
			b.labels[1:], []part{{"max_num_queued_reqs", none}, {"max_num_queued_tokens", none}}})
	}
}

// promptSources adds the counters of prompt tokens by the source of their keys and values.
func (b *builder) promptSources() {
	cached := func(s *engine.Stats) float64 { return float64(s.CachedPromptTokens) }
	b.splitCounter(splitFamily{"vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", "source", b.labels, []part{
		{"local_compute", func(s *engine.Stats) float64 { return float64(s.PromptTokens - s.CachedPromptTokens) }},
		{"local_cache_hit", cached}, {"external_kv_transfer", none},
	}})
	b.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", cached)
	b.splitCounter(splitFamily{"vllm:prompt_tokens_cached_by_source", "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), " +
		"host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to " +
		"vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.", "source", b.labels, []part{
		{"device", func(s *engine.Stats) float64 { return float64(s.PrefixCacheHits) }},
		{"host", none}, {"p2p", none}, {"disk", none}, {"external_unspecified", none},
	}})
}

// requestFamilies adds the histograms.
func (b *builder) requestFamilies() {
	for _, h := range []struct {
		name, help string
		get        func(*engine.Stats) *engine.Histogram
		only       func(Names) bool // nil: with all names
	}{
		{"request_prompt_tokens", "Number of prefill tokens processed.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestPromptTokens }, nil},
		{"request_generation_tokens", "Number of generation tokens processed.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestGenerationTokens }, nil},
		{"iteration_tokens_total", "Histogram of number of tokens per engine_step.",
			func(s *engine.Stats) *engine.Histogram { return &s.IterationTokens }, nil},
		{"request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestMaxGenerate }, nil},
		{"request_params_n", "Histogram of the n request parameter.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestN }, nil},
		{"request_params_max_tokens", "Histogram of the max_tokens request parameter.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestMaxTokens }, nil},
		{"time_to_first_token_seconds", "Histogram of time to first token in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.TimeToFirstToken }, nil},
		{"time_per_output_token_seconds", "Histogram of time per output token in seconds.DEPRECATED: Use vllm:inter_token_latency_seconds instead.",
			func(s *engine.Stats) *engine.Histogram { return &s.InterTokenLatency }, Names.old},
		{"inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.InterTokenLatency }, Names.recent},
		{"request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.",
			func(s *engine.Stats) *engine.Histogram { return &s.TimePerOutputToken }, nil},
		{"e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
			func(s *engine.Stats) *engine.Histogram { return &s.E2ELatency }, nil},
		{"request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.QueueTime }, nil},
		{"request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.InferenceTime }, nil},
		{"request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.PrefillTime }, nil},
		{"request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.",
			func(s *engine.Stats) *engine.Histogram { return &s.DecodeTime }, nil},
		{"request_num_preemptions", "Histogram of the number of times a request was preempted.",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestPreemptions }, Names.recent},
		{"request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
			func(s *engine.Stats) *engine.Histogram { return &s.RequestComputedTokens }, nil},
	} {
		if h.only == nil || h.only(b.names) {
			b.histogram("vllm:"+h.name, h.help, h.get)
		}
	}
}
