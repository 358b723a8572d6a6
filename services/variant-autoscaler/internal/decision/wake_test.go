package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// asleep has been without replicas for an hour. Something sees requests that wait.
func asleep(change ...func(g *snapshot.Group)) *snapshot.Snapshot {
	all := append([]func(g *snapshot.Group){load(0), has(0, 0), zero(0, time.Hour), func(g *snapshot.Group) { g.Zero.ServesSince = time.Time{} }}, change...)
	return one(all...)
}

// held requests wait, or did since the pass before.
func held(requests float64) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { g.Zero.Waiting = requests }
}

func queue(requests float64) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { g.Load.Queued = requests }
}

// starts sets how long replicas of both variants take to start.
func starts(bigs, smalls time.Duration) func(g *snapshot.Group) {
	return func(g *snapshot.Group) { g.Variants[0].Start, g.Variants[1].Start = bigs, smalls }
}

// starting has replicas that are not ready, since a time.
func starting(bigs, smalls int, since time.Duration) func(g *snapshot.Group) {
	return func(g *snapshot.Group) {
		has(bigs, smalls)(g)
		g.Variants[0].Ready, g.Variants[1].Ready, g.Zero.StartsSince = 0, 0, noon.Add(-since)
	}
}

// TestDecide_Wake: big costs 40 and serves 15 requests/s, small costs 23 and serves 7. The retention period is ten minutes.
func TestDecide_Wake(t *testing.T) {
	t.Parallel()
	unmeasured := func(v *snapshot.Variant) { v.Measured = nil }
	excluded := func(v *snapshot.Variant) { v.Problem = &snapshot.Problem{Reason: "TargetNotFound"} }
	state := func(s snapshot.LoadState) func(g *snapshot.Group) {
		return func(g *snapshot.Group) { g.Load.State, g.Zero.Requests = s, nil }
	}
	full := func(accelerator string) snapshot.Limit {
		return snapshot.Limit{Name: "l", Unit: snapshot.Cards, Accelerator: accelerator, Amount: 0}
	}
	both0 := func(g *snapshot.Group) { // decided a moment ago
		g.Variants[0].Previous, g.Variants[1].Previous, g.Zero.Changed = 0, 0, noon
	}
	waking, both := []Reason{Waking, Waking}, []Reason{Optimal, Optimal}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want outcome
	}{
		{"nobody asks for it", asleep(), outcome{[]int{0, 0}, both}},
		{"a request waits", asleep(queue(1), held(1)), outcome{[]int{0, 1}, waking}},
		{"a request came and went", asleep(held(1)), outcome{[]int{0, 1}, waking}},
		{"a request was refused", asleep(zero(1, time.Hour)), outcome{[]int{0, 1}, waking}},
		{"several wait: only one variant, where the plan would have both", asleep(load(20), queue(60), held(60)), outcome{[]int{0, 3}, waking}},
		{"more than one variant serves: the one with the least rank", asleep(load(80), held(1)), outcome{[]int{6, 0}, waking}},
		{"more than all serve", asleep(load(800), held(1)), outcome{[]int{0, 10}, waking}},
		{"the faster one costs less until the model sleeps again", asleep(held(1), starts(time.Minute, 20*time.Minute)), outcome{[]int{1, 0}, waking}},
		{"the faster one costs more", asleep(held(1), starts(time.Minute, 5*time.Minute)), outcome{[]int{0, 1}, waking}},
		{"a start that was not seen is the slowest", asleep(held(1), starts(20*time.Minute, 0)), outcome{[]int{0, 1}, waking}},
		{"the choice stays while requests wait", asleep(held(1), func(g *snapshot.Group) { g.Zero.Standby = "big" }), outcome{[]int{1, 0}, waking}},
		{"nothing is known of one: the other", asleep(held(1), small(unmeasured)), outcome{[]int{1, 0}, waking}},
		{"nothing is known of any", asleep(held(1), big(unmeasured), small(unmeasured)), outcome{[]int{0, 1}, waking}},
		{"a variant with a problem", asleep(held(1), small(excluded)), outcome{[]int{1, 0}, []Reason{Waking, Excluded}}},
		{"a limit leaves no card of the cheapest", limited(asleep(held(1)), full("L")), outcome{[]int{1, 0}, waking}},
		{"limits leave no card", limited(asleep(held(1), big(unmeasured)), full("")), outcome{[]int{0, 0}, waking}},
		{"it starts", asleep(starting(0, 1, time.Minute), queue(1), held(1)), outcome{[]int{0, 1}, waking}},
		{"it starts, and requests have gone", asleep(starting(0, 1, 9*time.Minute)), outcome{[]int{0, 1}, waking}},
		{"it starts, and the other one costs less now", asleep(starting(1, 0, time.Minute), held(1)), outcome{[]int{1, 0}, waking}},
		{"KEDA has not made it yet", asleep(held(1), starting(1, 0, time.Minute), big(func(v *snapshot.Variant) { v.Now = 0 })), outcome{[]int{1, 0}, waking}},
		{"it does not become ready: another one too", asleep(starting(1, 0, stuckAfter), held(1)), outcome{[]int{1, 1}, waking}},
		{"it does not become ready, and limits leave no other", limited(asleep(starting(1, 0, stuckAfter), held(1)), full("L")), outcome{[]int{1, 0}, waking}},
		{"a new leader does not know since when it starts", asleep(starting(1, 0, 0), held(1)), outcome{[]int{1, 0}, waking}},
		{"it is ready: the plan", asleep(load(20), has(0, 1), zero(5, time.Minute)), outcome{[]int{1, 1}, both}},
		{"the load is not known: as before", asleep(state(snapshot.Failed)), outcome{[]int{0, 0}, []Reason{NoMetrics, NoMetrics}}},
		{"the load is not known, and a request waits", asleep(state(snapshot.Failed), held(1)), outcome{[]int{0, 1}, []Reason{NoMetrics, Waking}}},
		{"the load is not known, and it starts", asleep(state(snapshot.Failed), held(1), starting(1, 0, time.Minute)), outcome{[]int{1, 0}, []Reason{NoMetrics, NoMetrics}}},
		{
			"the load is not known, and one was started since the last decision", asleep(state(snapshot.Failed), held(1), starting(1, 0, 0), both0),
			outcome{[]int{1, 0}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			"the load is not known, and one that was started since the last decision is ready", asleep(state(snapshot.Failed), held(1), has(1, 0), both0),
			outcome{[]int{1, 0}, []Reason{NoMetrics, NoMetrics}},
		},
		{
			"the load is not known, and it does not become ready", asleep(state(snapshot.Failed), held(1), starting(1, 0, stuckAfter)),
			outcome{[]int{1, 1}, []Reason{NoMetrics, Waking}},
		},
		{
			"nothing would see a request", asleep(state(snapshot.Missing), func(g *snapshot.Group) { g.Zero.Watched = false }),
			outcome{[]int{0, 1}, []Reason{NoMetrics, Waking}},
		},
		{"the stream of holds would", asleep(state(snapshot.Missing)), outcome{[]int{0, 0}, []Reason{NoMetrics, NoMetrics}}},
		{"a new leader", asleep(func(g *snapshot.Group) { g.Zero.Changed = noon }), outcome{[]int{0, 0}, both}},
		{"nothing was learned of any, and they go", asleep(has(1, 1), zero(0, time.Hour), big(unmeasured), small(unmeasured)), outcome{[]int{0, 0}, both}},
		{"nothing was learned, and they stay", asleep(has(1, 1), zero(1, time.Hour), big(unmeasured), small(unmeasured)), outcome{[]int{1, 1}, []Reason{NoCapacity, NoCapacity}}},
		{"KEDA has not removed it yet", asleep(has(1, 1), both0), outcome{[]int{0, 0}, both}},
		{"nor that of which nothing is known", asleep(has(1, 1), both0, big(unmeasured), small(unmeasured)), outcome{[]int{0, 0}, both}},
		{"which serves a request meanwhile", asleep(has(1, 0), both0, big(unmeasured), small(unmeasured), zero(1, 0)), outcome{[]int{1, 0}, []Reason{Probing, NoCapacity}}},
		{"a minimum of one never sleeps", asleep(held(1), big(func(v *snapshot.Variant) { v.Min = 1 })), outcome{[]int{1, 0}, []Reason{Retained, Optimal}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
		})
	}
}

