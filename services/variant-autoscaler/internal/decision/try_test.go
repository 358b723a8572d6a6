package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// trials permits trials.
func trials(s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Settings.Trials = true
	return s
}

// TestDecide_Trial: big serves the load, and nothing is known of small.
func TestDecide_Trial(t *testing.T) {
	t.Parallel()
	unknown := small(func(v *snapshot.Variant) { v.Measured = nil })
	cost := func(units int64) func(g *snapshot.Group) {
		return small(func(v *snapshot.Variant) { v.Cost = units * 1e6 })
	}
	tried := func(ago time.Duration, trying bool) func(g *snapshot.Group) {
		return small(func(v *snapshot.Variant) { v.Tried, v.Trying = noon.Add(-ago), trying })
	}
	third := func(g *snapshot.Group) {
		g.Variants = append(g.Variants, snapshot.Variant{Namespace: "ns", Name: "tiny", Accelerator: "T", Cards: 1, Cost: 1e6, Max: 10})
	}
	problem := func(v *snapshot.Variant) { v.Problem = &snapshot.Problem{Reason: "TargetNotFound"} }
	unmeasured := func(v *snapshot.Variant) { v.Measured = nil }
	cheap := func(g *snapshot.Group) {
		g.Variants = append(g.Variants, snapshot.Variant{Namespace: "ns", Name: "tiny", Accelerator: "T", Cards: 1, Cost: 20e6, Max: 10, Measured: &snapshot.Measured{
			Proven: 20e6, Input: 100, Output: 100, Source: string(FromEngine), Samples: 8,
		}})
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want int // replicas of small
		why  Reason
	}{
		{"a cheaper one is tried", trials(one(has(2, 0), unknown)), 1, Probing},
		{"not if nobody wants it", one(has(2, 0), unknown), 0, NoCapacity},
		{"not if it is dearer", trials(one(load(50), has(4, 0), unknown, cost(41))), 0, NoCapacity},
		{"not if it costs more than half of the plan", trials(one(load(14), has(1, 0), unknown)), 0, NoCapacity},
		{"nor without load", trials(one(load(0), has(1, 0), unknown, cost(5))), 0, NoCapacity},
		{"nor with a problem", trials(one(has(2, 0), unknown, small(problem))), 0, Excluded},
		{"nor beyond a limit", limited(trials(one(has(2, 0), unknown)), snapshot.Limit{Name: "l", Unit: snapshot.Cards, Accelerator: "L"}), 0, NoCapacity},
		{"nor while the others cannot serve: then it is needed", trials(one(load(1000), has(10, 0), unknown)), 1, Probing},
		{"nor beside another trial", trials(one(has(2, 0), unknown, third, func(g *snapshot.Group) {
			v := &g.Variants[2]
			v.Now, v.Previous, v.Decided, v.Tried, v.Trying = 1, 1, true, noon, true
		})), 0, NoCapacity},
		{"the cheapest comes first", trials(one(has(2, 0), unknown, third)), 0, NoCapacity},
		{"it goes on", trials(one(has(2, 1), unknown, tried(29*time.Minute, true))), 1, Probing},
		{"it ends", trials(one(has(2, 1), unknown, tried(trialTime, true))), 0, NoCapacity},
		{"it ends when nobody wants it any more", one(has(2, 1), unknown, tried(time.Minute, true)), 0, NoCapacity},
		{"not while the others cannot serve", trials(one(load(1000), has(10, 1), unknown, tried(trialTime, true))), 1, Probing},
		{"it is not tried again", trials(one(has(2, 0), unknown, tried(time.Hour, false))), 0, NoCapacity},
		{"nor because a variant with a problem is dearer", trials(one(load(50), has(4, 0), unknown, big(problem), cheap)), 0, NoCapacity},
		{"nor because one that is not known is dearer", trials(one(load(50), has(4, 0), unknown, big(unmeasured), cheap)), 0, NoCapacity},
		{"nor while somebody else runs it", trials(one(has(2, 0), unknown, small(func(v *snapshot.Variant) { v.Now = 1 }))), 0, NoCapacity},
		{"a problem takes it out of a trial", trials(one(has(2, 1), unknown, tried(trialTime, true), small(problem))), 1, Excluded},
		{"a replica of somebody else stays", trials(one(has(2, 1), unknown)), 1, NoCapacity},
		{"it has shown what it serves", trials(one(load(20), has(2, 1), tried(time.Hour, true))), 1, Optimal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(tt.give)
			require.NoError(t, err)
			v := d.Groups[0].Variants[1]
			assert.Equal(t, tt.want, v.Desired, v.Message)
			assert.Equal(t, tt.why, v.Reason, v.Message)
			assert.LessOrEqual(t, v.Wanted, v.Desired, "what ends holds no replica later")
		})
	}
}

