package decision

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) // a Monday

// one is a group of two variants under a load of 20 requests/s: big serves 15 for 40, small 7 for 23.
func one(change ...func(g *snapshot.Group)) *snapshot.Snapshot {
	proven := func(rate int64) *snapshot.Measured {
		return &snapshot.Measured{Proven: rate * 1e6, Input: 100, Output: 100, Source: string(FromEngine), Samples: 8}
	}
	g := snapshot.Group{
		Namespace: "ns", Pool: "pool", Model: "m", Priority: 1, Targets: snapshot.Targets{TTFT: 500, ITL: 50},
		Load: snapshot.Load{State: snapshot.Found, Rate: 20e6, Input: 100, Output: 100},
		Variants: []snapshot.Variant{
			{Namespace: "ns", Name: "big", Accelerator: "A", Cards: 1, Cost: 40e6, Max: 10, Measured: proven(15)},
			{Namespace: "ns", Name: "small", Accelerator: "L", Cards: 1, Cost: 23e6, Max: 10, Measured: proven(7)},
		},
	}
	for _, f := range change {
		f(&g)
	}
	return &snapshot.Snapshot{Time: noon, Settings: snapshot.Settings{Split: "capacity"}, Groups: []snapshot.Group{g}}
}

func big(f func(v *snapshot.Variant)) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { f(&g.Variants[0]) }
}

func small(f func(v *snapshot.Variant)) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { f(&g.Variants[1]) }
}

// has sets the replicas of both variants, all of them ready.
func has(bigs, smalls int) func(g *snapshot.Group) {
	return func(g *snapshot.Group) {
		for i, n := range []int{bigs, smalls} {
			v := &g.Variants[i]
			v.Now, v.Ready, v.Previous, v.Decided = n, n, n, true
		}
	}
}

func load(rate int64) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { g.Load.Rate = rate * 1e6 }
}

func zero(requests float64, since time.Duration) func(g *snapshot.Group) {
	return func(g *snapshot.Group) {
		changed := noon.Add(-since)
		g.Zero = snapshot.Zero{Enabled: true, Retention: 10 * time.Minute, Requests: &requests, Changed: changed, ServesSince: changed, Watched: true}
	}
}

// outcome is what a test says of a decision.
type outcome struct {
	Desired []int
	Reasons []Reason
}

func decide(t *testing.T, s *snapshot.Snapshot) outcome {
	t.Helper()
	d, err := Decide(s)
	require.NoError(t, err)
	var o outcome
	for _, v := range d.Groups[0].Variants {
		o.Desired, o.Reasons = append(o.Desired, v.Desired), append(o.Reasons, v.Reason)
		assert.NotEmpty(t, v.Message)
	}
	return o
}

