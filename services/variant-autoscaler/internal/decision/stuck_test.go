package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestStuckRoles: a role whose replicas do not become ready gets another variant, too, as a model without roles does.
func TestStuckRoles(t *testing.T) {
	t.Parallel()
	starts := func(since time.Duration) func(g *snapshot.Group) {
		return func(g *snapshot.Group) { pods(&g.Variants[0], 1, 0); g.Zero.StartsSince = noon.Add(-since) }
	}
	serves := func(g *snapshot.Group) { pods(&g.Variants[0], 1, 1) }
	roles := func(prefill, decode func(g *snapshot.Group)) func(p, d *snapshot.Group) {
		return func(p, d *snapshot.Group) { prefill(p); decode(d) }
	}
	replicas := func(p, d, dearP, dearD int) map[string]int {
		return map[string]int{"p": p, "d": d, "dear-p": dearP, "dear-d": dearD}
	}
	for _, tt := range []struct {
		name string
		give *snapshot.Snapshot
		want map[string]int
	}{
		{"both start", sleepingPair(waits, roles(starts(time.Minute), starts(time.Minute))), replicas(1, 1, 0, 0)},
		{"prefill does not become ready", sleepingPair(waits, roles(starts(stuckAfter), serves)), replicas(1, 1, 1, 0)},
		{"decode does not become ready", sleepingPair(waits, roles(serves, starts(stuckAfter))), replicas(1, 1, 0, 1)},
		{"neither does", sleepingPair(waits, roles(starts(stuckAfter), starts(stuckAfter))), replicas(1, 1, 1, 1)},
		{"one is stuck, and the other starts", sleepingPair(waits, roles(starts(stuckAfter), starts(time.Minute))), replicas(1, 1, 1, 0)},
		{"limits leave no room", cards(sleepingPair(waits, roles(starts(stuckAfter), serves)), 2), replicas(1, 1, 0, 0)},
		{"neither does, and limits leave room for one", cards(sleepingPair(waits, roles(starts(stuckAfter), starts(stuckAfter))), 3), replicas(1, 1, 0, 1)},
		{"nobody waits any more, and the model has not served yet", sleepingPair(roles(starts(stuckAfter), serves)), replicas(1, 1, 1, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := replicasOf(t, tt.give)
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestStuckSides: servers of whole requests wake a model whose pair does not become ready, and the other way round.
func TestStuckSides(t *testing.T) {
	t.Parallel()
	replicas := func(whole, pair int) map[string]int {
		return map[string]int{"w": whole, "p": pair, "d": pair, "dear-p": 0, "dear-d": 0}
	}
	recent := both(func(g *snapshot.Group) { *g.Zero.Requests = 1 })
	usable := func(g *snapshot.Group) { g.Variants[0].Problem = nil }
	stuck := func(g *snapshot.Group) { pods(&g.Variants[0], 1, 0); g.Zero.StartsSince = noon.Add(-stuckAfter) }
	pairStarts := func(n int, change ...func(g *snapshot.Group)) func(p, d *snapshot.Group) {
		return both(func(g *snapshot.Group) {
			g.Variants[1].Problem = &snapshot.Problem{Reason: "x"}
			pods(&g.Variants[0], n, 0)
			for _, f := range change {
				f(g)
			}
		})
	}
	for _, tt := range []struct {
		name string
		give *snapshot.Snapshot
		want map[string]int
	}{
		{"the pair starts", withWhole(sleepingPair(waits, pairStarts(1)), 19e6, usable), replicas(0, 1)},
		{"the pair is stuck", withWhole(sleepingPair(waits, pairStarts(1, stuck)), 19e6, usable), replicas(1, 1)},
		{"limits leave no room", cards(withWhole(sleepingPair(waits, pairStarts(1, stuck)), 19e6, usable), 2), replicas(0, 1)},
		{"limits leave room for one of a pair", cards(withWhole(sleepingPair(waits, pairStarts(0)), 19e6, usable, stuck), 2), replicas(1, 0)},
		{"whole requests cannot be planned", withWhole(sleepingPair(waits, pairStarts(1, stuck)), 19e6), replicas(0, 1)},
		{"whole requests start, as the pair is stuck", withWhole(sleepingPair(waits, pairStarts(1, stuck)), 19e6, usable, func(g *snapshot.Group) { pods(&g.Variants[0], 1, 0) }), replicas(1, 1)},
		{"whole requests serve, and the pair is stuck", withWhole(sleepingPair(recent, pairStarts(1, stuck)), 19e6, usable, func(g *snapshot.Group) { pods(&g.Variants[0], 1, 1) }), replicas(1, 0)},
		{"whole requests are stuck", withWhole(sleepingPair(waits, pairStarts(0)), 19e6, usable, stuck), replicas(1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := replicasOf(t, tt.give)
			assert.Equal(t, tt.want, got)
		})
	}
}
