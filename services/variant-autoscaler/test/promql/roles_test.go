//go:build system

package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestWaitingForRoom has decode servers with requests of which some only wait for their KV cache.
func TestWaitingForRoom(t *testing.T) {
	t.Parallel()
	labels := `{engine="0",model_name="m"`
	byReason := fmt.Sprintf("vllm:num_requests_waiting_by_reason%s,reason=\"capacity\"} 3\nvllm:num_requests_waiting_by_reason%s,reason=\"deferred\"} 6\n", labels, labels)
	fetching := fmt.Sprintf("vllm:num_requests_kv_fetch_by_stage%[1]s,stage=\"waiting_to_start\"} 1\nvllm:num_requests_kv_fetch_by_stage%[1]s,stage=\"in_progress\"} 3\n"+
		"vllm:num_requests_kv_fetch_by_stage%[1]s,stage=\"completed_waiting\"} 2\n", labels)
	sglang := `sglang:num_running_reqs{model_name="m"} 4
sglang:num_queue_reqs{model_name="m"} 1
sglang:token_usage{model_name="m"} 0.5
`
	tests := []struct {
		name, page string
		want       float64
	}{
		{"vLLM that names the reasons", vllm("m", numbers{running: 4, waiting: 9}) + byReason + fetching, 3},
		{"vLLM that only counts fetches", vllm("m", numbers{running: 4, waiting: 9}) + fetching, 5},
		{"older vLLM", vllm("m", numbers{running: 4, waiting: 9}), 9},
		{"SGLang that decodes", sglang + "sglang:num_decode_prealloc_queue_reqs{model_name=\"m\"} 5\nsglang:num_decode_transfer_queue_reqs{model_name=\"m\"} 8\n", 6},
		{"older SGLang", sglang, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.scrape(pod("ns", "a", func(time.Duration) string { return tt.page }))
			g := group("m", []string{"a"})
			g.Variants[0].Role = snapshot.Decode
			r := w.collect(g)[0]
			load := r.LoadForRole(snapshot.Decode)
			require.Equal(t, snapshot.Found, load.State, load.Message)
			assert.InDelta(t, tt.want, load.Waiting, 1e-6)
			require.NotNil(t, r.Variants[0].Sample)
			assert.InDelta(t, tt.want, r.Variants[0].Sample.Waiting, 1e-6)
		})
	}
}