func TestDecide(t *testing.T) {
	t.Parallel()
	unmeasured := func(v *snapshot.Variant) { v.Measured = nil }
	both := []Reason{Optimal, Optimal}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want outcome
	}{
		{name: "cheapest mix", give: one(), want: outcome{[]int{1, 1}, both}},
		{name: "forecast raises the demand", give: one(func(g *snapshot.Group) { g.Forecast = 28e6 }), want: outcome{[]int{2, 0}, both}},
		{name: "forecast does not lower the demand", give: one(func(g *snapshot.Group) { g.Forecast = 1e6 }), want: outcome{[]int{1, 1}, both}},
		{name: "bounds", give: one(big(func(v *snapshot.Variant) { v.Max = 0; v.Min = 2 })), want: outcome{[]int{2, 0}, both}},
		{
			name: "stabilization",
			give: one(load(7), has(1, 1), big(func(v *snapshot.Variant) { v.Held = 1 })), want: outcome{[]int{1, 1}, []Reason{Stabilized, Optimal}},
		},
		{name: "the window is over", give: one(load(7), has(1, 1)), want: outcome{[]int{0, 1}, both}},
		{
			name: "limits leave less", give: limited(one(load(100)), snapshot.Limit{Name: "few", Unit: snapshot.Cards, Accelerator: "A", Amount: 1}),
			want: outcome{[]int{1, 10}, []Reason{LimitBinding, LimitBinding}},
		},
		{
			name: "metrics are missing", give: one(has(3, 2), func(g *snapshot.Group) { g.Load = snapshot.Load{State: snapshot.Missing} }),
			want: outcome{[]int{3, 2}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			name: "metrics fail: not to the bounds of the target, but as decided",
			give: one(has(3, 2), big(func(v *snapshot.Variant) { v.Previous = 4 }), func(g *snapshot.Group) { g.Load.State = snapshot.Failed }),
			want: outcome{[]int{4, 2}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			name: "metrics are stale, and nothing was decided yet",
			give: one(func(g *snapshot.Group) { g.Load.State, g.Variants[0].Now, g.Variants[0].Min = snapshot.Stale, 1, 2 }),
			want: outcome{[]int{2, 0}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			name: "no metrics and no replicas: the cheapest one is kept", give: one(func(g *snapshot.Group) { g.Load.State = snapshot.Missing }),
			want: outcome{[]int{0, 1}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			name: "no metrics, no replicas, and zero is permitted", give: one(zero(0, time.Hour), func(g *snapshot.Group) { g.Load.State = snapshot.Missing }),
			want: outcome{[]int{0, 0}, []Reason{NoMetrics, NoMetrics}},
		},
		{name: "no load: one stays", give: one(load(0), has(1, 1)), want: outcome{[]int{0, 1}, both}},
		{name: "no load: none stays", give: one(load(0), has(1, 1), zero(0, time.Hour)), want: outcome{[]int{0, 0}, both}},
		{name: "a recent request", give: one(load(0), has(1, 1), zero(1, time.Hour)), want: outcome{[]int{0, 1}, []Reason{Optimal, Retained}}},
		{name: "a recent change", give: one(load(0), has(1, 1), zero(0, time.Minute)), want: outcome{[]int{0, 1}, []Reason{Optimal, Retained}}},
		{
			name: "requests that are not known", give: one(load(0), has(1, 1), zero(0, time.Hour), func(g *snapshot.Group) { g.Zero.Requests = nil }),
			want: outcome{[]int{0, 1}, []Reason{Optimal, Retained}},
		},
		{
			name: "requests that wait in the picker", give: one(load(0), zero(0, time.Hour), func(g *snapshot.Group) { g.Load.Queued = 1 }),
			want: outcome{[]int{0, 1}, []Reason{Waking, Waking}},
		},
		{
			name: "requests that wait in the servers are served within a minute", give: one(load(0), func(g *snapshot.Group) { g.Load.Waiting = 60 * 100 }),
			want: outcome{[]int{7, 0}, both},
		},
		{
			name: "a backlog that cannot be", give: one(load(0), func(g *snapshot.Group) { g.Load.Waiting = -1 }),
			want: outcome{[]int{0, 1}, both},
		},
		{
			name: "a variant with a problem keeps its replicas",
			give: one(has(2, 0), big(func(v *snapshot.Variant) { v.Problem = &snapshot.Problem{Reason: "TargetConflict", Message: "two"} })),
			want: outcome{[]int{2, 3}, []Reason{Excluded, Optimal}},
		},
		{
			name: "a variant of which nothing is known keeps its replicas", give: one(has(1, 0), big(unmeasured)),
			want: outcome{[]int{1, 3}, []Reason{NoCapacity, Optimal}},
		},
		{
			name: "a variant of which nothing is known gets none while others serve", give: one(big(unmeasured)),
			want: outcome{[]int{0, 3}, []Reason{NoCapacity, Optimal}},
		},
		{
			name: "it gets one when the others cannot serve", give: one(load(100), big(unmeasured)),
			want: outcome{[]int{1, 10}, []Reason{Probing, Optimal}},
		},
		{
			name: "nothing is known of any: the cheapest one starts", give: one(big(unmeasured), small(unmeasured)),
			want: outcome{[]int{0, 1}, []Reason{NoCapacity, Probing}},
		},
		{
			name: "one of them runs already, and will show what it serves", give: one(has(1, 0), big(unmeasured), small(unmeasured)),
			want: outcome{[]int{1, 0}, []Reason{NoCapacity, NoCapacity}},
		},
		{
			name: "targets out of reach",
			give: one(has(1, 0), big(func(v *snapshot.Variant) {
				v.Profile = &snapshot.Profile{Alpha: 100, Beta: 1, Gamma: 1000, Delta: 1, MaxBatch: 8}
			})),
			want: outcome{[]int{1, 3}, []Reason{OutOfReach, Optimal}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
		})
	}
}

func limited(s *snapshot.Snapshot, limits ...snapshot.Limit) *snapshot.Snapshot {
	s.Limits = limits
	return s
}

// A plan that saves too little changes nothing.
func TestDecide_SavingTooSmall(t *testing.T) {
	t.Parallel()
	s := one(load(14), has(0, 2)) // 46; the plan costs 40
	s.Settings.SavingPercent = 20
	assert.Equal(t, outcome{[]int{0, 2}, []Reason{SavingSmall, SavingSmall}}, decide(t, s))
	s.Settings.SavingPercent = 10
	assert.Equal(t, []int{1, 2}, decide(t, s).Desired, "small ones serve until the big one is ready")
}

func TestDecide_Starts(t *testing.T) {
	t.Parallel()
	slow, fast := func(v *snapshot.Variant) { v.Start = 4 * time.Minute }, func(v *snapshot.Variant) { v.Start = 5 * time.Second }
	ready := func(bigs, smalls int) func(g *snapshot.Group) {
		return func(g *snapshot.Group) { g.Variants[0].Ready, g.Variants[1].Ready = bigs, smalls }
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want outcome
	}{
		{name: "old replicas serve until the new one is ready", give: one(load(14), has(0, 2)), want: outcome{[]int{1, 2}, []Reason{Optimal, Starting}}},
		{name: "the new one is there, and starts", give: one(load(14), has(1, 2), ready(0, 2)), want: outcome{[]int{1, 2}, []Reason{Optimal, Starting}}},
		{name: "it is ready", give: one(load(14), has(1, 2)), want: outcome{[]int{1, 0}, []Reason{Optimal, Optimal}}},
		{name: "only as many stay as help", give: one(load(14), has(0, 5)), want: outcome{[]int{1, 2}, []Reason{Optimal, Starting}}},
		{
			name: "fast replicas fill the gap of slow ones", give: one(load(29), has(1, 0), big(slow), small(fast)),
			want: outcome{[]int{2, 2}, []Reason{Optimal, Bridging}},
		},
		{
			name: "they stay while the slow one starts", give: one(load(29), has(2, 2), ready(1, 2), big(slow), small(fast)),
			want: outcome{[]int{2, 2}, []Reason{Optimal, Starting}},
		},
		{name: "they go when it is ready", give: one(load(29), has(2, 2), big(slow), small(fast)), want: outcome{[]int{2, 0}, []Reason{Optimal, Optimal}}},
		{name: "both start alike", give: one(load(29), has(1, 0), big(slow), small(slow)), want: outcome{[]int{2, 0}, []Reason{Optimal, Optimal}}},
		{name: "nobody knows how long they take", give: one(load(29), has(1, 0)), want: outcome{[]int{2, 0}, []Reason{Optimal, Optimal}}},
		{
			name: "within the limits",
			give: limited(one(load(29), has(1, 0), big(slow), small(fast)), snapshot.Limit{Name: "few", Unit: snapshot.Cards, Accelerator: "L", Amount: 1}),
			want: outcome{[]int{2, 1}, []Reason{Optimal, Bridging}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
		})
	}
}

func TestDecide_Schedule(t *testing.T) {
	t.Parallel()
	three := 3
	at := func(now time.Time) int {
		s := one(load(7), small(func(v *snapshot.Variant) {
			v.Schedule = []snapshot.Schedule{{Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin", Duration: 8 * time.Hour, Min: &three}}
		}))
		s.Time = now
		return decide(t, s).Desired[1]
	}
	assert.Equal(t, 3, at(noon))
	assert.Equal(t, 1, at(time.Date(2026, 3, 2, 7, 59, 59, 0, time.UTC)), "8:59 in Berlin")
	assert.Equal(t, 3, at(time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)))
	assert.Equal(t, 3, at(time.Date(2026, 3, 2, 15, 59, 59, 0, time.UTC)))
	assert.Equal(t, 1, at(time.Date(2026, 3, 2, 16, 0, 0, 0, time.UTC)))
	assert.Equal(t, 3, at(time.Date(2026, 7, 6, 7, 0, 0, 0, time.UTC)), "9:00 in summer")
	assert.Equal(t, 1, at(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), "a Sunday")

	five := 5
	s := one(load(7), small(func(v *snapshot.Variant) {
		always := snapshot.Schedule{Cron: "* * * * *", Duration: time.Hour}
		v.Schedule = []snapshot.Schedule{always, always}
		v.Schedule[0].Min, v.Schedule[1].Max = &three, &five
	}))
	d, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, 0, d.Groups[0].Variants[1].Min, "the last entry that is in force counts, and only it")
	assert.Equal(t, 5, d.Groups[0].Variants[1].Max)
}

// The capacity follows from the profile under the traffic of the group, and the figures predicted are those of its part of the load.
func TestDecide_Profile(t *testing.T) {
	t.Parallel()
	s := one(load(1), func(g *snapshot.Group) {
		g.Load.Input, g.Load.Output, g.Targets = 128, 128, snapshot.Targets{TTFT: 500, ITL: 24}
		g.Variants = g.Variants[:1]
		g.Variants[0].Profile = &snapshot.Profile{Alpha: 20.58, Beta: 0.41, Gamma: 5.2, Delta: 0.1, MaxBatch: 4}
	})
	d, err := Decide(s)
	require.NoError(t, err)
	v := d.Groups[0].Variants[0]
	assert.Equal(t, int64(815595), v.Capacity)
	assert.Equal(t, FromProfile, v.CapacitySource)
	assert.Equal(t, 2, v.Desired)
	require.NotNil(t, v.Predicted)
	assert.InDelta(t, 21.532470, v.Predicted.ITL, 1e-6, "reference 5.10c at 0.5 requests/s")
	assert.InDelta(t, 104.266598, v.Predicted.TTFT, 1e-6)
	assert.Equal(t, int64(80e6), v.CostAlone)
	assert.Equal(t, int64(815595), v.ShareWithout)
}

// The same snapshot gives the same decision after a way through JSON.
func TestDecide_Replay(t *testing.T) {
	t.Parallel()
	s := limited(one(load(29), has(1, 0), zero(3, time.Minute)), snapshot.Limit{Name: "l", Unit: snapshot.Cards, Accelerator: "L", Amount: 5})
	want, err := Decide(s)
	require.NoError(t, err)
	raw, err := json.Marshal(Record{Snapshot: s, Decision: want})
	require.NoError(t, err)
	var read Record
	require.NoError(t, json.Unmarshal(raw, &read))
	got, err := Decide(read.Snapshot)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, want, read.Decision)
}

// Numbers that a tenant can write cost nobody else the decision.
func TestDecide_HostileNumbers(t *testing.T) {
	t.Parallel()
	other := one(has(0, 3)).Groups[0]
	other.Namespace = "other"
	for name, change := range map[string]func(g *snapshot.Group){
		"profile of a server without time": func(g *snapshot.Group) {
			g.Variants[0].Profile = &snapshot.Profile{Alpha: 1e-12, MaxBatch: 1 << 16}
		},
		"profile beyond integers": func(g *snapshot.Group) { g.Variants[0].Profile = &snapshot.Profile{Alpha: 1e-290, MaxBatch: 1} },
		"forecast":                func(g *snapshot.Group) { g.Forecast = 1 << 62 },
		"status": func(g *snapshot.Group) {
			g.Variants[0].Previous, g.Variants[0].Decided, g.Variants[0].Max = 1<<31-1, true, 0
			g.Load.State = snapshot.Missing
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := one(change)
			s.Groups = append(s.Groups, other)
			d, err := Decide(s)
			require.NoError(t, err)
			assert.Equal(t, int64(1e6), d.Groups[1].Share, "the other tenant is served")
		})
	}
}

func TestDecide_Invalid(t *testing.T) {
	t.Parallel()
	_, err := Decide(one(big(func(v *snapshot.Variant) { v.Cards = 0 })))
	require.EqualError(t, err, `snapshot: group 0: variant "big": the number of cards is 0`)
}
