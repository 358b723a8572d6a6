package learn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// prefills returns what a server shows that computes prompts of 8000 tokens, a quarter of them cached, at a rate per second. Each prefill
// takes a number of milliseconds.
func prefills(minute int, rate, prefill, waits float64) *snapshot.Sample {
	return &snapshot.Sample{
		Time: time.Unix(0, 0).Add(time.Duration(minute) * time.Minute), Window: time.Minute, Replicas: 1,
		Rate: rate, Input: 8000, Output: 1, Cached: 0.25, Running: rate * prefill / 1000, Waiting: waits, Prefill: prefill, TTFT: prefill + waits/rate*1000,
	}
}

// beginning returns what a server shows whose requests came in the last quarter of the window.
func beginning(minute int) *snapshot.Sample {
	s := prefills(minute, 0.5, 500, 10)
	s.Running = 0.95
	return s
}

// tokensOf returns the tokens per second of a profile.
func tokensOf(t *testing.T, m *snapshot.Measured) float64 {
	t.Helper()
	require.NotNil(t, m)
	require.NotNil(t, m.Profile)
	assert.Zero(t, m.Profile.Alpha+m.Profile.Beta+m.Profile.Gamma, "no decode steps")
	return 1000 / m.Profile.Delta
}

func TestPrefillRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		samples []*snapshot.Sample
		want    float64 // tokens per second
	}{
		{"an idle server shows it by one prefill", []*snapshot.Sample{prefills(1, 0.01, 500, 0)}, 12_000},
		{"prompts beside others take longer, and the server computes as many",
			[]*snapshot.Sample{prefills(1, 1.9, 1000, 3), prefills(2, 1.9, 1000, 3)}, 1.9 * 6000},
		{"what most prefills took counts", []*snapshot.Sample{
			prefills(1, 0.01, 500, 0), prefills(2, 0.01, 500, 0), prefills(3, 0.5, 560, 0), prefills(4, 0.01, 500, 0),
		}, 12_000},
		{"a slow transfer of KV caches binds", []*snapshot.Sample{prefills(1, 0.2, 500, 12), prefills(2, 0.2, 500, 30),
			prefills(3, 0.2, 500, 50)}, saturation * 0.2 * 6000},
		{"one sample of a queue does not", []*snapshot.Sample{prefills(1, 0.2, 500, 12)}, 12_000},
		{"nor what was served while the queue began", []*snapshot.Sample{
			beginning(1), prefills(2, 1.9, 500, 30), prefills(3, 1.9, 500, 60), prefills(4, 1.9, 500, 90),
		}, saturation * 1.9 * 6000},
		{"a short queue does not", []*snapshot.Sample{prefills(1, 0.2, 500, 4), prefills(2, 0.2, 500, 4), prefills(3, 0.2, 500, 4)}, 12_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := NewPrefill()
			var m *snapshot.Measured
			for _, s := range tt.samples {
				m = l.Observe(s, queueing.Targets{})
			}
			assert.InEpsilon(t, tt.want, tokensOf(t, m), 0.01)
			assert.Equal(t, SourceEngine, m.Source)
			assert.Equal(t, len(tt.samples), m.Samples)
			assert.InDelta(t, 6000, m.Input, 1e-9, "without those in the prefix cache")
		})
	}
}

func TestPrefillRateOfThePicker(t *testing.T) {
	t.Parallel()
	s := prefills(1, 0.01, 500, 0)
	s.Picker = &snapshot.PickerSample{PrefillRate: 9000}
	m := NewPrefill().Observe(s, queueing.Targets{})
	assert.InEpsilon(t, 9000, tokensOf(t, m), 1e-9)
	assert.Equal(t, SourcePicker, m.Source)
}

// TestPrefillCapacity: the capacity follows from the tokens that are not cached, and from the target.
func TestPrefillCapacity(t *testing.T) {
	t.Parallel()
	l := NewPrefill()
	var m *snapshot.Measured
	for i := range 20 {
		m = l.Observe(prefills(i+1, 0.01, 500, 0), queueing.Targets{TTFT: 2000, Percentile: 90})
	}
	assert.Less(t, m.Error, 0.05)
	capacity := func(input, ttft float64) float64 {
		return float64(Capacity(m, queueing.Traffic{Input: input, Output: 1}, queueing.Targets{TTFT: ttft, Percentile: 90})) / 1e6
	}
	loose, tight := capacity(6000, 60_000), capacity(6000, 1200)
	assert.InDelta(t, 1.9, loose, 0.1, "12 000 tokens per second, nearly all of the time")
	assert.Less(t, tight, 0.6*loose)
	assert.Positive(t, tight)
	assert.InEpsilon(t, loose/2, capacity(12_000, 120_000), 0.01, "prompts of twice the tokens")
	out := queueing.Targets{TTFT: 499, Percentile: 90}
	assert.Zero(t, Capacity(l.Measured(out), queueing.Traffic{Input: 6000, Output: 1}, out), "a single prefill takes longer")
	assert.Zero(t, Capacity(NewPrefill().Measured(queueing.Targets{}), queueing.Traffic{Input: 1, Output: 1}, queueing.Targets{}))
}
