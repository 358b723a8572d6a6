package modelserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindEngine(t *testing.T) {
	t.Parallel()
	triton := MetricNames{
		Waiting: "nv_trt_llm_request_metrics{request_type=waiting}", Running: "nv_trt_llm_request_metrics{request_type=scheduled}",
		KVUsage: `nv_trt_llm_kv_cache_block_metrics{ kv_cache_block_type="fraction" }`,
	}
	tests := []struct {
		name string
		give MetricNames
		want string
	}{
		{name: "nothing", want: EngineVLLM},
		{name: "vLLM", give: MetricNames{Waiting: "vllm:num_requests_waiting", Running: "vllm:num_requests_running", LoRA: "vllm:lora_requests_info", CacheInfo: "vllm:cache_config_info"}, want: EngineVLLM},
		{name: "an old name of vLLM", give: MetricNames{KVUsage: "vllm:gpu_cache_usage_perc"}, want: EngineVLLM},
		{name: "SGLang", give: MetricNames{Waiting: "sglang:num_queue_reqs", Running: "sglang:num_running_reqs", KVUsage: "sglang:token_usage", CacheInfo: "sglang:cache_config_info"}, want: EngineSGLang},
		{name: "trtllm-serve", give: MetricNames{Waiting: "trtllm_num_requests_waiting", KVUsage: "trtllm_kv_cache_utilization", CacheInfo: "trtllm_cache_config_info"}, want: EngineTRTLLMServe},
		{name: "Triton with TensorRT-LLM", give: triton, want: EngineTritonTRTLLM},
		{name: "Triton", give: MetricNames{Waiting: "nv_inference_pending_request_count"}, want: EngineTriton},
		{name: "metrics of two engines", give: MetricNames{Waiting: "sglang:num_queue_reqs", Running: "vllm:num_requests_running"}},
		{name: "the size of another engine", give: MetricNames{Waiting: "vllm:num_requests_waiting", CacheInfo: "sglang:cache_config_info"}},
		{name: "a metric in the place of another", give: MetricNames{Running: "sglang:num_queue_reqs"}},
		{name: "another label", give: MetricNames{Waiting: "nv_trt_llm_request_metrics{request_type=active}"}},
		{name: "no label", give: MetricNames{Waiting: "nv_trt_llm_request_metrics"}},
		{name: "an unknown metric", give: MetricNames{Waiting: "q"}},
		{name: "no metric", give: MetricNames{Waiting: "sum(q)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := FindEngine(tt.give)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.want != "", ok)
		})
	}
}