// TestDecide_OnlyOfWhatIsKnown: a plan is not called the cheapest one if the capacity of a variant is not known.
func TestDecide_OnlyOfWhatIsKnown(t *testing.T) {
	t.Parallel()
	message := func(s *snapshot.Snapshot) string {
		d, err := Decide(s)
		require.NoError(t, err)
		return d.Groups[0].Variants[0].Message
	}
	const known = "in the cheapest plan that serves 100.0 % of the demand of 20.000 requests/s"
	assert.Equal(t, "1 replica "+known, message(one()))
	assert.Equal(t, "2 replicas "+known+" with the variants whose capacity is known", message(one(small(func(v *snapshot.Variant) { v.Measured = nil }))))
	problem := small(func(v *snapshot.Variant) { v.Measured, v.Problem = nil, &snapshot.Problem{Reason: "TargetNotFound"} })
	assert.Equal(t, "2 replicas "+known, message(one(problem)), "a variant with a problem is none")
}

// TestDecide_NotPlanned: messages do not say that replicas are kept which do not exist.
func TestDecide_NotPlanned(t *testing.T) {
	t.Parallel()
	minimum := small(func(v *snapshot.Variant) { v.Measured, v.Min = nil, 1 })
	unknown := func(g *snapshot.Group) { g.Load.State, g.Load.Message = snapshot.Missing, "no answer" }
	before := small(func(v *snapshot.Variant) { v.Previous, v.Decided = 4, true })
	for _, tt := range []struct {
		name string
		give *snapshot.Snapshot
		want string
	}{
		{"its minimum", one(minimum), "Asked for 1 replica, the minimum: nothing says what one serves"},
		{"what it has", one(has(0, 1), minimum), "Kept 1 replica: nothing says what one serves"},
		{"its minimum without metrics", one(minimum, unknown), "Asked for 1 replica, the minimum, because the load is not known: no answer"},
		{"its last decision without metrics", one(before, unknown), "Kept the last decision, 4 replicas, because the load is not known: no answer"},
	} {
		d, err := Decide(tt.give)
		require.NoError(t, err)
		assert.Contains(t, d.Groups[0].Variants[1].Message, tt.want, tt.name)
	}
}

// TestDecide_Excluded: a variant with a problem gets no replica from its minimum, and none of its replicas are in the sums.
func TestDecide_Excluded(t *testing.T) {
	t.Parallel()
	problem := func(v *snapshot.Variant) {
		v.Problem, v.Min = &snapshot.Problem{Reason: "TargetNotFound", Message: "Deployment x does not exist"}, 1
	}
	for _, tt := range []struct {
		name    string
		give    *snapshot.Snapshot
		desired int
		message string
		cost    int64
	}{
		{"no replicas", one(small(problem), func(g *snapshot.Group) { g.Note = "no class" }), 0, "Takes no part: Deployment x does not exist", 80e6},
		{"replicas", one(small(problem), small(func(v *snapshot.Variant) { v.Now = 3 })), 3, "Kept 3 replicas: Deployment x does not exist", 80e6},
		{"a decision before", one(small(problem), small(func(v *snapshot.Variant) { v.Previous, v.Decided = 2, true })), 2, "Kept the last decision, 2 replicas: Deployment x does not exist", 80e6},
		{"all have one, and the load is not known", one(big(problem), small(problem), func(g *snapshot.Group) { g.Load.State = snapshot.Missing }), 0, "Takes no part: Deployment x does not exist", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := Decide(tt.give)
			require.NoError(t, err)
			v := d.Groups[0].Variants[1]
			assert.Equal(t, tt.desired, v.Desired)
			assert.Equal(t, tt.message, v.Message, "without the note of the class")
			assert.Equal(t, []int64{tt.cost, tt.cost, tt.cost}, []int64{d.Cost, d.Bound, d.Acted})
		})
	}
}