// TestDecide_NeverZero: each rule keeps a replica by itself, and says why.
func TestDecide_NeverZero(t *testing.T) {
	t.Parallel()
	idle := func(change func(g *snapshot.Group)) *snapshot.Snapshot {
		return one(load(0), has(1, 1), zero(0, 10*time.Minute), change)
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want string // empty: no replica stays
	}{
		{"nothing", idle(func(*snapshot.Group) {}), ""},
		{"requests are not known", idle(func(g *snapshot.Group) { g.Zero.Requests, g.Zero.RequestsMessage = nil, "lost" }), "the requests of the last 10m0s are not known: lost"},
		{"a request", idle(func(g *snapshot.Group) { *g.Zero.Requests = 0.5 }), "the last request was less than 10m0s ago"},
		{"a request waits", idle(queue(1)), "1 replica in the cheapest plan"},
		{"a request waited", idle(held(1)), "requests wait"},
		{"it serves for a short time", idle(func(g *snapshot.Group) { g.Zero.ServesSince = noon.Add(-9 * time.Minute) }), "the first replica has been ready for less than 10m0s"},
		{"a new leader", idle(func(g *snapshot.Group) { g.Zero.Changed = noon }), "another replica of this program led"},
		{"no wake source", idle(func(g *snapshot.Group) { g.Zero.Watched = false }), "nothing would see a request that waits: let Prometheus scrape"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(tt.give)
			require.NoError(t, err)
			v := d.Groups[0].Variants[1]
			assert.Zero(t, d.Groups[0].Variants[0].Desired)
			assert.Equal(t, tt.want != "", v.Desired == 1)
			assert.Contains(t, v.Message, tt.want)
		})
	}
	failed := idle(func(g *snapshot.Group) { g.Load.State = snapshot.Failed })
	assert.Equal(t, outcome{[]int{1, 1}, []Reason{NoMetrics, NoMetrics}}, decide(t, failed), "while Prometheus does not answer")
}

