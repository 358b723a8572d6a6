package scheduling

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

// servers returns idle candidates on pods ns/a, ns/b and so on, each with one of the sets of labels.
func servers(sets ...map[string]string) []Candidate {
	candidates := busy(make([]Load, len(sets))...)
	for i, set := range sets {
		candidates[i].Server = &Server{
			Name: "ns/" + string(rune('a'+i)), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000), Labels: set,
		}
	}
	return candidates
}

func role(r string) map[string]string { return map[string]string{RoleLabel: r} }

func pages(attributes ...map[string]float64) []Candidate {
	loads := make([]Load, len(attributes))
	for i, a := range attributes {
		loads[i].Page = &Page{Attributes: a}
	}
	return busy(append(loads, Load{})...) // the last one without a page
}

func TestFilters(t *testing.T) {
	t.Parallel()
	selector, err := labels.Parse("gpu in (h100, h200), tier!=spot")
	require.NoError(t, err)
	roles := servers(nil, role("decode"), role("prefill"), role("encode"), role("both"), role("prefill-decode"), role("encode-prefill"), role("encode-prefill-decode"), role("other"))
	temperatures := pages(map[string]float64{"t": 10}, map[string]float64{"t": 20}, map[string]float64{"t": 30})
	session := func(s string) *Request { return &Request{Session: s} }
	header := func(v string) *Request { return &Request{Headers: api.Headers{{Name: TestingHeader, Value: v}}} }
	queues := busy(Load{Waiting: 5}, Load{Waiting: 4.9}, Load{KVUsage: 0.8}, Load{KVUsage: 0.79}, Load{Waiting: 50, Failing: noon.Add(-time.Hour), Open: 99})

	tests := []struct {
		name    string
		filter  Filter
		request *Request
		give    []Candidate
		want    []int
	}{
		{name: "labels", filter: SelectorFilter{selector}, give: servers(map[string]string{"gpu": "h100"}, map[string]string{"gpu": "h200", "tier": "spot"}, nil, map[string]string{"gpu": "l4"}), want: []int{0}},
		{name: "decode", filter: DecodeFilter(), give: roles, want: []int{0, 1, 4, 5, 7}},
		{name: "prefill", filter: PrefillFilter(), give: roles, want: []int{2, 4, 5, 6, 7}},
		{name: "encode", filter: EncodeFilter(), give: roles, want: []int{3, 6, 7}},
		{name: "no role that fits", filter: EncodeFilter(), give: servers(nil, role("decode")), want: []int{}},

		{name: "session", filter: SessionFilter{}, request: session("ns/b"), give: servers(nil, nil, nil), want: []int{1}},
		{name: "session that is not bound", filter: SessionFilter{}, request: session(""), give: servers(nil, nil), want: []int{0, 1}},
		{name: "session whose server has gone", filter: SessionFilter{}, request: session("ns/z"), give: servers(nil, nil), want: []int{0, 1}},

		{name: "testing, addresses and ports", filter: TestingFilter{}, request: header("10.0.0.3, 10.0.0.1:8000,10.0.0.2:1"), give: servers(nil, nil, nil), want: []int{0, 2}},
		{name: "testing, none there", filter: TestingFilter{}, request: header("10.9.9.9"), give: servers(nil), want: []int{}},
		{name: "testing, not asked", filter: TestingFilter{}, request: header(""), give: servers(nil, nil), want: []int{0, 1}},

		{name: "attribute at most", filter: AttributeFilter{Attribute: "t", Operator: LessOrEqual, Value: 20, KeepMissing: true}, give: temperatures, want: []int{0, 1, 3}},
		{name: "attribute below", filter: AttributeFilter{Attribute: "t", Operator: Less, Value: 20}, give: temperatures, want: []int{0}},
		{name: "attribute at least", filter: AttributeFilter{Attribute: "t", Operator: GreaterOrEqual, Value: 20}, give: temperatures, want: []int{1, 2}},
		{name: "attribute above", filter: AttributeFilter{Attribute: "t", Operator: Greater, Value: 20}, give: temperatures, want: []int{2}},
		{name: "attribute equal", filter: AttributeFilter{Attribute: "t", Operator: Equal, Value: 20}, give: temperatures, want: []int{1}},
		{name: "attribute not equal", filter: AttributeFilter{Attribute: "t", Operator: NotEqual, Value: 20}, give: temperatures, want: []int{0, 2}},
		{name: "attribute that nobody has", filter: AttributeFilter{Attribute: "x"}, give: temperatures, want: []int{}},
		{name: "attribute that nobody has, fall back", filter: AttributeFilter{Attribute: "x", FallbackOnEmpty: true}, give: temperatures, want: []int{0, 1, 2, 3}},

		{name: "utilization, all limits", filter: UtilizationFilter{Limits: []Limit{{RunningRequests, 40}, {WaitingRequests, 0}, {KVCacheUsage, 0.8}, {ActiveRequests, 9}}}, give: busy(Load{Running: 40, KVUsage: 0.8, Requests: 9}, Load{Running: 41}, Load{Waiting: 1}, Load{KVUsage: 0.81}, Load{Requests: 10}), want: []int{0}},
		{name: "utilization, none within", filter: UtilizationFilter{Limits: []Limit{{WaitingRequests, 0}}}, give: busy(Load{Waiting: 1}), want: []int{}},
		{name: "utilization, fall back", filter: UtilizationFilter{Limits: []Limit{{WaitingRequests, 0}}, FallbackOnEmpty: true}, give: busy(Load{Waiting: 1}), want: []int{0}},

		{name: "not saturated", filter: utilization(0), give: queues, want: []int{1, 3, 4}},
		{name: "not saturated, with headroom", filter: utilization(0.2), give: queues, want: []int{0, 1, 2, 3, 4}},
		{name: "all saturated", filter: utilization(0), give: busy(Load{Waiting: 5}, Load{Waiting: 6}), want: []int{0, 1}},
		{name: "below concurrency", filter: ConcurrencyDetector{Requests: 10}, give: busy(Load{Requests: 9}, Load{Requests: 10}, Load{Tokens: 1e9}), want: []int{0, 2}},
		{name: "below concurrency of tokens too", filter: ConcurrencyDetector{Requests: 10, Tokens: 100, Headroom: 0.5}, give: busy(Load{Requests: 14}, Load{Requests: 15}, Load{Tokens: 149}, Load{Tokens: 150}), want: []int{0, 2}},
		{name: "all above concurrency", filter: ConcurrencyDetector{Requests: 10}, give: busy(Load{Requests: 11}), want: []int{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Request{Now: noon}
			if tt.request != nil {
				r.Session, r.Headers = tt.request.Session, tt.request.Headers
			}
			for range 2 { // the same input, the same choice
				assert.Equal(t, tt.want, indexes(tt.filter.Filter(&r, append([]Candidate{}, tt.give...))))
			}
		})
	}
}

