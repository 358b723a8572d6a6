package modelserver

// Names of the built-in engines.
const (
	EngineVLLM         = "vllm"
	EngineSGLang       = "sglang"
	EngineTRTLLMServe  = "trtllm-serve"
	EngineTritonTRTLLM = "triton-tensorrt-llm"
	EngineTriton       = "triton"

	engineReserved = "default" // reserved: upstream's name of the default engine
)

// An Engine names the metrics of one kind of model server. A metric is "name" or "name{label=value}", quotes optional. The
// first metric of a list that the page has counts: so pages of old and new versions work, and those of versions in between
// that have both names.
//
// For a server with several engines, requests and blocks are summed; the fullest KV cache counts.
//
// Fields that also exist in engineConfigs of a core-metrics-extractor are listed with that parameter.
type Engine struct {
	Name string // name
	Path string // of the page, if Settings has none; empty is /metrics

	Waiting []string // queuedRequestsSpec: requests in the queue
	Running []string // runningRequestsSpec: requests in the batch
	KVUsage []string // kvUsageSpec: share of the KV cache in use, 0 to 1
	LoRA    string   // loraSpec: series whose labels list adapters and whose value is the time

	// The size of the KV cache, by labels of a series or by gauges.
	CacheInfo      string // cacheInfoSpec
	BlockSizeLabel string // cacheBlockSizeLabelName: tokens
	BlocksLabel    string // cacheNumBlocksLabelName
	TokensLabel    string // instead of blocks, if the series has it: blocks of hybrid models hold fewer tokens than their size
	BlockSize      string // cacheBlockSizeSpec: tokens
	Blocks         string // cacheNumBlocksSpec
	Tokens         string // instead of blocks, if the page has none
	HostTokens     string // additional tokens in the host's memory

	Custom []CustomMetric // customMetrics
}

// A CustomMetric is a value for endpoint.Page.Attributes. The greatest of several series counts.
type CustomMetric struct {
	Attribute string // attributeKey
	Metric    string // metricSpec
}

// builtinEngines returns the built-in engines.
//
// Triton's own metrics have no gauge of running requests: nv_inference_exec_count, which upstream uses, counts executions
// since the server began, so an older server would look busier. Only our own leases are known to run there.
func builtinEngines() []Engine {
	return []Engine{
		{ //nolint:gosec // its tokens are no secrets
			Name:           EngineVLLM,
			Waiting:        []string{"vllm:num_requests_waiting"},
			Running:        []string{"vllm:num_requests_running"},
			KVUsage:        []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
			LoRA:           "vllm:lora_requests_info",
			CacheInfo:      "vllm:cache_config_info",
			BlockSizeLabel: "block_size",
			BlocksLabel:    "num_gpu_blocks",
			TokensLabel:    "kv_cache_size_tokens",
		},
		{ //nolint:gosec // its tokens are no secrets
			Name:       EngineSGLang,
			Waiting:    []string{"sglang:num_queue_reqs"},
			Running:    []string{"sglang:num_running_reqs"},
			KVUsage:    []string{"sglang:token_usage"},
			BlockSize:  "sglang:page_size",
			Blocks:     "sglang:num_pages",
			Tokens:     "sglang:max_total_num_tokens",
			HostTokens: "sglang:hicache_host_total_tokens",
		},
		{
			Name:      EngineTRTLLMServe,
			Path:      "/prometheus/metrics", // its /metrics is JSON
			Waiting:   []string{"trtllm_num_requests_waiting"},
			Running:   []string{"trtllm_num_requests_running"},
			KVUsage:   []string{"trtllm_kv_cache_utilization"},
			BlockSize: "trtllm_kv_cache_tokens_per_block",
			Blocks:    "trtllm_kv_cache_max_blocks",
		},
		{
			Name:      EngineTritonTRTLLM,
			Waiting:   []string{"nv_trt_llm_request_metrics{request_type=waiting}"},
			Running:   []string{"nv_trt_llm_request_metrics{request_type=scheduled}"},
			KVUsage:   []string{"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"},
			BlockSize: "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
			Blocks:    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
		},
		{
			Name:    EngineTriton,
			Waiting: []string{"nv_inference_pending_request_count"},
		},
	}
}

// mergeEngines returns the built-in engines and the user's engines. A user's engine replaces a built-in one with the same
// name.
func mergeEngines(users []Engine) []Engine {
	all := builtinEngines()
	for _, u := range users {
		replaced := false
		for i := range all {
			if all[i].Name == u.Name {
				all[i], replaced = u, true
			}
		}
		if !replaced {
			all = append(all, u)
		}
	}
	return all
}
