package plugins

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// threshold returns the parameters of an endpoint-attribute-filter.
func threshold(attribute, operator string, value float64, further string) string {
	return fmt.Sprintf("{attribute: %s, %salgorithm: {type: threshold, threshold: {operator: %s, value: %v}}}", attribute, further, operator, value)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	roles := servers(nil, role("decode"), role("prefill"), role("encode"), role("both"), role("prefill-decode"), role("encode-prefill"), role("encode-prefill-decode"), role("other"))
	temperatures := pages(map[string]float64{"t": 10}, map[string]float64{"t": 20}, map[string]float64{"t": 30})
	header := func(v string) *pickRequest {
		return &pickRequest{Headers: api.Headers{{Name: api.HeaderSelection, Value: v}}}
	}
	queues := busy(load{Waiting: 5}, load{Waiting: 4.9}, load{KVUsage: 0.8}, load{KVUsage: 0.79}, load{Waiting: 50, Failing: endpoint.ToMonotonic(noon.Add(-time.Hour)), Open: 99})
	const attribute, utilization, detector, concurrency = "endpoint-attribute-filter", "utilization-filter", "utilization-detector", "concurrency-detector"

	tests := []struct {
		name       string
		filter     string
		parameters string
		request    *pickRequest
		give       []candidate
		want       []int
	}{
		{name: "labels", filter: "label-selector-filter", parameters: "{matchLabels: {gpu: h100}, matchExpressions: [{key: tier, operator: NotIn, values: [spot]}]}", give: servers(map[string]string{"gpu": "h100"}, map[string]string{"gpu": "h100", "tier": "spot"}, nil, map[string]string{"gpu": "l4"}), want: []int{0}},
		{name: "label values", filter: "by-label", parameters: "{label: gpu, validValues: [h100, h200]}", give: servers(map[string]string{"gpu": "h100"}, nil, map[string]string{"gpu": "l4"}), want: []int{0}},
		{name: "label values, or no label", filter: "by-label", parameters: "{label: gpu, validValues: [h100, h200], allowsNoLabel: true}", give: servers(map[string]string{"gpu": "h200"}, nil, map[string]string{"gpu": "l4"}), want: []int{0, 1}},
		{name: "decode", filter: "decode-filter", give: roles, want: []int{0, 1, 4, 5, 7}},
		{name: "prefill", filter: "prefill-filter", give: roles, want: []int{2, 4, 5, 6, 7}},
		{name: "encode", filter: "encode-filter", give: roles, want: []int{3, 6, 7}},
		{name: "no role that fits", filter: "encode-filter", give: servers(nil, role("decode")), want: []int{}},

		{name: "testing, addresses and ports", filter: "header-based-testing-filter", request: header("10.0.0.3, 10.0.0.1:8000,10.0.0.2:1"), give: servers(nil, nil, nil), want: []int{0, 2}},
		{name: "testing, unknown address", filter: "header-based-testing-filter", request: header("10.9.9.9"), give: servers(nil), want: []int{}},
		{name: "testing, no header", filter: "header-based-testing-filter", request: header(""), give: servers(nil, nil), want: []int{0, 1}},

		{name: "attribute at most", filter: attribute, parameters: threshold("t", "LessThanOrEqual", 20, ""), give: temperatures, want: []int{0, 1, 3}},
		{name: "attribute below", filter: attribute, parameters: threshold("t", "LessThan", 20, "onMissing: Fail, "), give: temperatures, want: []int{0}},
		{name: "attribute at least", filter: attribute, parameters: threshold("t", "GreaterThanOrEqual", 20, "onMissing: Fail, "), give: temperatures, want: []int{1, 2}},
		{name: "attribute above", filter: attribute, parameters: threshold("t", "GreaterThan", 20, "onMissing: Fail, "), give: temperatures, want: []int{2}},
		{name: "attribute equal", filter: attribute, parameters: threshold("t", "Equal", 20, "onMissing: Fail, "), give: temperatures, want: []int{1}},
		{name: "attribute not equal", filter: attribute, parameters: threshold("t", "NotEqual", 20, "onMissing: Fail, "), give: temperatures, want: []int{0, 2}},
		{name: "missing attribute", filter: attribute, parameters: threshold("x", "LessThan", 0, "onMissing: Fail, "), give: temperatures, want: []int{}},
		{name: "missing attribute, fall back", filter: attribute, parameters: threshold("x", "LessThan", 0, "onMissing: Fail, fallbackOnEmpty: true, "), give: temperatures, want: []int{0, 1, 2, 3}},

		{name: "utilization, all limits", filter: utilization, parameters: "{conditions: [{metric: running-requests, maxValue: 40}, {metric: waiting-queue, maxValue: 0}, {metric: kv-cache-utilization, maxValue: 0.8}, {metric: active-requests, maxValue: 9}]}", give: busy(load{Running: 40, KVUsage: 0.8, Requests: 9}, load{Running: 41}, load{Waiting: 1}, load{KVUsage: 0.81}, load{Requests: 10}), want: []int{0}},
		{name: "utilization, none within", filter: utilization, parameters: "{conditions: [{metric: waiting-queue, maxValue: 0}]}", give: busy(load{Waiting: 1}), want: []int{}},
		{name: "utilization, fall back", filter: utilization, parameters: "{conditions: [{metric: waiting-queue, maxValue: 0}], fallbackOnEmpty: true}", give: busy(load{Waiting: 1}), want: []int{0}},

		{name: "not saturated", filter: detector, give: queues, want: []int{1, 3, 4}},
		{name: "not saturated, with headroom", filter: detector, parameters: "{headroom: 0.2}", give: queues, want: []int{0, 1, 2, 3, 4}},
		{name: "all saturated", filter: detector, give: busy(load{Waiting: 5}, load{Waiting: 6}), want: []int{0, 1}},
		{name: "below concurrency", filter: concurrency, parameters: "{maxConcurrency: 10}", give: busy(load{Requests: 9}, load{Requests: 10}, load{Tokens: 1e9}), want: []int{0, 2}},
		{name: "below concurrency of tokens too", filter: concurrency, parameters: "{concurrencyMode: hybrid, maxConcurrency: 10, maxTokenConcurrency: 100, headroom: 0.5}", give: busy(load{Requests: 14}, load{Requests: 15}, load{Tokens: 149}, load{Tokens: 150}), want: []int{0, 2}},
		{name: "failed requests", filter: concurrency, parameters: "{maxConcurrency: 10}", give: busy(load{Requests: 41, Failed: 32}, load{Requests: 42, Failed: 32}), want: []int{0}},
		{name: "all above concurrency", filter: concurrency, parameters: "{maxConcurrency: 10}", give: busy(load{Requests: 11}), want: []int{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := pickRequest{Now: noon}
			if tt.request != nil {
				r.Headers = tt.request.Headers
			}
			f := filter(t, tt.filter, tt.parameters)
			for range 2 { // the same input, the same choice
				assert.Equal(t, tt.want, indexes(f.Filter(&r, append([]candidate{}, tt.give...))))
			}
		})
	}
}

