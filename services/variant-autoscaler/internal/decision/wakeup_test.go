package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// sleepingPair is a model with two prefill servers and two decode servers to choose from, without replicas for an hour. The first ones, p and d,
// cost 10 each.
func sleepingPair(change ...func(prefill, decode *snapshot.Group)) *snapshot.Snapshot {
	none := 0.0
	asleep := both(func(g *snapshot.Group) {
		g.Load.Rate = 0
		g.Zero = snapshot.Zero{Enabled: true, Retention: 10 * time.Minute, Requests: &none, Changed: noon.Add(-time.Hour), Watched: true}
		v := &g.Variants[0]
		v.Now, v.Ready, v.Previous = 0, 0, 0
		dear := *v
		dear.Name, dear.Cost = "dear-"+v.Name, 30e6
		g.Variants = append(g.Variants, dear)
	})
	return pair(append([]func(prefill, decode *snapshot.Group){asleep}, change...)...)
}

// waits is a request that waits for the model.
var waits = both(func(g *snapshot.Group) { g.Zero.Waiting, g.Load.Queued = 1, 1 })

// withWhole adds servers of whole requests, without replicas, that cost so much.
func withWhole(s *snapshot.Snapshot, cost int64, change ...func(whole *snapshot.Group)) *snapshot.Snapshot {
	g := s.Groups[0]
	g.Role, g.Load.Queued = snapshot.Aggregated, 0
	v := g.Variants[1]
	v.Name, v.Cost = "w", cost
	g.Variants = []snapshot.Variant{v}
	for _, f := range change {
		f(&g)
	}
	s.Groups = append([]snapshot.Group{g}, s.Groups...)
	return s
}

// pods sets the replicas of a variant, and how many of them are ready.
func pods(v *snapshot.Variant, n, ready int) { v.Now, v.Previous, v.Ready = n, n, ready }

// cards limits the number of cards.
func cards(s *snapshot.Snapshot, n int64) *snapshot.Snapshot {
	return limited(s, snapshot.Limit{Name: "l", Unit: snapshot.Cards, Amount: n})
}

