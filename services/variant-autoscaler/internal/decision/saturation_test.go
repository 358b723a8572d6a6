package decision

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// usual are the defaults of the workload-variant-autoscaler.
func usual() *snapshot.Thresholds {
	return &snapshot.Thresholds{KVCache: 0.8, QueueLength: 5, KVSpare: 0.1, QueueSpare: 3}
}

// crowded sets what the servers of both variants show: all of them are seen.
func crowded(big, small snapshot.Spare) func(g *snapshot.Group) {
	return func(g *snapshot.Group) {
		g.Saturation, g.Zero.Changed = usual(), noon.Add(-time.Minute)
		for i, s := range []snapshot.Spare{big, small} {
			if s.Seen > 0 {
				g.Variants[i].Spare = &s
			}
		}
	}
}

func TestDecide_Saturation(t *testing.T) {
	t.Parallel()
	none := snapshot.Spare{}
	seen := func(n int, kv, queue float64) snapshot.Spare {
		return snapshot.Spare{Seen: n, Free: n, KV: kv, Queue: queue}
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want []int // big, small
		why  Reason
	}{
		{"nothing is short", one(load(7), has(0, 1), crowded(none, seen(1, 0.5, 1))), []int{0, 1}, Optimal},
		{"reference 6.1: cache .75 and .76", one(load(7), has(0, 2), crowded(none, seen(2, 0.755, 0))), []int{0, 3}, Saturated},
		{"reference 6.1: queues of 3", one(load(7), has(0, 2), crowded(none, seen(2, 0.2, 3))), []int{0, 3}, Saturated},
		{"reference 6.1: .20, .30, .25 and queues of 1 are safe to reduce", one(load(7), has(0, 3), crowded(none, seen(3, 0.25, 1))), []int{0, 2}, Saturated},
		{"reference 6.1: .70 and .75 are not", one(load(7), has(0, 2), crowded(none, seen(2, 0.695, 1.9))), []int{0, 2}, Saturated},
		{"all are saturated", one(load(7), has(0, 2), crowded(none, snapshot.Spare{Seen: 2})), []int{0, 3}, Saturated},
		{"one is saturated, and the others idle", one(load(7), has(0, 4), crowded(none, snapshot.Spare{Seen: 4, Free: 3, KV: 0.05})), []int{0, 2}, Saturated},
		{"idle", one(load(7), has(0, 4), crowded(none, seen(4, 0, 0))), []int{0, 1}, Optimal},
		{"the cheapest gets the next one", one(load(20), has(1, 1), crowded(seen(1, 0.79, 0), seen(1, 0.79, 0))), []int{1, 2}, Saturated},
		{"the plan has more, of another variant", one(load(28), has(0, 2), crowded(none, seen(2, 0.75, 0))), []int{2, 2}, Starting},
		{"nobody asks for it", one(load(7), has(0, 2), crowded(none, seen(2, 0.75, 0)), func(g *snapshot.Group) { g.Saturation = nil }), []int{0, 1}, Optimal},
		{"servers with a profile do not count", one(load(7), has(0, 2), crowded(none, none), small(func(v *snapshot.Variant) {
			v.Profile = &snapshot.Profile{Alpha: 1, Beta: 0.1, Gamma: 1, Delta: 0.001, MaxBatch: 64}
		})), []int{0, 1}, Optimal},
		{"one does not serve yet", one(load(7), has(0, 3), crowded(none, seen(2, 0.75, 0))), []int{0, 3}, Saturated},
		{"one never serves", one(load(7), has(0, 3), crowded(none, seen(2, 0.75, 0)), func(g *snapshot.Group) { g.Zero.Changed = noon.Add(-stuckAfter) }), []int{0, 4}, Saturated},
		{"the next one where the cheapest has all", one(load(7), has(0, 2), crowded(none, seen(2, 0.75, 0)), small(func(v *snapshot.Variant) { v.Max = 2 })), []int{1, 2}, Saturated},
		{"the bounds of the cheapest hold", one(load(21), has(1, 1), crowded(seen(1, 0.75, 0), seen(1, 0.75, 0)), small(func(v *snapshot.Variant) { v.Max = 1 })), []int{2, 1}, Optimal},
		{"the load is not known", one(load(7), has(0, 2), crowded(none, seen(2, 0.75, 0)), func(g *snapshot.Group) { g.Load.State = snapshot.Stale }), []int{0, 2}, NoMetrics},
		{"limits hold", limited(one(load(7), has(0, 2), crowded(none, seen(2, 0.75, 0))),
			snapshot.Limit{Name: "l", Unit: snapshot.Cards, Namespace: "ns", Amount: 2}), []int{0, 2}, Saturated},
		{"thresholds without anything to spare", one(load(7), has(0, 3), crowded(none, seen(3, 0.01, 0)), func(g *snapshot.Group) {
			g.Saturation = &snapshot.Thresholds{KVCache: 0.5, KVSpare: 0.5, QueueLength: 5, QueueSpare: 3}
		}), []int{0, 4}, Saturated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(tt.give)
			require.NoError(t, err)
			v := d.Groups[0].Variants
			assert.Equal(t, tt.want, []int{v[0].Desired, v[1].Desired})
			assert.Equal(t, tt.why, v[1].Reason, v[1].Message)
			if tt.why == Saturated {
				remembered := v[1].Wanted
				assert.Equal(t, tt.want[1], remembered, "stabilization holds it")
			}
		})
	}
}

// TestDecide_SaturationIsReplayed: a snapshot has all that the floor follows from.
func TestDecide_SaturationIsReplayed(t *testing.T) {
	t.Parallel()
	s := one(load(7), has(0, 2), crowded(snapshot.Spare{}, snapshot.Spare{Seen: 2, Free: 1, KV: 0.75, Queue: 1}))
	want, err := Decide(s)
	require.NoError(t, err)
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	var read snapshot.Snapshot
	require.NoError(t, json.Unmarshal(raw, &read))
	got, err := Decide(&read)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, 3, got.Groups[0].Variants[1].Desired)
}

// BenchmarkDecide_Saturated is a fleet whose servers are all saturated: each model gets a replica more, within a limit for all.
func BenchmarkDecide_Saturated(b *testing.B) {
	s := one()
	s.Groups = nil
	for i := range 5000 {
		g := one(load(7), has(0, 2), crowded(snapshot.Spare{}, snapshot.Spare{Seen: 2})).Groups[0]
		g.Namespace = fmt.Sprint("ns-", i)
		for n := range g.Variants {
			g.Variants[n].Namespace = g.Namespace
		}
		s.Groups = append(s.Groups, g)
	}
	s.Limits = []snapshot.Limit{{Name: "all", Unit: snapshot.Replicas, Amount: 14_000}}
	for b.Loop() {
		d, err := Decide(s)
		require.NoError(b, err)
		require.Equal(b, 3, d.Groups[0].Variants[1].Desired)
	}
}
