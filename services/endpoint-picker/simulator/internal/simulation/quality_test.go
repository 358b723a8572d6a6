package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shorter is a scenario in which about so many requests are measured.
func (s Scenario) shorter(requests float64) Scenario {
	const least = 6 * time.Second
	s.Measured = min(s.Measured, max(least, time.Duration(requests/s.Workload.rate*float64(time.Second))))
	return s
}

// find returns the scenario of a name.
func find(t *testing.T, from []Scenario, name string) Scenario {
	t.Helper()
	i := slices.IndexFunc(from, func(s Scenario) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, "there is no such scenario")
	return from[i]
}

// ratios is how a policy's times to the first token compare with another's.
type ratios struct{ mean, p99 float64 }

func compare(r, with Result) ratios {
	a, b := r.FirstTokenTimes(), with.FirstTokenTimes()
	return ratios{mean: ratio(a.Mean, b.Mean), p99: ratio(a.P99, b.P99)}
}

func (r ratios) assertWithin(t *testing.T, bounds ratios, what string) {
	t.Helper()
	t.Logf("%s: mean %.2f, 99th percentile %.2f", what, r.mean, r.p99)
	assert.LessOrEqual(t, r.mean, bounds.mean, "mean of %s", what)
	assert.LessOrEqual(t, r.p99, bounds.p99, "99th percentile of %s", what)
}

// The tests below and TestPickerOnProfiles have one seed and few requests. The tables with all seeds, scenarios and fleets are in
// quality_long_test.go and fit_long_test.go, for `make test-long`.

// assertFast checks the mean and the median time to the first token, to those of another policy. Of few requests, the 99th percentile is
// chance.
func assertFast(t *testing.T, r, with Result, mean, median float64) {
	t.Helper()
	a, b := r.FirstTokenTimes(), with.FirstTokenTimes()
	t.Logf("mean %.2f, median %.2f, of %d requests", ratio(a.Mean, b.Mean), ratio(a.P50, b.P50), r.Requests())
	assert.LessOrEqual(t, ratio(a.Mean, b.Mean), mean, "mean")
	assert.LessOrEqual(t, ratio(a.P50, b.P50), median, "median")
	assert.Equal(t, with.Requests(), r.Requests())
	assert.Zero(t, r.Failed)
}

// One scenario of each family: the picker's own law, both other laws, old pages, and a fleet of unequal servers. Behind the bounds is what
// was measured.
func TestPickerIsNearGreedyOnce(t *testing.T) {
	t.Parallel()
	old := find(t, StandardScenarios(), "uniform").withServers(4).withChange(func(e *Engine) {
		e.Refresh = Refresh{Interval: time.Second, PerRequest: 5 * time.Millisecond}
	})
	old.Name = "uniform, old pages"
	old.Servers[2].Fault, old.Servers[2].FaultAfter = Frozen, 2*time.Second
	for _, tt := range []struct {
		scenario     Scenario
		mean, median float64
	}{
		{find(t, StandardScenarios(), "multiturn"), 1.2, 1.2},
		{find(t, StandardScenarios(), "mixed").Realistic(), 1.2, 1.2},
		{find(t, StandardScenarios(), "zipf").Overlapping(), 1.2, 1.2},
		{old, 1.2, 1.2},
		{find(t, OtherScenarios(), "multiturn-speeds"), 1.2, 1.2},
	} {
		t.Run(tt.scenario.Name, func(t *testing.T) {
			t.Parallel()
			s := tt.scenario
			s.Warm, s.Measured = 3*time.Second, 4*time.Second
			trace := s.Trace(1)
			assertFast(t, trace.Run(IndependentPickers(1, InTurn)), trace.Run(Greedy()), tt.mean, tt.median)
		})
	}
}

// The same requests with other policies. What the picker is compared with must itself be as good, and as bad, as its name says.
func TestPoliciesOnce(t *testing.T) {
	t.Parallel()
	const delay = time.Millisecond
	s := find(t, StandardScenarios(), "zipf")
	s.Warm, s.Measured = 3*time.Second, 4*time.Second
	trace := s.Trace(1)
	one, greedy, least := trace.Run(IndependentPickers(1, InTurn)), trace.Run(Greedy()), trace.Run(LeastLoad())
	t.Log("one replica to greedy")
	assertFast(t, one, greedy, 1.2, 1.2)
	t.Log("two replicas that tell to one")
	assertFast(t, trace.Run(ConnectedPickers(2, InTurn, delay)), one, 1.1, 1.1)
	t.Log(greedy.FirstTokenTimes().Mean, least.FirstTokenTimes().Mean)
	assert.Less(t, 2*greedy.FirstTokenTimes().Mean, least.FirstTokenTimes().Mean, "greedy knows the caches")
	assert.Less(t, 2*one.FirstTokenTimes().Mean, least.FirstTokenTimes().Mean, "the picker knows them, too")
}