// TestRolesWakeTogether: one variant of each role starts, and all of the model stay while one is needed.
func TestRolesWakeTogether(t *testing.T) {
	t.Parallel()
	stage := func(prefill, decode func(g *snapshot.Group)) func(p, d *snapshot.Group) {
		return func(p, d *snapshot.Group) {
			prefill(p)
			decode(d)
		}
	}
	with := func(n, ready int) func(g *snapshot.Group) {
		return func(g *snapshot.Group) { pods(&g.Variants[0], n, ready) }
	}
	serves := both(func(g *snapshot.Group) { g.Zero.ServesSince = noon.Add(-time.Hour) })
	unknown := both(func(g *snapshot.Group) {
		for i := range g.Variants {
			g.Variants[i].Profile = nil
		}
	})
	replicas := func(prefill, decode int) map[string]int {
		return map[string]int{"p": prefill, "d": decode, "dear-p": 0, "dear-d": 0}
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want map[string]int
	}{
		{"nothing waits", sleepingPair(), replicas(0, 0)},
		{"a request waits", sleepingPair(waits), replicas(1, 1)},
		{"of which the picker tells one role", sleepingPair(stage(func(p *snapshot.Group) { p.Load.Queued = 1 }, func(*snapshot.Group) {})), replicas(1, 1)},
		{"nothing is known of any", sleepingPair(waits, unknown), replicas(1, 1)},
		{"a ratio", sleepingPair(waits, both(func(g *snapshot.Group) { g.PrefillRatio.Min = 2 })), replicas(2, 1)},
		{"a ratio, and the cheapest has a maximum", sleepingPair(waits, both(func(g *snapshot.Group) { g.PrefillRatio.Min, g.Variants[0].Max = 2, 1 })), replicas(1, 1)},
		{"limits leave room for both", cards(sleepingPair(waits), 2), replicas(1, 1)},
		{"limits leave room for one, which would serve nothing", cards(sleepingPair(waits), 1), replicas(0, 0)},
		{"both start", sleepingPair(stage(with(1, 0), with(1, 0))), replicas(1, 1)},
		{"decode servers are not ready yet", sleepingPair(waits, stage(with(1, 1), with(1, 0)), both(func(g *snapshot.Group) { g.Load.Rate = 20e6 })), replicas(14, 4)},
		{"decode servers were never started", sleepingPair(waits, stage(with(1, 1), with(0, 0))), replicas(1, 1)},
		{"decode servers were lost before any request", sleepingPair(stage(with(1, 1), with(0, 0))), replicas(1, 1)},
		{"both are ready, and nobody needs them", sleepingPair(serves, stage(with(1, 1), with(1, 1))), replicas(0, 0)},
		{"the stabilization window holds one, and nothing is known of the other", sleepingPair(serves, stage(with(1, 1), with(1, 1)), func(p, d *snapshot.Group) {
			p.Variants[0].Profile, p.Variants[1].Profile, d.Variants[0].Held = nil, nil, 1
		}), replicas(1, 1)},
		{"nothing is known of one", sleepingPair(serves, stage(with(1, 1), with(1, 1)), func(p, _ *snapshot.Group) {
			p.Variants[0].Profile, p.Variants[1].Profile = nil, nil
		}), replicas(0, 0)},
		{"one changed", sleepingPair(serves, stage(with(1, 1), with(1, 1)), stage(func(p *snapshot.Group) { p.Zero.Changed = noon }, func(*snapshot.Group) {})), replicas(1, 1)},
		{"one role has a minimum", sleepingPair(stage(func(p *snapshot.Group) { p.Variants[0].Min = 1 }, func(*snapshot.Group) {})), replicas(1, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := replicasOf(t, tt.give)
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestPairOrWhole: servers of whole requests wake a model instead of a pair if they cost less. They then keep it from zero until a pair serves.
func TestPairOrWhole(t *testing.T) {
	t.Parallel()
	wholeHas := func(n, ready int) func(g *snapshot.Group) {
		return func(g *snapshot.Group) { pods(&g.Variants[0], n, ready) }
	}
	pairHas := func(n, ready int) func(prefill, decode *snapshot.Group) {
		return both(func(g *snapshot.Group) { pods(&g.Variants[0], n, ready) })
	}
	recent := both(func(g *snapshot.Group) { *g.Zero.Requests = 1 })
	profile := pair().Groups[0].Variants[0].Profile
	decodeUnknown := func(_, decode *snapshot.Group) { decode.Variants[0].Profile, decode.Variants[1].Profile = nil, nil }
	woke := both(func(g *snapshot.Group) { g.Zero.Standby = g.Variants[0].Name })
	replicas := func(whole, pair int) map[string]int {
		return map[string]int{"w": whole, "p": pair, "d": pair, "dear-p": 0, "dear-d": 0}
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want map[string]int
	}{
		{"nothing waits", withWhole(sleepingPair(), 19e6), replicas(0, 0)},
		{"whole requests cost less than a pair", withWhole(sleepingPair(waits), 19e6), replicas(1, 0)},
		{"they cost more", withWhole(sleepingPair(waits), 21e6), replicas(0, 1)},
		{"nothing is known of them", withWhole(sleepingPair(waits), 19e6, func(g *snapshot.Group) { g.Variants[0].Profile = nil }), replicas(0, 1)},
		{"nothing is known of decode servers", withWhole(sleepingPair(waits, decodeUnknown), 21e6, func(g *snapshot.Group) { g.Variants[0].Profile = profile }), replicas(1, 0)},
		{"limits leave no room for a pair", cards(withWhole(sleepingPair(waits), 21e6), 1), replicas(1, 0)},
		{"the pair was woken", withWhole(sleepingPair(waits, woke), 19e6), replicas(0, 1)},
		{"whole requests start", withWhole(sleepingPair(waits), 21e6, wholeHas(1, 0)), replicas(1, 0)},
		{"the pair starts", withWhole(sleepingPair(waits, pairHas(1, 0)), 19e6), replicas(0, 1)},
		{"both start", withWhole(sleepingPair(waits, pairHas(1, 0)), 19e6, wholeHas(1, 0), func(g *snapshot.Group) { g.Load.Rate = 20e6 }), replicas(0, 1)},
		{"whole requests serve, and a pair starts", withWhole(sleepingPair(recent, pairHas(1, 0)), 19e6, wholeHas(1, 1)), replicas(1, 0)},
		{"whole requests serve", withWhole(sleepingPair(recent), 19e6, wholeHas(1, 1)), replicas(1, 0)},
		{"a pair serves, and whole requests have a load", withWhole(sleepingPair(recent, pairHas(1, 1)), 19e6, func(g *snapshot.Group) { g.Load.Rate = 2e6 }), replicas(3, 1)},
		{"both serve", withWhole(sleepingPair(recent, pairHas(1, 1)), 19e6, wholeHas(1, 1)), replicas(0, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := replicasOf(t, tt.give)
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestWakeUpsNeedNodes: variants of a set of nodes with too few free cards do not wake a model, and no pod of a pair starts alone.
func TestWakeUpsNeedNodes(t *testing.T) {
	t.Parallel()
	// The cheap variants and the others can use one node each, with these free cards.
	nodes := func(cheap, dear int64, give *snapshot.Snapshot) *snapshot.Snapshot {
		for _, free := range []int64{cheap, dear} {
			give.Nodes = append(give.Nodes, snapshot.NodeSet{Name: "nodes", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: free, Nodes: 1}}})
		}
		for g := range give.Groups {
			for i := range give.Groups[g].Variants {
				give.Groups[g].Variants[i].Pods = &snapshot.Pods{Set: i, Cards: 2, Count: 1}
			}
		}
		return give
	}
	tests := []struct {
		name        string
		cheap, dear int64
		want        map[string]int
		standby     string // of the prefill servers
	}{
		{"room for both", 4, 4, map[string]int{"p": 1, "d": 1, "dear-p": 0, "dear-d": 0}, "p"},
		{"room for one: the other one elsewhere", 2, 4, map[string]int{"p": 0, "d": 1, "dear-p": 1, "dear-d": 0}, "dear-p"},
		{"room elsewhere", 1, 4, map[string]int{"p": 0, "d": 0, "dear-p": 1, "dear-d": 1}, "dear-p"},
		{"room for one in all", 2, 1, map[string]int{"p": 0, "d": 0, "dear-p": 0, "dear-d": 0}, ""},
	}
	for _, tt := range tests {
		got, d := replicasOf(t, nodes(tt.cheap, tt.dear, sleepingPair(waits)))
		assert.Equal(t, tt.want, got, tt.name)
		if tt.standby == "" {
			assert.Contains(t, d.Groups[0].Variants[0].Message, "leave no room for a first replica", tt.name)
		}
		s := nodes(tt.cheap, tt.dear, sleepingPair())
		other := pair().Groups[0] // its pods are on other nodes of the set
		other.Model, other.Variants[0].Name, other.Variants[0].Max = "n", "other", 1
		other.Variants[0].Pods = &snapshot.Pods{Cards: 2, Count: 1, Placed: 1}
		s.Groups = append(s.Groups, other)
		_, d = replicasOf(t, s)
		assert.Equal(t, tt.standby, d.Groups[1].Standby, tt.name)
	}
}

// TestStandbysOfRoles: one of each role, all of them or none, and what they cost together.
func TestStandbysOfRoles(t *testing.T) {
	t.Parallel()
	standbys := func(s *snapshot.Snapshot) (all []string) {
		_, d := replicasOf(t, s)
		for g := range d.Groups {
			all = append(all, d.Groups[g].Standby)
		}
		return all
	}
	assert.Equal(t, []string{"d", "p"}, standbys(sleepingPair()))
	assert.Equal(t, []string{"d", "p"}, standbys(cards(sleepingPair(), 2)))
	assert.Equal(t, []string{"", ""}, standbys(cards(sleepingPair(), 1)))
	assert.Equal(t, []string{"w", "", ""}, standbys(withWhole(sleepingPair(), 19e6)))
	assert.Equal(t, []string{"", "d", "p"}, standbys(withWhole(sleepingPair(), 21e6)))
	gone := both(func(g *snapshot.Group) {
		pods(&g.Variants[0], 1, 1)
		g.Zero.ServesSince = noon.Add(-time.Hour)
	})
	assert.Equal(t, []string{"d", "p"}, standbys(sleepingPair(gone)), "they go now")

	warm := both(func(g *snapshot.Group) {
		g.Zero.WakeUps, g.Zero.WaitingCost = 1, 100e6
		g.Variants[0].Start = 6 * time.Minute
	})
	slow := func(_, decode *snapshot.Group) { decode.Variants[0].Start = 9 * time.Minute }
	got, d := replicasOf(t, sleepingPair(warm, slow, gone))
	assert.Equal(t, map[string]int{"p": 0, "d": 0, "dear-p": 0, "dear-d": 0}, got, "15 is less than the price of a pair, and more than that of one")
	for g := range d.Groups {
		assert.Equal(t, "1.00 wake-ups/h of d and p, each of 9m0s, cost 15/h, and a replica 20/h", d.Groups[g].Warm.String())
	}
}
