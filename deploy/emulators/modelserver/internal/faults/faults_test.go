package faults

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseFault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give string
		want Fault
		err  string // empty: valid
	}{
		{give: "500", want: Fault{Name: "500", Rate: 1, Tokens: 1}},
		{give: "stall,tokens=3", want: Fault{Name: Stall, Rate: 1, Tokens: 3}},
		{give: "hang", want: Fault{Name: Hang, Rate: 1, Tokens: 1}},
		{give: "429,delay=50ms,rate=0.1", want: Fault{Name: "429", Delay: 50 * time.Millisecond, Rate: 0.1, Tokens: 1}},
		{give: "drop,tokens=0", want: Fault{Name: Drop, Rate: 1}},
		{give: "half,rate=0,tokens=7", want: Fault{Name: Half, Tokens: 7}},
		{give: "", err: `"" is no fault: give 400 to 599, error-sglang, `},
		{give: "explode", err: `"explode" is no fault`},
		{give: "200", err: `"200" is no fault`},
		{give: "600", err: `"600" is no fault`},
		{give: "400 to 599", err: `"400 to 599" is no fault`},
		{give: "500,rate=1.5", err: `fault 500: rate must be between 0 and 1, got "1.5"`},
		{give: "500,rate=NaN", err: "rate must be between 0 and 1"},
		{give: "500,delay=5", err: "delay must be a duration such as 50ms"},
		{give: "500,delay=-5s", err: "delay must be a duration such as 50ms"},
		{give: "drop,tokens=-1", err: "tokens must be a number"},
		{give: "500,often", err: `"often" is no parameter: give delay, rate or tokens`},
	}
	for _, tt := range tests {
		got, err := ParseFault(tt.give)
		assert.Equal(t, tt.want, got, tt.give)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err)
			continue
		}
		require.NoError(t, err)
		again, err := ParseFault(got.String())
		require.NoError(t, err)
		assert.Equal(t, got, again)
	}
}

func TestEveryNameIsAFault(t *testing.T) {
	t.Parallel()
	for _, n := range Names[1:] {
		f, err := ParseFault(n.Name)
		require.NoError(t, err)
		assert.Zero(t, f.Status())
		assert.NotEmpty(t, n.Meaning)
		assert.Contains(t, Usage(), n.Name)
	}
	assert.Equal(t, 503, Fault{Name: "503"}.Status())
}

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, Set{Slow: 4, NotReady: true}.Validate())
	require.ErrorContains(t, Set{Slow: -1}.Validate(), "slow must not be negative")
}

func TestJudge(t *testing.T) {
	t.Parallel()
	all, none := Fault{Name: "503", Rate: 1}, Fault{Name: Drop, Rate: 0, Tokens: 7}
	tests := []struct {
		name string
		give Set
		want Verdict
	}{
		{"healthy", Set{}, Verdict{Stretch: 1}},
		{"slowness is the engine's", Set{Slow: 4}, Verdict{Stretch: 1}},
		{"a fault of all answers", Set{Answer: all}, Verdict{Fault: all, Stretch: 1}},
		{"a rate of 0", Set{Answer: none}, Verdict{Stretch: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewRegister(1, tt.give)
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
	pattern := func(seed uint64, before int) (statuses string) {
		r := NewRegister(seed, Set{})
		for range before {
			r.Judge()
		}
		r.Put(Set{Answer: Fault{Name: "500", Rate: 0.3}})
		for range 1000 {
			if r.Judge().Fault.Name == "500" {
				statuses += "x"
			} else {
				statuses += "."
			}
		}
		return statuses
	}
	first := pattern(1, 0)
	assert.InDelta(t, 300, strings.Count(first, "x"), 45)
	assert.Equal(t, first, pattern(1, 7), "requests before the faults do not count")
	assert.NotEqual(t, first, pattern(2, 0))
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
		{give: "500", want: Verdict{Fault: Fault{Name: "500", Rate: 1, Tokens: 1}, Stretch: 1}},
		{give: "slow=1.5, drop, tokens=5", want: Verdict{Fault: Fault{Name: Drop, Rate: 1, Tokens: 5}, Stretch: 1.5}},
		{give: "slow", bad: true}, {give: "slow=0.5", bad: true}, {give: "200", bad: true}, {give: "explode", bad: true},
	}
	for _, tt := range tests {
		got, err := Verdict{Stretch: 1}.WithHeader(tt.give)
		assert.Equal(t, tt.bad, err != nil, tt.give)
		assert.Equal(t, tt.want, got, tt.give)
	}
}

func TestSetIsReadAndWrittenAsJSON(t *testing.T) {
	t.Parallel()
	const body = `{"slow":4,"answer":"drop,delay=50ms,rate=0.5,tokens=3","notReady":true,"staleMetrics":true,"metricsHang":true}`
	var s Set
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	got, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, body, string(got))
	healthy, err := json.Marshal(Set{})
	require.NoError(t, err)
	assert.JSONEq(t, `{}`, string(healthy))
}
