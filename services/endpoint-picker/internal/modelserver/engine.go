package modelserver

// Names of the built-in engines.
const (
	EngineVLLM         = "vllm"
	EngineSGLang       = "sglang"
	EngineTRTLLMServe  = "trtllm-serve"
	EngineTritonTRTLLM = "triton-tensorrt-llm"
	EngineTriton       = "triton"

	engineReserved = "default" // reserved: upstream's name of the default engine

	labelModel = "model_name"

	// Labels of the size of the KV cache, for an engine without its own: those of vLLM, as upstream.
	usualBlockSizeLabel = "block_size"
	usualBlocksLabel    = "num_gpu_blocks"

	tritonMetricsPort = 8002 // default of --metrics-port; requests have 8000 and 8001
)

// Metrics are the names of one metric in several versions of a server. A metric is "name" or "name{label=value}", quotes
// optional. The first one that the page has counts: so pages of old and new versions work, and those of versions in between
// that have both names. A configuration contains one.
type Metrics []string

// UnmarshalText sets one metric, or none for an empty text.
func (m *Metrics) UnmarshalText(text []byte) error {
	*m = nil
	if len(text) > 0 {
		*m = Metrics{string(text)}
	}
	return nil
}

// An Engine names the metrics of one kind of model server. Its fields are the parameters of an entry in engineConfigs, and
// others for built-in engines.
//
// Requests and blocks of several series are collected by their labels (tally); the fullest KV cache counts.
type Engine struct {
	Name string `yaml:"name"`
	Path string `yaml:"-"` // of the page, if Source has none; empty is /metrics
	Port int    `yaml:"-"` // of the page, if Source has none; 0 is the endpoint's own

	Waiting Metrics `yaml:"queuedRequestsSpec,omitempty"`  // requests in the queue
	Running Metrics `yaml:"runningRequestsSpec,omitempty"` // requests in the batch
	KVUsage Metrics `yaml:"kvUsageSpec,omitempty"`         // share of the KV cache in use, 0 to 1
	LoRA    string  `yaml:"loraSpec,omitempty"`            // series whose labels list adapters and whose value is the time

	// The size of the KV cache, by labels of a series or by gauges.
	CacheInfo      string `yaml:"cacheInfoSpec,omitempty"`
	BlockSizeLabel string `yaml:"cacheBlockSizeLabelName,omitempty"` // tokens; empty is that of vLLM
	BlocksLabel    string `yaml:"cacheNumBlocksLabelName,omitempty"` // empty is that of vLLM
	TokensLabel    string `yaml:"-"`                                 // instead of blocks, which hold fewer tokens in hybrid models
	BlockSize      string `yaml:"cacheBlockSizeSpec,omitempty"`      // tokens
	Blocks         string `yaml:"cacheNumBlocksSpec,omitempty"`
	Tokens         string `yaml:"-"` // instead of blocks, if the page has none
	HostTokens     string `yaml:"-"` // additional tokens in the host's memory

	// AlignmentLabels are labels of CacheInfo with the tokens that cached prefixes are multiples of. The first number counts, else
	// the size of a block.
	AlignmentLabels []string `yaml:"-"`

	// Counters of prompt tokens since the start: those that were looked up in the prefix cache, and those found there. Instead of
	// the first, a server may count those that were not found.
	Queries  Metrics `yaml:"-"`
	Hits     Metrics `yaml:"-"`
	Missed   Metrics `yaml:"-"`
	InBlocks bool    `yaml:"-"` // they count blocks

	// ModelLabel is the label of gauges with the name of the base model, for servers that count tokens at /tokenize like vLLM.
	ModelLabel string `yaml:"-"`

	Custom []CustomMetric `yaml:"customMetrics,omitempty"`
}

// A CustomMetric is a value for endpoint.Page.Attributes. The greatest of several series counts.
type CustomMetric struct {
	Attribute string `yaml:"attributeKey"`
	Metric    string `yaml:"metricSpec"`
}

// builtinEngines returns the built-in engines.
//
// Triton's own metrics have no gauge of running requests: nv_inference_exec_count, which upstream uses, counts executions
// since the server began, so an older server would look busier. Only our own leases are known to run there.
func builtinEngines() []Engine {
	return []Engine{
		{ //nolint:gosec // its tokens are no secrets
			Name:           EngineVLLM,
			Waiting:        Metrics{"vllm:num_requests_waiting"},
			Running:        Metrics{"vllm:num_requests_running"},
			KVUsage:        Metrics{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
			LoRA:           "vllm:lora_requests_info",
			CacheInfo:      "vllm:cache_config_info",
			BlockSizeLabel: usualBlockSizeLabel,
			BlocksLabel:    usualBlocksLabel,
			TokensLabel:    "kv_cache_size_tokens",
			// In hybrid models a hit is a multiple of the blocks of all layers. hash_block_size is smaller, and no hit ends there.
			AlignmentLabels: []string{"cache_hit_alignment_tokens", "effective_attention_block_size"},
			Queries:         Metrics{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"},
			Hits:            Metrics{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"},
			ModelLabel:      labelModel,
		},
		{ //nolint:gosec // its tokens are no secrets
			Name:       EngineSGLang,
			Waiting:    Metrics{"sglang:num_queue_reqs"},
			Running:    Metrics{"sglang:num_running_reqs"},
			KVUsage:    Metrics{"sglang:token_usage"},
			BlockSize:  "sglang:page_size",
			Blocks:     "sglang:num_pages",
			Tokens:     "sglang:max_total_num_tokens",
			HostTokens: "sglang:hicache_host_total_tokens",
			Queries:    Metrics{"sglang:prompt_tokens_total"},
			Hits:       Metrics{"sglang:cached_tokens_total"}, // of the device, the host and the storage
			ModelLabel: labelModel,
		},
		{
			Name:      EngineTRTLLMServe,
			Path:      "/prometheus/metrics", // its /metrics is JSON
			Waiting:   Metrics{"trtllm_num_requests_waiting"},
			Running:   Metrics{"trtllm_num_requests_running"},
			KVUsage:   Metrics{"trtllm_kv_cache_utilization"},
			BlockSize: "trtllm_kv_cache_tokens_per_block",
			Blocks:    "trtllm_kv_cache_max_blocks",
			Hits:      Metrics{"trtllm_kv_cache_reused_blocks_total"},
			Missed:    Metrics{"trtllm_kv_cache_missed_blocks_total"},
			InBlocks:  true,
		},
		{
			Name:      EngineTritonTRTLLM,
			Port:      tritonMetricsPort,
			Waiting:   Metrics{"nv_trt_llm_request_metrics{request_type=waiting}"},
			Running:   Metrics{"nv_trt_llm_request_metrics{request_type=scheduled}"},
			KVUsage:   Metrics{"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"},
			BlockSize: "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
			Blocks:    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
		},
		{
			Name:    EngineTriton,
			Port:    tritonMetricsPort,
			Waiting: Metrics{"nv_inference_pending_request_count"},
		},
	}
}

// mergeEngines returns the built-in engines and the user's engines. A user's engine replaces the metrics of a built-in one with the same
// name, whose page stays where it is.
func mergeEngines(users []Engine) []Engine {
	all := builtinEngines()
	for _, u := range users {
		replaced := false
		for i := range all {
			if all[i].Name == u.Name {
				u.Path, u.Port = all[i].Path, all[i].Port
				all[i], replaced = u, true
			}
		}
		if !replaced {
			all = append(all, u)
		}
	}
	return all
}