func TestFiltersByLoadLetClientsRetry(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{"utilization-filter": "{conditions: [{metric: waiting-queue, maxValue: 0}]}", "concurrency-detector": ""} {
		assert.Equal(t, scheduling.ErrNoCapacity, build[scheduling.EmptyResult](t, name, parameters).ErrEmpty(), name)
	}
}

func TestPrefixCacheAffinityFilter(t *testing.T) {
	t.Parallel()
	const usual = "maxTTFTPenaltyMs: 10000, peakPrefillThroughput: 1000"
	tests := []struct {
		name       string
		parameters string
		tokens     int
		give       []candidate
		want       []int
	}{
		{name: "where most of it is", parameters: usual, tokens: 100, give: matched(make([]load, 4), 79, 80, 0, 500), want: []int{1, 3}},
		{name: "nowhere", parameters: usual, tokens: 100, give: matched(make([]load, 2), 79, 0), want: []int{0, 1}},
		{name: "everywhere", parameters: usual, tokens: 100, give: matched(make([]load, 2), 100, 90), want: []int{0, 1}},
		{name: "no prompt", parameters: usual, give: matched(make([]load, 2), 100, 0), want: []int{0, 1}},
		{name: "at the maximum penalty", parameters: usual, tokens: 100, give: matched([]load{{Tokens: 12_000}, {Tokens: 2000}, {Tokens: 9000}}, 100), want: []int{0}},
		{name: "too busy", parameters: usual, tokens: 100, give: matched([]load{{Tokens: 12_001}, {Tokens: 2000}, {Tokens: 9000}}, 100), want: []int{0, 1, 2}},
		{name: "one of two is not too busy", parameters: usual, tokens: 100, give: matched([]load{{Tokens: 99_000}, {Tokens: 3000}, {}}, 100, 100), want: []int{0, 1}},
		{name: "no maximum penalty", parameters: "maxTTFTPenaltyMs: 0", tokens: 100, give: matched([]load{{Tokens: 1e9}, {}}, 100), want: []int{0}},
		{name: "at the maximum of tokens in flight", parameters: "maxTTFTPenaltyMs: 0, maxTokensInFlightPenalty: 450", tokens: 100, give: matched([]load{{Tokens: 500}, {Tokens: 50}}, 100), want: []int{0}},
		{name: "too many tokens in flight", parameters: "maxTTFTPenaltyMs: 0, maxTokensInFlightPenalty: 449", tokens: 100, give: matched([]load{{Tokens: 500}, {Tokens: 50}}, 100), want: []int{0, 1}},
		{name: "few tokens in flight, but too late", parameters: "maxTTFTPenaltyMs: 10, peakPrefillThroughput: 1000, maxTokensInFlightPenalty: 1000", tokens: 100, give: matched([]load{{Tokens: 500}, {Tokens: 50}}, 100), want: []int{0, 1}},
		{name: "by the predicted wait, too late", parameters: "maxTTFTPenaltyMs: 10000, ttftSource: latencyPredictor", tokens: 100, give: matched([]load{{Wait: 10.6}, {Wait: 0.5, Tokens: 1e9}}, 100), want: []int{0, 1}},
		{name: "by the predicted wait", parameters: "maxTTFTPenaltyMs: 10000, ttftSource: latencyPredictor", tokens: 100, give: matched([]load{{Wait: 10.4, Tokens: 1e9}, {Wait: 0.5}}, 100), want: []int{0}},
		{name: "exploring", parameters: "explorationProbability: 1", tokens: 100, give: matched(make([]load, 2), 100, 0), want: []int{0, 1}},
	}
	const name = "prefix-cache-affinity-filter"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := filter(t, name, "{"+tt.parameters+"}")
			assert.Equal(t, tt.want, indexes(f.Filter(&pickRequest{Now: noon, Tokens: tt.tokens}, tt.give)))
		})
	}

	some := filter(t, name, "{explorationProbability: 0.2}")
	explored := 0
	for i := range uint64(10_000) {
		explored += len(some.Filter(&pickRequest{Random: i, Tokens: 100}, matched(make([]load, 2), 100))) - 1
	}
	assert.InDelta(t, 2000, explored, 150)
}

