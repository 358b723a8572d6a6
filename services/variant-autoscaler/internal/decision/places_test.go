package decision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// on lets pods of both variants use nodes with these free cards. A pod of big has two cards, one of small has one.
func on(s *snapshot.Snapshot, bigs, smalls int64, free ...snapshot.FreeNodes) *snapshot.Snapshot {
	s.Nodes = []snapshot.NodeSet{{Name: "nodes with nvidia.com/gpu (H100)", Nodes: 4, Free: free}}
	v := s.Groups[0].Variants
	v[0].Pods = &snapshot.Pods{Cards: 2, Count: 1, Placed: bigs}
	v[1].Pods = &snapshot.Pods{Cards: 1, Count: 1, Placed: smalls}
	return s
}

func free(cards, nodes int64) snapshot.FreeNodes {
	return snapshot.FreeNodes{Cards: cards, Nodes: nodes}
}

// TestNodes has a load of 100 requests/s, for which the cheapest plan is 7 replicas of big and none of small, or as many as fit.
func TestNodes(t *testing.T) {
	t.Parallel()
	binding := []Reason{LimitBinding, LimitBinding}
	onlyBig := func(s *snapshot.Snapshot) *snapshot.Snapshot {
		s.Groups[0].Variants[1].Max, s.Groups[0].Variants[1].Problem = 0, &snapshot.Problem{Reason: "x"}
		return s
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want outcome
	}{
		{"room for all", on(one(load(100)), 0, 0, free(8, 4)), outcome{[]int{7, 0}, []Reason{Optimal, Optimal}}},
		{"a pod needs one node: single free cards are none for two", on(one(load(100)), 0, 0, free(1, 4)), outcome{[]int{0, 4}, binding}},
		{"nodes with an odd number of free cards", on(one(load(100)), 0, 0, free(3, 4)), outcome{[]int{4, 0}, []Reason{LimitBinding, NodesFull}}},
		{"placed replicas stay", on(one(load(100), has(3, 0)), 3, 0), outcome{[]int{3, 0}, binding}},
		{
			"another tenant took the cards: replicas that are Pending go, those that run stay", on(one(load(100), has(6, 0)), 3, 0, free(1, 1)),
			outcome{[]int{3, 1}, binding},
		},
		{"more run than the plan has", on(one(load(15), has(3, 0)), 3, 0), outcome{[]int{1, 0}, []Reason{Optimal, Optimal}}},
		{
			"cards of replicas that go are not free yet", on(one(load(15), has(0, 3), small(func(v *snapshot.Variant) { v.Measured.Proven = 5e6; v.Min = 1; v.Max = 1 })), 0, 3, free(1, 4)),
			outcome{[]int{0, 1}, []Reason{LimitBinding, LimitBinding}},
		},
		{"minimums are there, whatever fits", on(one(load(100), big(func(v *snapshot.Variant) { v.Min = 2 })), 0, 0, free(1, 4)), outcome{[]int{2, 4}, binding}},
		{"no nodes at all", on(one(load(100)), 0, 0), outcome{[]int{0, 0}, binding}},
		{"a node autoscaler adds nodes", elastic(on(one(load(100)), 0, 0)), outcome{[]int{7, 0}, []Reason{Optimal, Optimal}}},
		{"a variant that nodes do not limit", func() *snapshot.Snapshot {
			s := on(one(load(100)), 0, 0)
			s.Groups[0].Variants[0].Pods = nil
			return s
		}(), outcome{[]int{7, 0}, []Reason{Optimal, Optimal}}},
		{"groups of pods", func() *snapshot.Snapshot {
			s := onlyBig(on(one(load(100)), 4, 0, free(2, 9)))
			s.Groups[0].Variants[0].Pods.Count = 3 // one and a third replica run, and nine pods fit
			return s
		}(), outcome{[]int{4, 0}, []Reason{LimitBinding, Excluded}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
		})
	}
}

func elastic(s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Nodes[0].Elastic = true
	return s
}

// TestSmallPodsWaitForLargeOnes: the scheduler could put small pods on the nodes that large ones need. They come a pass later.
func TestSmallPodsWaitForLargeOnes(t *testing.T) {
	t.Parallel()
	s := on(one(load(44)), 0, 0, free(2, 2), free(1, 1))
	s.Groups[0].Variants[0].Max = 2
	d, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{d.Groups[0].Variants[0].Planned, d.Groups[0].Variants[1].Planned})
	assert.Equal(t, []int{2, 0}, []int{d.Groups[0].Variants[0].Desired, d.Groups[0].Variants[1].Desired})
	assert.Equal(t, NodesFull, d.Groups[0].Variants[1].Reason)
	assert.Equal(t, "The plan has 1 replica; 0 for now: the nodes with nvidia.com/gpu (H100) have 5 free places for pods of 1 card. Add nodes, or free cards of them",
		d.Groups[0].Variants[1].Message)

	s = on(one(load(44), has(2, 0)), 2, 0, free(1, 1))
	s.Groups[0].Variants[0].Max = 2
	assert.Equal(t, []int{2, 1}, decide(t, s).Desired)
}