func utilization(headroom float64) UtilizationDetector {
	return UtilizationDetector{QueueDepth: 5, KVUsage: 0.8, StaleAfter: time.Second, Headroom: headroom}
}

func TestPrefixAffinityFilter(t *testing.T) {
	t.Parallel()
	matched := func(loads []Load, tokens ...int) []Candidate {
		candidates := busy(loads...)
		for i := range tokens {
			candidates[i].Matched = tokens[i]
		}
		return candidates
	}
	filter := PrefixAffinityFilter{Threshold: 0.8, MaxPenalty: 10, TokensPerSecond: 1000}
	patient, predicted, curious := filter, filter, filter
	patient.MaxPenalty, predicted.TokensPerSecond, curious.Exploration = 0, 0, 1
	tests := []struct {
		name   string
		filter PrefixAffinityFilter
		tokens int
		give   []Candidate
		want   []int
	}{
		{name: "where most of it is", filter: filter, tokens: 100, give: matched(make([]Load, 4), 79, 80, 0, 500), want: []int{1, 3}},
		{name: "nowhere", filter: filter, tokens: 100, give: matched(make([]Load, 2), 79, 0), want: []int{0, 1}},
		{name: "everywhere", filter: filter, tokens: 100, give: matched(make([]Load, 2), 100, 90), want: []int{0, 1}},
		{name: "no prompt", filter: filter, give: matched(make([]Load, 2), 100, 0), want: []int{0, 1}},
		{name: "as busy as it may be", filter: filter, tokens: 100, give: matched([]Load{{Tokens: 12_000}, {Tokens: 2000}, {Tokens: 9000}}, 100), want: []int{0}},
		{name: "too busy", filter: filter, tokens: 100, give: matched([]Load{{Tokens: 12_001}, {Tokens: 2000}, {Tokens: 9000}}, 100), want: []int{0, 1, 2}},
		{name: "one of two is not too busy", filter: filter, tokens: 100, give: matched([]Load{{Tokens: 99_000}, {Tokens: 3000}, {}}, 100, 100), want: []int{0, 1}},
		{name: "however busy", filter: patient, tokens: 100, give: matched([]Load{{Tokens: 1e9}, {}}, 100), want: []int{0}},
		{name: "by the predicted wait, too late", filter: predicted, tokens: 100, give: matched([]Load{{Wait: 10.6}, {Wait: 0.5, Tokens: 1e9}}, 100), want: []int{0, 1}},
		{name: "by the predicted wait", filter: predicted, tokens: 100, give: matched([]Load{{Wait: 10.4, Tokens: 1e9}, {Wait: 0.5}}, 100), want: []int{0}},
		{name: "exploring", filter: curious, tokens: 100, give: matched(make([]Load, 2), 100, 0), want: []int{0, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, indexes(tt.filter.Filter(&Request{Now: noon, Tokens: tt.tokens}, tt.give)))
		})
	}

	some := filter
	some.Exploration = 0.2
	explored := 0
	for i := range uint64(10_000) {
		explored += len(some.Filter(&Request{Random: i, Tokens: 100}, matched(make([]Load, 2), 100))) - 1
	}
	assert.InDelta(t, 2000, explored, 150)
}

