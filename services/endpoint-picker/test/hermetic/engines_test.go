//go:build system

package hermetic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

const explained = "x-fairlead-pick-explained"

// ids is a prompt of n token ids from first on.
func ids(first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, first+i)
	}
	return b.String()
}

// cached sends a prompt of token ids to one server, which has it then, and returns what of it was there before, as
// "matched/all".
func (r *rig) cached(server int, prompt string) string {
	r.t.Helper()
	s := r.ask(request{body: `{"model": "m", "prompt": [` + prompt + `]}`, subset: list(r.at(server)), rules: envoytest.Rules{Reply: []string{explained}}})
	s.respond(response{pieces: []string{`{"choices":[{}]}`}})
	s.end()
	_, after, found := strings.Cut(strings.Join(s.gateway.ResponseHeaders()[explained], ""), "cached=")
	require.True(r.t, found)
	return after
}

// capacity returns how many blocks the picker believes a server's cache to have.
func (r *rig) capacity(server int) int {
	r.t.Helper()
	var page struct {
		Pools []struct {
			Endpoints []struct {
				Address     string
				CacheBlocks int
			}
		}
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.get(r.address("metrics-bind-address"), "/debug/pools.json")), &page))
	for _, e := range page.Pools[0].Endpoints {
		if e.Address == r.at(server) {
			return e.CacheBlocks
		}
	}
	r.t.Fatalf("no %s", r.at(server))
	return 0
}

func vllmCache(blocks, size int) string {
	return pageOf(0, 0, 0, "") + fmt.Sprintf("vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", size, blocks)
}

// What is believed of a server's cache: as many tokens as its page says, whatever its blocks are; of what it gives up the ends of
// prompts before their beginnings; and of a prompt only what is there from the first token on.
func TestCachesOfModelServers(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{vllmCache(2, 64), vllmCache(8, 16)}, flags: []string{"--explain"}})
	for server := range 2 {
		r.await(func() bool { return r.capacity(server) == 8 }, "128 tokens are 8 blocks of 16")
	}
	a, b := ids(1000, 96), ids(5000, 64)
	assert.Equal(t, "0/96", r.cached(0, a))
	assert.Equal(t, "64/96", r.cached(0, a), "whole blocks, without the one of the last token")
	assert.Equal(t, "0/96", r.cached(1, a), "each has its own")
	assert.Equal(t, "0/96", r.cached(0, ids(2000, 16)+","+ids(1016, 80)), "the same tokens after others are another prompt")

	assert.Equal(t, "0/64", r.cached(1, b))
	assert.Equal(t, "64/96", r.cached(1, a), "two blocks had to go: its last")
	assert.Equal(t, "32/64", r.cached(1, b))

	r.servers[1].show(vllmCache(4, 16))
	r.await(func() bool { return r.capacity(1) == 4 }, "a smaller cache")
	assert.Equal(t, "48/64", r.cached(1, b), "the last one used, without its last token")
	assert.Equal(t, "0/96", r.cached(1, a))
}

// Engines say their cache in their own ways.
func TestCachesOfOtherEngines(t *testing.T) {
	t.Parallel()
	label := func(engine string) map[string]string { return map[string]string{"llm-d.ai/engine-type": engine} }
	r := start(t, world{
		pages: []string{
			"sglang:num_queue_reqs 3\nsglang:num_running_reqs 2\nsglang:token_usage 0.5\nsglang:page_size 1\nsglang:num_pages 128\n",
			"sglang:num_queue_reqs 3\nsglang:num_running_reqs 2\nsglang:token_usage 0.5\nsglang:page_size 64\nsglang:max_total_num_tokens 128\n",
			"nv_trt_llm_request_metrics{request_type=\"waiting\"} 3\nnv_trt_llm_request_metrics{request_type=\"scheduled\"} 2\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 32\n" +
				"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 4\n",
		},
		labels: []map[string]string{label("sglang"), label("sglang"), label("triton-tensorrt-llm")}, onePort: true,
	})
	for server := range r.servers {
		r.await(func() bool { return r.capacity(server) == 8 }, "128 tokens are 8 blocks of 16")
		page := r.metrics()
		assert.Equal(t, 3.0, page.sum("fairlead_picker_endpoint_requests_waiting", "endpoint", r.at(server)))
		assert.Equal(t, 2.0, page.sum("fairlead_picker_endpoint_requests_running", "endpoint", r.at(server)))
		assert.Equal(t, 0.5, page.sum("fairlead_picker_endpoint_kv_cache_usage", "endpoint", r.at(server)))
	}
}

// The charts of the Inference Extension name the metrics of an engine. Pods need no label for it then.
func TestEngineOfUpstreamsCharts(t *testing.T) {
	t.Parallel()
	r := start(t, world{
		pages: []string{
			"sglang:num_queue_reqs 3\nsglang:num_running_reqs 2\nsglang:token_usage 0.5\nsglang:page_size 1\nsglang:num_pages 128\n",
			"sglang:num_queue_reqs 0\nsglang:num_running_reqs 1\nsglang:token_usage 0.5\nsglang:page_size 64\nsglang:max_total_num_tokens 128\n",
		},
		flags: []string{
			`--total-queued-requests-metric="sglang:num_queue_reqs"`, `--total-running-requests-metric="sglang:num_running_reqs"`,
			`-kvCacheUsagePercentageMetric="sglang:token_usage"`, `--cache-info-metric="sglang:cache_config_info"`, "--lora-info-metric", "",
		},
	})
	for server := range r.servers {
		r.await(func() bool { return r.capacity(server) == 8 }, "128 tokens are 8 blocks of 16")
	}
	page := r.metrics()
	assert.Equal(t, 3.0, page.sum("fairlead_picker_endpoint_requests_waiting", "endpoint", r.at(0)))
	assert.Equal(t, 1.0, page.sum("fairlead_picker_endpoint_requests_running", "endpoint", r.at(1)))
}

// Triton counts what it has ever executed: a server is not the busier the older it is.
func TestTritonsCounterIsNoLoad(t *testing.T) {
	t.Parallel()
	label := map[string]string{"llm-d.ai/engine-type": "triton"}
	r := start(t, world{
		pages: []string{
			"nv_inference_exec_count{model=\"m\"} 1000000\nnv_inference_pending_request_count{model=\"m\"} 0\n",
			"nv_inference_exec_count{model=\"m\"} 1\nnv_inference_pending_request_count{model=\"m\"} 0\n",
		},
		labels: []map[string]string{label, label}, onePort: true,
	})
	assert.Zero(t, r.metrics().sum("fairlead_picker_endpoint_requests_running"))
	young := r.ask(request{body: ofModel, subset: list(r.at(1))})
	for range 5 {
		assert.Equal(t, r.at(0), r.serve(request{body: ofModel}, response{pieces: completion}), "the old one is idle, the young one is not")
	}
	young.respond(response{})
	young.end()
}
