//go:build system

package hermetic

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	sseOpenAI = "data: {\"id\":\"1\",\"model\":\"my-model\",\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\n" +
		"data: {\"id\":\"1\",\"model\":\"my-model\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":17,\"completion_tokens\":10,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n" +
		"data: [DONE]\n\n"
	sseAnthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":10}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	sseResponses = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"output\":[]}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":10,\"total_tokens\":17}}}\n\n"
)

// Case 19 of upstream's suite: usage that is split over pieces of a stream of events, in all its forms, and what the metrics say
// to the number.
func TestUsageOfStreams(t *testing.T) {
	t.Parallel()
	const stream = `{"model": "my-model", "prompt": "hello", "stream": true, "stream_options": {"include_usage": true}}`
	tests := []struct {
		name, path, body, events string
	}{
		{name: "completions", path: "/v1/completions", body: stream, events: sseOpenAI},
		{name: "messages", path: "/v1/messages", body: strings.Replace(stream, `"prompt": "hello"`, `"messages": [{"role": "user", "content": "hello"}]`, 1), events: sseAnthropic},
		{name: "responses", path: "/v1/responses", body: strings.Replace(stream, `"prompt"`, `"input"`, 1), events: sseResponses},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
			q := request{path: tt.path, body: tt.body}
			events := []string{"content-type", "text/event-stream; charset=utf-8"}
			cuts := [][]string{{tt.events}, strings.Split(tt.events, ""), strings.SplitAfter(tt.events, ":"), {tt.events, ""}}
			for _, pieces := range cuts {
				r.serve(q, response{headers: events, pieces: pieces})
			}
			labels := []string{"model_name", "my-model", "target_model_name", "my-model", "fairness_id", "default-flow", "priority", "0"}
			page, n := r.metrics(), float64(len(cuts))
			for name, want := range map[string]float64{
				"llm_d_epp_request_input_tokens": 7, "llm_d_epp_request_output_tokens": 10, "llm_d_epp_request_cached_tokens": 5,
				"llm_d_epp_request_size_bytes": float64(len(tt.body)), "llm_d_epp_response_size_bytes": float64(len(tt.events)),
			} {
				assert.Equal(t, n, page.sum(name, labels...), name)
				assert.Equal(t, n*want, page.sampled(name), name)
			}
			for _, name := range []string{
				"llm_d_epp_request_total", "llm_d_epp_request_duration_seconds", "llm_d_epp_request_ntpot_seconds", "llm_d_epp_request_streaming_tpot_seconds",
			} {
				assert.Equal(t, n, page.sum(name, labels...), name)
			}
			assert.Equal(t, n, page.sum("llm_d_epp_request_ttft_seconds", append(labels, "streaming", "true")...))
			assert.Equal(t, n, page.sum("llm_d_epp_scheduler_attempts_total", "status", "success", "target_model_name", "my-model"))
			assert.Equal(t, n, page.sum("fairlead_picker_responses_total", "code", "200"))
			assert.Zero(t, page.sum("llm_d_epp_request_error_total"))
		})
	}
}

// A status is seen where Envoy puts it, under :status, so that errors of model servers count as errors.
func TestErrorsOfModelServers(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: []string{"--eject-after=2", "--ejection-time=1h", "--ejection-time-max=1h"}})
	broken := r.serve(request{body: ofModel}, response{status: 503, pieces: []string{"broken"}})
	other := r.at(0)
	if broken == other {
		other = r.at(1)
	}
	s := r.ask(request{body: ofModel, subset: list(broken)})
	s.respond(response{status: 503, pieces: []string{"broken"}})
	s.end()
	for range 5 {
		assert.Equal(t, other, r.serve(request{body: ofModel}, response{}), "the broken one is ejected")
	}
	assert.Equal(t, broken, r.serve(request{body: ofModel, subset: list(broken)}, response{}), "unless nobody else may be")
	page := r.metrics()
	assert.Equal(t, 2.0, page.sum("llm_d_epp_request_error_total", "model_name", "my-model", "error_code", "ModelServerError"))
	assert.Equal(t, 2.0, page.sum("fairlead_picker_responses_total", "code", "503", "served", "picked"))
	assert.Equal(t, 6.0, page.sum("fairlead_picker_responses_total", "code", "200", "served", "picked"))
}

// All that is said of a refused request, by the class of its error.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--max-request-body=1Ki"}})
	r.ask(unreadable("{")).refused()
	r.ask(request{body: longBody(2000)}).refused()
	r.ask(request{body: ofModel, subset: list()}).refused()
	page := r.metrics()
	assert.Equal(t, 2.0, page.sum("llm_d_epp_request_error_total", "error_code", "BadRequest"))
	assert.Equal(t, 1.0, page.sum("llm_d_epp_request_error_total", "error_code", "ServiceUnavailable"))
	assert.Equal(t, 3.0, page.sum("fairlead_picker_streams_total", "outcome", "refused"))
	assert.Zero(t, page.sum("llm_d_epp_request_total"))
	family := page["llm_d_epp_scheduler_attempts_total"]
	require.NotNil(t, family)
	assert.Equal(t, dto.MetricType_COUNTER, family.GetType())
	assert.Equal(t, 1.0, page.sum("llm_d_epp_scheduler_attempts_total", "status", "failure"))
}