func TestSaturation(t *testing.T) {
	t.Parallel()
	old := noon.Add(-time.Hour)
	tests := []struct {
		name     string
		detector Detector
		give     []Candidate
		want     float64
	}{
		{name: "no endpoints", detector: utilization(0), want: 1},
		{name: "idle", detector: utilization(0), give: busy(Load{}, Load{}), want: 0},
		{name: "the fuller of queue and cache, on average", detector: utilization(0), give: busy(Load{Waiting: 10, KVUsage: 0.4}, Load{Waiting: 1, KVUsage: 0.4}), want: 1.25},
		{name: "headroom is the filter's alone", detector: utilization(9), give: busy(Load{Waiting: 5}), want: 1},
		{name: "stale counts by what is in flight", detector: utilization(0), give: busy(Load{Failing: old, Waiting: 99, Open: 50}, Load{Waiting: 5}), want: 0.75},
		{name: "stale and idle is not full", detector: utilization(0), give: busy(Load{Failing: old, Waiting: 99}), want: 0},

		{name: "no endpoints to be concurrent on", detector: ConcurrencyDetector{Requests: 100}, want: 1},
		{name: "requests over capacity", detector: ConcurrencyDetector{Requests: 100}, give: busy(Load{Requests: 150, Tokens: 1e9}, Load{Requests: 50}), want: 1},
		{name: "tokens over capacity", detector: ConcurrencyDetector{Tokens: 1000}, give: busy(Load{Requests: 150, Tokens: 500}, Load{}), want: 0.25},
		{name: "each by that of which it has more", detector: ConcurrencyDetector{Requests: 10, Tokens: 1000}, give: busy(Load{Requests: 10}, Load{Tokens: 1000}), want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.InDelta(t, tt.want, tt.detector.Saturation(&Request{Now: noon}, tt.give), 1e-9)
		})
	}
}