// TestDecide_SharedPool: as long as an InferencePool has a server of another model, no request waits in its picker.
func TestDecide_SharedPool(t *testing.T) {
	t.Parallel()
	shared := func(change func(g *snapshot.Group), give *snapshot.Snapshot) *snapshot.Snapshot {
		other := one(load(1), has(1, 0)).Groups[0]
		other.Model = "other"
		change(&other)
		for i := range other.Variants {
			other.Variants[i].Name += "-other"
		}
		give.Groups = append(give.Groups, other)
		return give
	}
	awake := func() *snapshot.Snapshot { return one(load(0), has(0, 1), zero(0, time.Hour)) }
	same := func(*snapshot.Group) {}
	gone := func(g *snapshot.Group) { has(0, 0)(g) }
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want int // replicas of small
	}{
		{"the other one has a server", shared(same, awake()), 1},
		{"it has none", shared(gone, awake()), 0},
		{"it has one in another pool", shared(func(g *snapshot.Group) { g.Pool = "other" }, awake()), 0},
		{"it has one in another namespace", shared(func(g *snapshot.Group) { g.Namespace = "other" }, awake()), 0},
		{"nobody has a pool", shared(func(g *snapshot.Group) { g.Pool = "" }, awake()), 0},
		{"the other one woke", shared(same, asleep()), 1},
		{"both sleep", shared(gone, asleep()), 0},
	}
	tests[4].give.Groups[0].Pool = ""
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, d.Groups[0].Variants[1].Desired)
		})
	}
	d, err := Decide(tests[0].give)
	require.NoError(t, err)
	assert.Contains(t, d.Groups[0].Variants[1].Message, `the InferencePool has servers of model "other", too. Give each model a pool of its own`)
}

// TestDecide_Standby: what would start is known before a request waits.
func TestDecide_Standby(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		give *snapshot.Snapshot
		want string
	}{
		{"asleep", asleep(), "small"},
		{"while Prometheus does not answer", asleep(func(g *snapshot.Group) { g.Load.State = snapshot.Failed }), "small"},
		{"no room", limited(asleep(), snapshot.Limit{Name: "l", Unit: snapshot.Cost, Amount: 22e6}), ""},
		{"starting", asleep(starting(1, 0, 0)), ""},
		{"goes to zero now", one(load(0), has(1, 0), zero(0, time.Hour)), "small"},
		{"awake", one(zero(1, time.Hour), has(1, 0)), ""},
		{"never asleep", one(has(0, 0)), ""},
	} {
		d, err := Decide(tt.give)
		require.NoError(t, err)
		assert.Equal(t, tt.want, d.Groups[0].Standby, tt.name)
	}
}

// TestDecide_LimitsOfOthers: what other groups have counts for the room that a limit leaves.
func TestDecide_LimitsOfOthers(t *testing.T) {
	t.Parallel()
	s := asleep()
	s.Groups = append(s.Groups, one(has(0, 2), load(14), func(g *snapshot.Group) { g.Model = "n" }).Groups...)
	for i := range s.Groups[1].Variants {
		s.Groups[1].Variants[i].Name += "-n"
	}
	for amount, want := range map[int64]string{2: "big", 3: "small"} {
		d, err := Decide(limited(s, snapshot.Limit{Name: "l", Unit: snapshot.Cards, Accelerator: "L", Amount: amount}))
		require.NoError(t, err)
		assert.Equal(t, want, d.Groups[0].Standby)
	}
}

