package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// pair is a model with prefill servers, of 10 000 tokens per second, and decode servers, of 5 requests per second, under a load of 4 prompts of 5000
// tokens per second. It has 2 prefill replicas and a decode replica.
func pair(change ...func(prefill, decode *snapshot.Group)) *snapshot.Snapshot {
	stage := func(role snapshot.Role, v snapshot.Variant) snapshot.Group {
		v.Namespace, v.Cards, v.Cost, v.Max, v.Decided = "ns", 1, 10e6, 20, true
		v.Now, v.Ready, v.Previous = 1, 1, 1
		return snapshot.Group{
			Namespace: "ns", Pool: "pool", Model: "m", Role: role, Priority: 1, Targets: snapshot.Targets{TTFT: 6000, ITL: 50},
			Load:     snapshot.Load{State: snapshot.Found, Rate: 4e6, Input: 5000, Output: 200},
			Variants: []snapshot.Variant{v},
		}
	}
	prefill := stage(snapshot.Prefill, snapshot.Variant{Name: "p", Profile: &snapshot.Profile{Delta: 0.1, MaxBatch: 2}})
	prefill.Load.Output = 1
	decode := stage(snapshot.Decode, snapshot.Variant{Name: "d", Profile: &snapshot.Profile{Alpha: 20, Beta: 0.5, Delta: 0.1, MaxBatch: 60}})
	for _, f := range change {
		f(&prefill, &decode)
	}
	return &snapshot.Snapshot{Time: noon, Settings: snapshot.Settings{Split: "capacity", Percentile: 90}, Groups: []snapshot.Group{decode, prefill}}
}

// both applies a change to both groups.
func both(f func(g *snapshot.Group)) func(prefill, decode *snapshot.Group) {
	return func(prefill, decode *snapshot.Group) {
		f(prefill)
		f(decode)
	}
}

// replicasOf returns the desired replicas of all variants by name, and the decision.
func replicasOf(t *testing.T, s *snapshot.Snapshot) (map[string]int, *Decision) {
	t.Helper()
	d, err := Decide(s)
	require.NoError(t, err)
	all := map[string]int{}
	for g := range d.Groups {
		for i := range d.Groups[g].Variants {
			all[s.Groups[g].Variants[i].Name] = d.Groups[g].Variants[i].Desired
		}
	}
	return all, d
}

// TestRolesHaveCapacitiesOfTheirOwn: a prefill server has no decode steps, and computes what no prefix cache has. The profile of a decode
// server counts without its prefills.
func TestRolesHaveCapacitiesOfTheirOwn(t *testing.T) {
	t.Parallel()
	got, d := replicasOf(t, pair())
	assert.Equal(t, map[string]int{"p": 3, "d": 1}, got)
	decode, prefill := &d.Groups[0].Variants[0], &d.Groups[1].Variants[0]
	assert.InDelta(t, 1.6, float64(prefill.Capacity)/1e6, 0.2, "2 prompts per second keep it busy all the time")
	require.NotNil(t, prefill.Predicted)
	assert.Zero(t, prefill.Predicted.ITL)
	assert.Less(t, prefill.Predicted.TTFT, 4500.0, "a part of the target is for the transfer and the first step")
	assert.Greater(t, float64(decode.Capacity)/1e6, 5.0, "0.5 s of prefills each would leave less than 2")

	got, _ = replicasOf(t, pair(func(prefill, _ *snapshot.Group) { prefill.Load.Cached = 0.75 }))
	assert.Equal(t, map[string]int{"p": 1, "d": 1}, got, "a quarter of the tokens")

	_, d = replicasOf(t, pair(func(prefill, _ *snapshot.Group) { prefill.Targets.TTFT = 600 }))
	assert.Equal(t, OutOfReach, d.Groups[1].Variants[0].Reason)
	assert.Contains(t, d.Groups[1].Variants[0].Message, "the targets of TTFT 450 ms:", "that of prefills, without ITL")

	_, d = replicasOf(t, pair(func(prefill, _ *snapshot.Group) { prefill.Targets = snapshot.Targets{ITL: 1} }))
	assert.Equal(t, 3, d.Groups[1].Variants[0].Desired, "a target of ITL is none for prefills: a stable load")
}

