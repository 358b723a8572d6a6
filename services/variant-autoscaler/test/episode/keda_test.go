package episode

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const retention = 10 * time.Minute

// idle is a model with two variants and requests at few times: bursts of ten requests, one every three seconds.
func idle(end float64, bursts ...float64) *Scenario {
	s := UnlikeScenario(Qwen32(), 1, 1)
	for i := range s.Variants {
		s.Variants[i].Min = 0
	}
	s.Arrivals, s.End, s.Hold = nil, end, 240
	for _, at := range bursts {
		for i := range 10 {
			s.Arrivals = append(s.Arrivals, Arrival{Model: model, At: at + 3*float64(i), Input: 4000, Output: 200})
		}
	}
	return s
}

// replicasAt returns the replicas at a time.
func (r *Result) replicasAt(at float64) int { return r.Timeline[int(at/scrapeEvery)].Replicas }

// TestToZeroAndBack: one variant wakes for the requests of each burst, and goes after the retention period.
func TestToZeroAndBack(t *testing.T) {
	t.Parallel()
	bursts := []float64{1800.3, 5400.9, 9000.5, 12600.1}
	s := idle(15_000, bursts...)
	r := Run(s, NewFairlead(Options{Retention: retention}), 0, 0)
	require.Len(t, r.Wakes, len(bursts))
	assert.Zero(t, r.Cut)
	assert.Equal(t, map[string]int{"qwen": 0, "slow": len(bursts)}, r.Pods, "the cheapest one alone")
	var waits []float64
	for i, k := range r.Wakes {
		waits = append(waits, k.Wait)
		assert.Zero(t, r.replicasAt(bursts[i]-15))
		assert.Equal(t, 1, r.replicasAt(bursts[i]+200+retention.Seconds()-60), "its first replica serves for the retention period")
		assert.Zero(t, r.replicasAt(bursts[i]+200+retention.Seconds()+kedaCooldown+180))
	}
	slices.Sort(waits)
	assert.LessOrEqual(t, waits[len(waits)*9/10], 1.0, "the 90th percentile of the first request: the start of a pod and a second")

	alone := Run(s, KEDAQueue(8), 0, 0)
	assert.Positive(t, alone.Pods["qwen"], "KEDA alone wakes each variant")
	assert.Less(t, r.Cost, alone.Cost, "for %s and %s", r, alone)
	assert.Greater(t, alone.Wakes[0].Wait, 5.0, "and learns of the requests by a scrape and a poll")
}

// TestNoFlap: a request in each half of the retention period keeps one replica, however short it is.
func TestNoFlap(t *testing.T) {
	t.Parallel()
	s := idle(7200)
	for at := 100.0; at < 7000; at += retention.Seconds() / 2 {
		s.Arrivals = append(s.Arrivals, Arrival{Model: model, At: at, Input: 100, Output: 10})
	}
	r := Run(s, NewFairlead(Options{Retention: retention}), 0, 0)
	assert.Len(t, r.Wakes, 1)
	assert.Equal(t, map[string]int{"qwen": 0, "slow": 1}, r.Pods)
	assert.Equal(t, 1, r.replicasAt(7100))
	assert.Zero(t, r.Cut)
}

// TestIdleModelHoldsNothing: without a request, no replica ever starts, and those that are there go.
func TestIdleModelHoldsNothing(t *testing.T) {
	t.Parallel()
	r := Run(idle(7200), NewFairlead(Options{Retention: retention}), 0, 0)
	assert.Equal(t, map[string]int{"qwen": 0, "slow": 0}, r.Pods)
	assert.Zero(t, r.Cost)
	r = Run(idle(7200), NewFairlead(Options{Retention: retention}), 1, 2)
	assert.Zero(t, r.replicasAt(3600))
}

// TestRolesToZeroAndBack: a prefill server and a decode server start at once for the first request, and both go after the retention period.
func TestRolesToZeroAndBack(t *testing.T) {
	t.Parallel()
	s := DisaggregatedScenario(Qwen32(), 1./15_000, 1)
	for i := range s.Variants {
		s.Variants[i].Min = 0
	}
	s.End, s.Hold = 6000, 240
	bursts := []float64{900.3, 3600.7}
	for _, at := range bursts {
		for i := range 10 {
			s.Arrivals = append(s.Arrivals, Arrival{Model: model, At: at + 3*float64(i), Input: 4000, Output: 200})
		}
	}
	r := Run(s, NewFairlead(Options{Retention: retention}), 0, 0)
	assert.Zero(t, r.Cut)
	assert.Equal(t, map[string]int{"prefill": len(bursts), "decode": len(bursts)}, r.Pods)
	require.Len(t, r.Wakes, len(bursts))
	for i, k := range r.Wakes {
		assert.LessOrEqual(t, k.Wait, 1.0, "the start of the slower pod and a second")
		assert.Zero(t, r.replicasAt(bursts[i]-15))
		assert.Equal(t, 2, r.replicasAt(bursts[i]+100+retention.Seconds()-60))
		assert.Zero(t, r.replicasAt(bursts[i]+100+retention.Seconds()+kedaCooldown+180))
	}
}

// TestSlowStart: a pod that takes longer to start than the retention period is not stopped while it starts.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	s := idle(3600, 600.5)
	s.Variants, s.Hold = s.Variants[1:], 1000
	s.Variants[0].Start = 900
	r := Run(s, NewFairlead(Options{Retention: retention}), 0)
	require.Len(t, r.Wakes, 1)
	assert.Equal(t, map[string]int{"slow": 1}, r.Pods)
	assert.Zero(t, r.Cut)
}