// TestDecide_StandbysFit: requests can wait for all sleeping models at once, so the limits hold for all standbys together, and for what was
// decided for others.
func TestDecide_StandbysFit(t *testing.T) {
	t.Parallel()
	s := asleep(big(func(v *snapshot.Variant) { v.Problem = &snapshot.Problem{Reason: "x"} }))
	for _, model := range []string{"n", "o"} {
		g := asleep(big(func(v *snapshot.Variant) { v.Problem = &snapshot.Problem{Reason: "x"} })).Groups[0]
		g.Model = model
		for i := range g.Variants {
			g.Variants[i].Name += "-" + model
		}
		s.Groups = append(s.Groups, g)
	}
	grows := one(load(7), has(0, 0), func(g *snapshot.Group) { g.Model = "grows" }).Groups[0]
	for i := range grows.Variants {
		grows.Variants[i].Name += "-grows"
	}
	s.Groups = append(s.Groups, grows)
	for amount, want := range map[int64][]string{10: {"small", "small-n", "small-o"}, 3: {"small", "small-n", ""}, 2: {"small", "", ""}, 1: {"", "", ""}} {
		d, err := Decide(limited(s, snapshot.Limit{Name: "l", Unit: snapshot.Cards, Accelerator: "L", Amount: amount}))
		require.NoError(t, err)
		assert.Equal(t, 1, d.Groups[3].Variants[1].Desired)
		assert.Equal(t, want, []string{d.Groups[0].Standby, d.Groups[1].Standby, d.Groups[2].Standby}, amount)
	}
	empty := asleep()
	empty.Groups[0].Variants = nil
	d, err := Decide(empty)
	require.NoError(t, err)
	assert.Empty(t, d.Groups[0].Standby)
}

// TestDecide_Warm: a replica of small costs 23 and starts in six minutes. One wake-up an hour costs 30 where an hour of waiting costs 300.
func TestDecide_Warm(t *testing.T) {
	t.Parallel()
	give := func(wakeUps float64, waitingCost int64, change ...func(g *snapshot.Group)) *snapshot.Snapshot {
		all := append([]func(g *snapshot.Group){load(0), has(0, 1), zero(0, time.Hour), starts(0, 6*time.Minute), func(g *snapshot.Group) {
			g.Zero.WakeUps, g.Zero.WaitingCost = wakeUps, waitingCost*1e6
		}}, change...)
		return one(all...)
	}
	for _, tt := range []struct {
		name string
		give *snapshot.Snapshot
		want int
		sum  string // empty: none
	}{
		{"waking costs more", give(1, 300), 1, "1.00 wake-ups/h of small, each of 6m0s, cost 30/h, and a replica 23/h"},
		{"waking costs less", give(0.5, 300), 0, "0.50 wake-ups/h of small, each of 6m0s, cost 15/h, and a replica 23/h"},
		{"it is off", give(1, 0), 0, ""},
		{"nothing is known of wake-ups", give(0, 300), 0, "0.00 wake-ups/h of small, each of 6m0s, cost 0/h, and a replica 23/h"},
		{"nor of starts", give(1, 300, starts(0, 0)), 0, ""},
		{"zero is not enabled", give(1, 300, func(g *snapshot.Group) { g.Zero.Enabled = false }), 1, ""},
		{"it has none: it wakes for a request", give(1, 300, has(0, 0)), 0, "1.00 wake-ups/h of small, each of 6m0s, cost 30/h, and a replica 23/h"},
		{"a cost that cannot be", give(1e300, 300), 1, "any"},
	} {
		d, err := Decide(tt.give)
		require.NoError(t, err)
		group := d.Groups[0]
		assert.Equal(t, tt.want, group.Variants[1].Desired, tt.name)
		if tt.sum == "" {
			assert.Nil(t, group.Warm, tt.name)
			continue
		}
		require.NotNil(t, group.Warm, tt.name)
		if tt.give.Groups[0].Zero.WakeUps < 1e9 {
			assert.Equal(t, tt.sum, group.Warm.String(), tt.name)
		}
		if tt.want == 1 {
			assert.Equal(t, Retained, group.Variants[1].Reason)
			assert.Contains(t, group.Variants[1].Message, "waking costs more")
		}
	}
}
