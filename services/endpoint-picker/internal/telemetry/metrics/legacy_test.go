package metrics

import (
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOlderNames(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	e := newEndpoint("a")
	m := poolOf(t, r, e)
	first, second := streamed(e), streamed(e)
	second.Fairness, second.Priority = "another", 0
	m.ObserveRequest(first)
	m.ObserveRequest(second)

	assertMetrics(t, LegacyNames(r), `
# HELP inference_extension_scheduler_attempts_total Deprecated: use llm_d_epp_scheduler_attempts_total.
# TYPE inference_extension_scheduler_attempts_total counter
inference_extension_scheduler_attempts_total{namespace="ns",pod_name="a",port="8000",status="success",target_model_name="chat-v2"} 2
# HELP inference_objective_normalized_time_per_output_token_seconds Deprecated: use llm_d_epp_request_ntpot_seconds.
# TYPE inference_objective_normalized_time_per_output_token_seconds histogram
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.001"} 0
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.002"} 0
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.005"} 0
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.01"} 0
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.02"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.05"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.1"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.2"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="0.5"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="1"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="2"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="5"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="10"} 2
inference_objective_normalized_time_per_output_token_seconds_bucket{model_name="chat",target_model_name="chat-v2",le="+Inf"} 2
inference_objective_normalized_time_per_output_token_seconds_sum{model_name="chat",target_model_name="chat-v2"} 0.039603960396039604
inference_objective_normalized_time_per_output_token_seconds_count{model_name="chat",target_model_name="chat-v2"} 2
# HELP inference_objective_request_total Deprecated: use llm_d_epp_request_total.
# TYPE inference_objective_request_total counter
inference_objective_request_total{model_name="chat",priority="0",target_model_name="chat-v2"} 1
inference_objective_request_total{model_name="chat",priority="2",target_model_name="chat-v2"} 1
# HELP inference_objective_running_requests Deprecated: use llm_d_epp_request_running.
# TYPE inference_objective_running_requests gauge
inference_objective_running_requests{model_name="chat"} 0
# HELP inference_pool_per_pod_queue_size Deprecated: use llm_d_epp_per_endpoint_queue_size.
# TYPE inference_pool_per_pod_queue_size gauge
inference_pool_per_pod_queue_size{model_server_pod="a-rank-1",name="chat"} 0
# HELP llm_d_epp_request_total Requests sent to an endpoint.
# TYPE llm_d_epp_request_total counter
llm_d_epp_request_total{fairness_id="another",model_name="chat",priority="0",target_model_name="chat-v2"} 1
llm_d_epp_request_total{fairness_id="tenant",model_name="chat",priority="2",target_model_name="chat-v2"} 1
`, "inference_extension_scheduler_attempts_total", "inference_objective_normalized_time_per_output_token_seconds", "inference_objective_request_total",
		"inference_objective_running_requests", "inference_pool_per_pod_queue_size", "llm_d_epp_request_total")
}

// Every older name is one of a metric that there is.
func TestOlderNamesAreOfMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	families, err := r.Gather()
	require.NoError(t, err)
	for name := range olderNames {
		assert.True(t, slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == upstream+"_"+name }), name)
	}
	shown, err := LegacyNames(r).Gather()
	require.NoError(t, err)
	assert.True(t, slices.IsSortedFunc(shown, func(a, b *dto.MetricFamily) int {
		if a.GetName() < b.GetName() {
			return -1
		}
		return 1
	}))
}

// The Inference Extension 1.0 had these, and 1.3 to 1.5 times to the first token and between tokens.
func TestOlderNamesOfTheInferenceExtension(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	e := newEndpoint("a")
	m := poolOf(t, r, e)
	first, second := streamed(e), streamed(e)
	second.Priority = 0
	m.ObserveRequest(first)
	m.ObserveRequest(second)
	assertMetrics(t, LegacyNames(r), `
# HELP inference_extension_flow_control_queue_size Deprecated: use llm_d_epp_flow_control_queue_size.
# TYPE inference_extension_flow_control_queue_size gauge
inference_extension_flow_control_queue_size{fairness_id="default-flow",inference_pool="chat",model_name="",priority="0",target_model_name=""} 0
# HELP inference_model_request_total Deprecated: use llm_d_epp_request_total.
# TYPE inference_model_request_total counter
inference_model_request_total{model_name="chat",target_model_name="chat-v2"} 2
# HELP inference_model_running_requests Deprecated: use llm_d_epp_request_running.
# TYPE inference_model_running_requests gauge
inference_model_running_requests{model_name="chat"} 0
`, "inference_extension_flow_control_queue_size", "inference_model_request_total", "inference_model_running_requests")

	families, err := LegacyNames(r).Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			counts[f.GetName()] += series.GetHistogram().GetSampleCount()
		}
	}
	for _, name := range []string{
		"inference_objective_request_ttft_seconds", "inference_objective_request_tpot_seconds", "inference_model_request_duration_seconds",
		"inference_model_request_sizes", "inference_model_response_sizes", "inference_model_input_tokens", "inference_model_output_tokens",
		"inference_model_normalized_time_per_output_token_seconds",
	} {
		assert.Equal(t, uint64(2), counts[name], name)
	}
	assert.NotContains(t, counts, "inference_model_request_ttft_seconds", "it had none")
}

func TestOlderNamesOfWhatCouldBeGathered(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	newRequests(r)
	broken := errors.New("broken")
	families, err := LegacyNames(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		f, _ := r.Gather()
		return f, broken
	})).Gather()
	require.ErrorIs(t, err, broken)
	assert.NotEmpty(t, families)
}
