package faults

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func rate(v float64) *float64 { return &v }

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Set
		want string // empty: valid
	}{
		{"healthy", Set{}, ""},
		{"everything", Set{Slow: 4, Status: &Status{500, rate(0.5)}, Hang: &Hang{rate(0)}, Drop: &Drop{5, rate(1)}, NotReady: true}, ""},
		{"negative slowness", Set{Slow: -1}, "slow must not be negative"},
		{"a status of success", Set{Status: &Status{Code: 200}}, "status must be between 400 and 599, got 200"},
		{"a rate over one", Set{Status: &Status{500, rate(1.5)}}, "status.rate must be between 0 and 1"},
		{"a negative rate", Set{Hang: &Hang{rate(-0.1)}}, "hang.rate must be between 0 and 1"},
		{"negative tokens", Set{Drop: &Drop{AfterTokens: -1}}, "drop.afterTokens must not be negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.give.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Set
		want Verdict
	}{
		{"healthy", Set{}, Verdict{Stretch: 1}},
		{"slowness is the engine's", Set{Slow: 4}, Verdict{Stretch: 1}},
		{"status for all", Set{Status: &Status{Code: 503}}, Verdict{Status: 503, Stretch: 1}},
		{"hang for all", Set{Hang: &Hang{}}, Verdict{Hang: true, Stretch: 1}},
		{"drop for all", Set{Drop: &Drop{AfterTokens: 7}}, Verdict{Drop: true, DropAfter: 7, Stretch: 1}},
		{"a rate of 0", Set{Status: &Status{500, rate(0)}, Hang: &Hang{rate(0)}, Drop: &Drop{0, rate(0)}}, Verdict{Stretch: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewRegister(1)
			r.Put(tt.give)
			for range 20 {
				assert.Equal(t, tt.want, r.Judge())
			}
			r.Put(Set{})
			assert.Equal(t, Verdict{Stretch: 1}, r.Judge())
		})
	}
}

func TestRatesAreDecidedBySeedAndCount(t *testing.T) {
	t.Parallel()
	pattern := func(seed uint64, before int, s Set) (statuses string) {
		r := NewRegister(seed)
		for range before {
			r.Judge()
		}
		r.Put(s)
		for range 1000 {
			if r.Judge().Status == 500 {
				statuses += "x"
			} else {
				statuses += "."
			}
		}
		return statuses
	}
	some := Set{Status: &Status{500, rate(0.3)}}
	first := pattern(1, 0, some)
	assert.InDelta(t, 300, countX(first), 45)
	assert.Equal(t, first, pattern(1, 7, some), "requests before the faults do not count")
	assert.NotEqual(t, first, pattern(2, 0, some))
	more := some
	more.Hang = &Hang{rate(0.5)}
	assert.Equal(t, first, pattern(1, 0, more), "another fault does not change which requests fail")
}

func countX(s string) int {
	n := 0
	for _, c := range s {
		if c == 'x' {
			n++
		}
	}
	return n
}

func TestHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give string
		want Verdict
		bad  bool
	}{
		{give: "", want: Verdict{Stretch: 1}},
		{give: "slow=4", want: Verdict{Stretch: 4}},
		{give: "500", want: Verdict{Status: 500, Stretch: 1}},
		{give: "status=503", want: Verdict{Status: 503, Stretch: 1}},
		{give: "hang", want: Verdict{Hang: true, Stretch: 1}},
		{give: "drop", want: Verdict{Drop: true, Stretch: 1}},
		{give: "drop=5, slow=1.5", want: Verdict{Drop: true, DropAfter: 5, Stretch: 1.5}},
		{give: "slow", bad: true}, {give: "slow=0.5", bad: true}, {give: "200", bad: true}, {give: "status=x", bad: true},
		{give: "drop=-1", bad: true}, {give: "explode", bad: true},
	}
	for _, tt := range tests {
		got, err := Verdict{Stretch: 1}.WithHeader(tt.give)
		assert.Equal(t, tt.bad, err != nil, tt.give)
		assert.Equal(t, tt.want, got, tt.give)
	}
}

func TestSetIsReadAndWrittenAsJSON(t *testing.T) {
	t.Parallel()
	const body = `{"slow":4,"status":{"code":500,"rate":0.5},"hang":{},"drop":{"afterTokens":3},"notReady":true,"staleMetrics":true,"metricsHang":true}`
	var s Set
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	got, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, body, string(got))
	healthy, err := json.Marshal(Set{})
	require.NoError(t, err)
	assert.JSONEq(t, `{}`, string(healthy))
}