// TestRolesScaleApart: what one role needs is no reason for the other.
func TestRolesScaleApart(t *testing.T) {
	t.Parallel()
	got, _ := replicasOf(t, pair(func(_, decode *snapshot.Group) { decode.Load.Output = 1000 }))
	assert.Equal(t, map[string]int{"p": 3, "d": 4}, got)
	got, _ = replicasOf(t, pair(func(prefill, _ *snapshot.Group) { prefill.Load.Waiting = 600 }))
	assert.Equal(t, map[string]int{"p": 10, "d": 1}, got, "10 prompts per second more, for a minute")
	got, d := replicasOf(t, pair(func(prefill, _ *snapshot.Group) { prefill.Load = snapshot.Load{State: snapshot.Missing} }))
	assert.Equal(t, map[string]int{"p": 1, "d": 1}, got)
	assert.Equal(t, NoMetrics, d.Groups[1].Variants[0].Reason)
	assert.Equal(t, Optimal, d.Groups[0].Variants[0].Reason)
}

// TestRolesGoToZeroTogether: while one role may have work, the other one stays.
func TestRolesGoToZeroTogether(t *testing.T) {
	t.Parallel()
	none := 0.0
	idle := both(func(g *snapshot.Group) {
		g.Load.Rate, g.Zero = 0, snapshot.Zero{Enabled: true, Retention: 10 * time.Minute, Requests: &none, Changed: noon.Add(-time.Hour), ServesSince: noon.Add(-time.Hour), Watched: true}
	})
	tests := []struct {
		name   string
		change func(prefill, decode *snapshot.Group)
		want   map[string]int
	}{
		{"nobody needs them", func(*snapshot.Group, *snapshot.Group) {}, map[string]int{"p": 0, "d": 0}},
		{"zero is not permitted", both(func(g *snapshot.Group) { g.Zero.Enabled = false }), map[string]int{"p": 1, "d": 1}},
		{"the requests are not known", both(func(g *snapshot.Group) { g.Zero.Requests = nil }), map[string]int{"p": 1, "d": 1}},
		{"prefills are not known", func(prefill, _ *snapshot.Group) { prefill.Load = snapshot.Load{State: snapshot.Missing} }, map[string]int{"p": 1, "d": 1}},
		{"decode servers changed", func(_, decode *snapshot.Group) { decode.Zero.Changed = noon }, map[string]int{"p": 1, "d": 1}},
		{"a request waits", both(func(g *snapshot.Group) {
			g.Load.Queued = 1
			g.Variants[0].Now, g.Variants[0].Ready, g.Variants[0].Previous = 0, 0, 0
		}),
			map[string]int{"p": 1, "d": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := replicasOf(t, pair(idle, tt.change))
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestServersOfWholeRequestsBesideAPair have the replicas that their own load needs. The pair keeps the model from zero.
func TestServersOfWholeRequestsBesideAPair(t *testing.T) {
	t.Parallel()
	whole := func(s *snapshot.Snapshot, rate int64) *snapshot.Snapshot {
		g := s.Groups[0]
		g.Role, g.Load.Rate = snapshot.Aggregated, rate
		v := g.Variants[0]
		v.Name = "w"
		g.Variants = []snapshot.Variant{v}
		s.Groups = append([]snapshot.Group{g}, s.Groups...)
		return s
	}
	got, _ := replicasOf(t, whole(pair(), 2e6))
	assert.Equal(t, map[string]int{"p": 3, "d": 1, "w": 3}, got, "the prompts of whole requests take their time")
	got, _ = replicasOf(t, whole(pair(), 0))
	assert.Equal(t, map[string]int{"p": 3, "d": 1, "w": 0}, got)
	broken := pair(func(prefill, _ *snapshot.Group) {
		prefill.Variants[0].Problem = &snapshot.Problem{Reason: "TargetNotFound", Message: "gone"}
	})
	got, _ = replicasOf(t, whole(broken, 0))
	assert.Equal(t, 1, got["w"], "there is no pair")
}

func TestRatio(t *testing.T) {
	t.Parallel()
	ratio := func(low, high float64) func(prefill, decode *snapshot.Group) {
		return both(func(g *snapshot.Group) { g.PrefillRatio = snapshot.Ratio{Min: low, Max: high} })
	}
	dear := func(prefill, _ *snapshot.Group) {
		v := prefill.Variants[0]
		v.Name, v.Cost, v.Now, v.Ready = "dear", 90e6, 0, 0
		prefill.Variants = append(prefill.Variants, v)
	}
	most := func(n int) func(prefill, decode *snapshot.Group) {
		return func(prefill, _ *snapshot.Group) { prefill.Variants[0].Max = n }
	}
	limit := func(s *snapshot.Snapshot, n int64) *snapshot.Snapshot {
		s.Limits = []snapshot.Limit{{Name: "few", Unit: snapshot.Cards, Namespace: "ns", Amount: n}}
		return s
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want map[string]int
		why  map[string]Reason
	}{
		{"within", pair(ratio(0.5, 3)), map[string]int{"p": 3, "d": 1}, map[string]Reason{"p": Optimal, "d": Optimal}},
		{"too many prefill servers", pair(ratio(0, 2)), map[string]int{"p": 3, "d": 2}, map[string]Reason{"p": Optimal, "d": RatioBinding}},
		{"too few", pair(ratio(4.1, 0)), map[string]int{"p": 5, "d": 1}, map[string]Reason{"p": RatioBinding, "d": Optimal}},
		{"exact products", pair(ratio(0, 0.3)), map[string]int{"p": 3, "d": 10}, map[string]Reason{"p": Optimal, "d": RatioBinding}},
		{"the cheapest first", pair(ratio(6, 0), dear, most(4)), map[string]int{"p": 4, "dear": 2, "d": 1}, map[string]Reason{"p": RatioBinding, "dear": RatioBinding}},
		{"bounds hold", pair(ratio(6, 0), most(4)), map[string]int{"p": 4, "d": 1}, map[string]Reason{"p": RatioBinding}},
		{"limits hold, and leave a part", limit(pair(ratio(9, 0)), 7), map[string]int{"p": 6, "d": 1}, map[string]Reason{"p": RatioBinding}},
		{"the load of one role is not known", pair(ratio(9, 0), func(_, decode *snapshot.Group) { decode.Load = snapshot.Load{State: snapshot.Stale} }),
			map[string]int{"p": 3, "d": 1}, map[string]Reason{"p": Optimal, "d": NoMetrics}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, d := replicasOf(t, tt.give)
			assert.Equal(t, tt.want, got)
			for g := range d.Groups {
				for i := range d.Groups[g].Variants {
					v := &d.Groups[g].Variants[i]
					if want, named := tt.why[tt.give.Groups[g].Variants[i].Name]; named {
						assert.Equal(t, want, v.Reason, v.Message)
					}
					if v.Reason == RatioBinding {
						remembered := v.Wanted
						assert.Equal(t, tt.want[tt.give.Groups[g].Variants[i].Name], remembered, "stabilization holds it")
					}
				}
			}
		})
	}
}

func TestReplicasOfAProduct(t *testing.T) {
	t.Parallel()
	bound, decodes := 0.07, 100.0
	assert.Greater(t, bound*decodes, 7.0, "floating-point numbers")
	assert.Equal(t, 7, replicasFor(bound*decodes))
	assert.Equal(t, 12, replicasFor(11.01))
}

// TestRatioAtZero: no replicas have any ratio.
func TestRatioAtZero(t *testing.T) {
	t.Parallel()
	none := 0.0
	got, _ := replicasOf(t, pair(both(func(g *snapshot.Group) {
		g.PrefillRatio, g.Load.Rate = snapshot.Ratio{Min: 2, Max: 3}, 0
		g.Zero = snapshot.Zero{Enabled: true, Retention: time.Minute, Requests: &none, Changed: noon.Add(-time.Hour), ServesSince: noon.Add(-time.Hour), Watched: true}
	})))
	assert.Equal(t, map[string]int{"p": 0, "d": 0}, got)
}
