package collect

// Figures that engines count. They are read as rates over the window.
const (
	finished     = "finished"
	received     = "received"
	inputTokens  = "input_tokens"
	inputs       = "inputs"
	outputTokens = "output_tokens"
	outputs      = "outputs"
	ttftSum      = "ttft_sum"
	ttftCount    = "ttft_count"
	itlSum       = "itl_sum"
	itlCount     = "itl_count"
	prefillSum   = "prefill_sum"
	prefillCount = "prefill_count"
	cacheHits    = "cache_hits"
	cacheLookups = "cache_lookups"
)

// Figures that engines measure.
const (
	running  = "running"
	waiting  = "waiting"
	kvUsage  = "kv_usage"
	kvTokens = "kv_tokens"
)

// counted are the figures of rates, in the order of a query.
var counted = []string{
	finished, received, inputTokens, inputs, outputTokens, outputs, ttftSum, ttftCount, itlSum, itlCount, prefillSum, prefillCount,
	cacheHits, cacheLookups,
}

// engine names the metrics of a model server. Of several names of a figure, the first one that a pod has counts: versions in between
// have both.
type engine struct {
	metrics map[string][]string
	// info has the size of the KV cache in its labels, and no label with the model.
	info string
	// lazy engines export a counter only after its first event. For others, a missing counter is not zero.
	lazy bool
}

// engines are the model servers that can be read. All have the labels namespace and pod from their scrape, and model_name.
var engines = []engine{
	{ // vLLM
		metrics: map[string][]string{
			running:      {"vllm:num_requests_running"},
			waiting:      {vllmWaiting},
			kvUsage:      {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
			finished:     {"vllm:request_success_total"},
			inputTokens:  {"vllm:request_prompt_tokens_sum"},
			inputs:       {"vllm:request_prompt_tokens_count"},
			outputTokens: {"vllm:request_generation_tokens_sum"},
			outputs:      {"vllm:request_generation_tokens_count"},
			ttftSum:      {"vllm:time_to_first_token_seconds_sum"},
			ttftCount:    {"vllm:time_to_first_token_seconds_count"},
			itlSum:       {"vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"},
			itlCount:     {"vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"},
			prefillSum:   {"vllm:request_prefill_time_seconds_sum"},
			prefillCount: {"vllm:request_prefill_time_seconds_count"},
			cacheHits:    {"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"},
			cacheLookups: {"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"},
		},
		info: "vllm:cache_config_info",
	},
	{ // SGLang: it counts the tokens of finished requests
		metrics: map[string][]string{
			running:      {"sglang:num_running_reqs"},
			waiting:      {sglangWaiting},
			kvUsage:      {"sglang:token_usage"},
			kvTokens:     {"sglang:max_total_num_tokens"},
			finished:     {"sglang:num_requests_total"},
			received:     {"sglang:num_requests_received_total"},
			inputTokens:  {"sglang:prompt_tokens_total"},
			inputs:       {"sglang:num_requests_total"},
			outputTokens: {"sglang:generation_tokens_total"},
			outputs:      {"sglang:num_requests_total"},
			ttftSum:      {"sglang:time_to_first_token_seconds_sum"},
			ttftCount:    {"sglang:time_to_first_token_seconds_count"},
			itlSum:       {"sglang:inter_token_latency_seconds_sum", "sglang:time_per_output_token_seconds_sum"},
			itlCount:     {"sglang:inter_token_latency_seconds_count", "sglang:time_per_output_token_seconds_count"},
			cacheHits:    {"sglang:cached_tokens_total"},
			cacheLookups: {"sglang:prompt_tokens_total"},
		},
		lazy: true,
	},
}

// Metrics of requests that wait. They tell those that wait for room from those that only wait for their KV cache to be fetched.
const (
	vllmWaiting         = "vllm:num_requests_waiting"
	sglangWaiting       = "sglang:num_queue_reqs"
	vllmWaitingByReason = "vllm:num_requests_waiting_by_reason" // from 0.32 on
	vllmFetching        = "vllm:num_requests_kv_fetch_by_stage" // of servers that fetch
	sglangPreallocating = "sglang:num_decode_prealloc_queue_reqs"
)

// Labels of vLLM's information on its KV cache. The number of tokens is missing in older versions.
const (
	labelTokens    = "kv_cache_size_tokens" //nolint:gosec // its tokens are no secrets
	labelBlocks    = "num_gpu_blocks"
	labelBlockSize = "block_size"
)

// Labels of a scrape that do not tell servers apart: one server that is scraped twice counts once, and so do the ranks of a tensor
// or pipeline parallel server, which all report the same requests.
const (
	sameServer = "job, endpoint, service, container, prometheus, prometheus_replica, tp_rank, pp_rank, moe_ep_rank"
	// samePicker lacks endpoint, which is a label of the picker's own where a scrape honors labels.
	samePicker = "job, service, container, prometheus, prometheus_replica"
)