// TestReplicasOfAStableLoadFit: pods of two and of three cards are each within their places, and not both fit. Neither the replica that
// meets the targets nor the one that only serves a stable load counts as there.
func TestReplicasOfAStableLoadFit(t *testing.T) {
	t.Parallel()
	single := func(v *snapshot.Variant) { v.Max = 1 }
	s := on(one(load(100), big(single), small(strict(7)), small(single)), 0, 0, free(4, 1))
	s.Groups[0].Variants[1].Pods.Cards = 3
	d, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 1}, []int{d.Groups[0].Variants[0].Planned, d.Groups[0].Variants[1].Planned})
	assert.Equal(t, []int{0, 1}, []int{d.Groups[0].Variants[0].Desired, d.Groups[0].Variants[1].Desired})
}

// TestFirstReplicaNeedsANode: a replica that is to show what it serves does not wait for cards that nobody has.
func TestFirstReplicaNeedsANode(t *testing.T) {
	t.Parallel()
	unknown := func(v *snapshot.Variant) { v.Measured = nil }
	give := func(nodes ...snapshot.FreeNodes) *snapshot.Snapshot {
		s := on(one(big(unknown), small(unknown)), 0, 0, nodes...)
		s.Groups[0].Variants[0].Pods.Cards = 1
		return s
	}
	assert.Equal(t, outcome{[]int{0, 1}, []Reason{NoCapacity, Probing}}, decide(t, give(free(1, 1))))
	assert.Equal(t, outcome{[]int{0, 0}, []Reason{NoCapacity, NodesFull}}, decide(t, give()))
}

// TestImportantModelGetsCards: a model with a better priority gets the cards of another one as soon as its pods are gone.
func TestImportantModelGetsCards(t *testing.T) {
	t.Parallel()
	world := func(now, placed int64, nodes ...snapshot.FreeNodes) *snapshot.Snapshot {
		s := on(one(load(30)), 0, 0, nodes...)
		other := one(load(30), has(int(now), 0)).Groups[0]
		other.Model, other.Priority = "other", 2
		other.Variants[0].Name, other.Variants[1].Name = "other-big", "other-small"
		other.Variants[0].Pods = &snapshot.Pods{Cards: 2, Count: 1, Placed: placed}
		s.Groups = append(s.Groups, other)
		for g := range s.Groups {
			s.Groups[g].Variants[1].Pods = nil
			s.Groups[g].Variants[1].Max, s.Groups[g].Variants[1].Measured, s.Groups[g].Variants[1].Problem = 1, nil, &snapshot.Problem{Reason: "x"}
		}
		return s
	}
	desired := func(s *snapshot.Snapshot) []int {
		d, err := Decide(s)
		require.NoError(t, err)
		return []int{d.Groups[0].Variants[0].Desired, d.Groups[1].Variants[0].Desired}
	}
	assert.Equal(t, []int{0, 0}, desired(world(2, 2)), "its pods go first")
	assert.Equal(t, []int{1, 0}, desired(world(0, 1, free(2, 1))), "one of them still ends")
	assert.Equal(t, []int{2, 0}, desired(world(0, 0, free(2, 2))))
}

// TestOneMore: another place changes what the explanation says it does.
func TestOneMore(t *testing.T) {
	t.Parallel()
	s := limited(on(one(load(100)), 0, 0, free(1, 4)), snapshot.Limit{Name: "few", Unit: snapshot.Cards, Accelerator: "L", Amount: 3})
	before, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, []Binding{
		{Name: "few"}, {Name: "nodes with nvidia.com/gpu (H100) for pods of 1 card or more", Limit: -1, Cards: 1},
		{Name: "nodes with nvidia.com/gpu (H100) for pods of 2 cards or more", Limit: -1, Cards: 2},
	}, before.Binding)
	for i, want := range []int64{7, 0, 15} {
		after, err := Decide(WithLimitRaised(s, &before.Binding[i]))
		require.NoError(t, err)
		assert.InDelta(t, want, float64(after.Groups[0].Share-before.Groups[0].Share)/1e4, 1e-3)
	}
	assert.Equal(t, []snapshot.FreeNodes{free(1, 4)}, s.Nodes[0].Free, "the snapshot is as before")
	assert.EqualValues(t, 3, s.Limits[0].Amount)
}

// TestInvalidNodes: a snapshot can come from a file that somebody wrote.
func TestInvalidNodes(t *testing.T) {
	t.Parallel()
	for _, change := range []func(s *snapshot.Snapshot){
		func(s *snapshot.Snapshot) { s.Nodes[0].Within = []int{1} },
		func(s *snapshot.Snapshot) { s.Nodes[0].Overlaps = []int{-1} },
		func(s *snapshot.Snapshot) { s.Nodes[0].Free = []snapshot.FreeNodes{free(-1, 1)} },
		func(s *snapshot.Snapshot) { s.Nodes[0].Free = []snapshot.FreeNodes{free(1, 1<<40)} },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Set = 1 },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Cards = 0 },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Count = 0 },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Placed = -1 },
	} {
		s := on(one(), 0, 0)
		change(s)
		_, err := Decide(s)
		require.ErrorContains(t, err, "snapshot: ")
	}
}
