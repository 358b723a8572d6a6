package decision

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// cluster is nodes with fragments, pods of others, and variants whose pods a scheduler puts on nodes. It has the rules of the scheduler,
// but takes pods in any order, and puts each on any node that it fits on.
type cluster struct {
	*rand.Rand

	nodes    []*inventory.Node
	free     []int64
	variants []*tenant
	tiers    int // priorities of groups
	others   []inventory.Pod
}

// tenant is a variant of a cluster.
type tenant struct {
	cards, count int64
	zones        []string // that it may use
	replicas     int
	pods         []int // nodes
	group        int
}

func newCluster(r *rand.Rand, sizes []int64, zones int) *cluster {
	c := &cluster{Rand: r, tiers: 3}
	for n := range 200 {
		cards := []int64{4, 8}[r.IntN(2)]
		c.nodes = append(c.nodes, &inventory.Node{
			Name: fmt.Sprint(n), Ready: r.IntN(20) > 0, Allocatable: inventory.Cards{cards}, Labels: map[string]string{"zone": fmt.Sprint(r.IntN(zones))},
		})
		c.free = append(c.free, cards)
		if other := r.Int64N(cards + 1); r.IntN(4) > 0 {
			c.free[n] -= other
			c.others = append(c.others, inventory.Pod{Node: fmt.Sprint(n), Requests: inventory.Cards{other}, Variant: -1})
		}
	}
	for n := range 24 {
		v := &tenant{cards: sizes[r.IntN(len(sizes))], count: 1, group: n / 2}
		if r.IntN(8) == 0 {
			v.count = 2
		}
		for zone := range zones {
			if r.IntN(2) == 0 {
				v.zones = append(v.zones, fmt.Sprint(zone))
			}
		}
		c.variants = append(c.variants, v)
	}
	return c
}

// canUse reports whether pods of a variant can run on a node.
func (c *cluster) canUse(v *tenant, n int) bool {
	return c.nodes[n].Ready && (len(v.zones) == 0 || slices.Contains(v.zones, c.nodes[n].Labels["zone"]))
}

// schedule puts the pods that variants miss on nodes, and returns how many found none.
func (c *cluster) schedule() (pending int) {
	var queue []*tenant
	for _, v := range c.variants {
		for n := len(v.pods); n < v.replicas*int(v.count); n++ {
			queue = append(queue, v)
		}
	}
	c.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, v := range queue {
		placed := false
		for _, n := range c.Perm(len(c.nodes)) {
			if placed = c.canUse(v, n) && c.free[n] >= v.cards; placed {
				c.free[n] -= v.cards
				v.pods = append(v.pods, n)
				break
			}
		}
		if !placed {
			pending++
		}
	}
	return pending
}

// scale changes the replicas of a variant. It removes any of its pods.
func (c *cluster) scale(v *tenant, replicas int) {
	for v.replicas = replicas; len(v.pods) > replicas*int(v.count); {
		i := c.IntN(len(v.pods))
		c.free[v.pods[i]] += v.cards
		v.pods = slices.Delete(v.pods, i, i+1)
	}
}

// snapshot returns what a pass sees of the cluster under loads.
func (c *cluster) snapshot(loads []int64) *snapshot.Snapshot {
	in := &inventory.Input{Nodes: c.nodes, Pods: slices.Clone(c.others)}
	s := &snapshot.Snapshot{Time: noon, Settings: snapshot.Settings{Split: "capacity"}}
	for i, v := range c.variants {
		for _, n := range v.pods {
			in.Pods = append(in.Pods, inventory.Pod{Node: c.nodes[n].Name, Requests: inventory.Cards{v.cards}, Variant: i})
		}
		var p inventory.Placement
		if len(v.zones) > 0 {
			p.Terms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: v.zones}}}}
		}
		in.Variants = append(in.Variants, inventory.Variant{Replicas: int64(v.replicas), Shape: inventory.Shape{Cards: v.cards, Pods: v.count, Placement: inventory.Placements{p}.Key()}})
	}
	result := inventory.Build(in)
	for _, set := range result.Sets {
		built := snapshot.NodeSet{Nodes: set.Nodes, Within: set.Within, Overlaps: set.Overlaps}
		built.Free = append(built.Free, set.Free...)
		s.Nodes = append(s.Nodes, built)
	}
	for i, v := range c.variants {
		if v.group == len(s.Groups) {
			s.Groups = append(s.Groups, one(load(loads[v.group])).Groups[0])
			g := &s.Groups[v.group]
			g.Model, g.Priority, g.Variants = fmt.Sprint(v.group), 1+v.group%c.tiers, nil
		}
		built := one().Groups[0].Variants[i%2]
		built.Name, built.Max, built.Now, built.Ready = fmt.Sprint(i), 100, v.replicas, len(v.pods)/int(v.count)
		built.Pods = &snapshot.Pods{Set: result.Uses[i].Set, Cards: v.cards, Count: v.count, Placed: result.Uses[i].Placed}
		s.Groups[v.group].Variants = append(s.Groups[v.group].Variants, built)
	}
	return s
}

// TestNoPodIsPending: in clusters with fragments, whatever the scheduler does, each replica that a decision adds finds nodes.
func TestNoPodIsPending(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testlane.Repetitions(1, 500)) {
		r := rand.New(rand.NewPCG(seed, 1))
		sizes := [][]int64{{1, 2, 4, 8}, {1, 2, 3, 5, 8}, {2, 3}, {4}}[r.IntN(4)]
		c := newCluster(r, sizes, 1+r.IntN(4))
		loads, added := make([]int64, len(c.variants)/2), 0
		for pass := range 4 {
			for g := range loads {
				if pass%2 == 0 {
					loads[g] = r.Int64N(300)
				}
			}
			s := c.snapshot(loads)
			d, err := Decide(s)
			require.NoError(t, err)
			for i, v := range c.variants {
				desired := d.Groups[v.group].Variants[i%2].Desired
				added += max(desired-v.replicas, 0)
				c.scale(v, desired)
			}
			require.Zero(t, c.schedule(), "seed %d, pass %d", seed, pass)
		}
		assert.Positive(t, added)
	}
}

// TestPlanIsReached: if each size of pods divides the next one and all pods can use the same nodes, the plan fits, and is there after few
// passes.
func TestPlanIsReached(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testlane.Repetitions(1, 500)) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := newCluster(r, []int64{1, 2, 4}, 1)
		c.tiers = 1
		loads := make([]int64, len(c.variants)/2)
		for g := range loads {
			loads[g] = 600 + r.Int64N(300)
		}
		limiting := false
		for pass := 0; ; pass++ {
			d, err := Decide(c.snapshot(loads))
			require.NoError(t, err)
			missing := 0
			for i, v := range c.variants {
				n := &d.Groups[v.group].Variants[i%2]
				missing += max(n.Wanted-v.replicas, 0)
				c.scale(v, n.Desired)
			}
			limiting = limiting || len(d.Binding) > 0
			require.Zero(t, c.schedule())
			if missing == 0 {
				break
			}
			require.Less(t, pass, 6, "seed %d: %d replicas are missing", seed, missing)
		}
		assert.True(t, limiting, "the cluster is too small for the loads")
	}
}