func TestSaturation(t *testing.T) {
	t.Parallel()
	old := endpoint.ToMonotonic(noon.Add(-time.Hour))
	const utilization, concurrency = "utilization-detector", "concurrency-detector"
	tests := []struct {
		name       string
		detector   string
		parameters string
		give       []candidate
		want       float64
	}{
		{name: "no endpoints", detector: utilization, want: 1},
		{name: "idle", detector: utilization, give: busy(load{}, load{}), want: 0},
		{name: "the fuller of queue and cache, on average", detector: utilization, give: busy(load{Waiting: 10, KVUsage: 0.4}, load{Waiting: 1, KVUsage: 0.4}), want: 1.25},
		{name: "headroom is only for the filter", detector: utilization, parameters: "{headroom: 9}", give: busy(load{Waiting: 5}), want: 1},
		{name: "stale counts by requests in flight", detector: utilization, give: busy(load{Failing: old, Waiting: 99, Open: 50}, load{Waiting: 5}), want: 0.75},
		{name: "stale and idle is not full", detector: utilization, give: busy(load{Failing: old, Waiting: 99}), want: 0},

		{name: "concurrency, no endpoints", detector: concurrency, want: 1},
		{name: "requests over capacity", detector: concurrency, give: busy(load{Requests: 150, Tokens: 1e9}, load{Requests: 50}), want: 1},
		{name: "tokens over capacity", detector: concurrency, parameters: "{concurrencyMode: tokens, maxTokenConcurrency: 1000}", give: busy(load{Requests: 150, Tokens: 500}, load{}), want: 0.25},
		{name: "the higher one of each endpoint", detector: concurrency, parameters: "{concurrencyMode: hybrid, maxConcurrency: 10, maxTokenConcurrency: 1000}", give: busy(load{Requests: 10}, load{Tokens: 1000}), want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := build[scheduling.Detector](t, tt.detector, tt.parameters)
			assert.InDelta(t, tt.want, d.Saturation(noon, tt.give), 1e-9)
		})
	}
}
