package inventory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// node returns a ready node with NVIDIA cards.
func node(name string, cards int64, labels ...string) *inventory.Node {
	n := &inventory.Node{Name: name, Ready: true, Allocatable: inventory.Cards{cards}, Labels: map[string]string{}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		n.Labels[key] = value
	}
	return n
}

func shape(cards int64, placements ...inventory.Placement) inventory.Shape {
	return inventory.Shape{Cards: cards, Pods: 1, Placement: inventory.Placements(placements).Key()}
}

// with returns a node after a change.
func with(n *inventory.Node, change func(n *inventory.Node)) *inventory.Node {
	change(n)
	return n
}

// read returns a placement from the JSON of a pod's spec.
func read(t *testing.T, text string) inventory.Placement {
	t.Helper()
	var p inventory.Placement
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	return p
}

// TestNodesOfAPod compares the choice of a node with that of the scheduler.
func TestNodesOfAPod(t *testing.T) {
	t.Parallel()
	taint := func(key, value string, effect corev1.TaintEffect) func(n *inventory.Node) {
		return func(n *inventory.Node) {
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
		}
	}
	plain := node("n", 8, "gpu=H100", "generation=9")
	tests := []struct {
		name      string
		node      *inventory.Node
		placement string
		want      bool
	}{
		{"no wish", plain, `{}`, true},
		{"no cards", node("n", 0), `{}`, false},
		{"not ready", with(node("n", 8), func(n *inventory.Node) { n.Ready = false }), `{"tolerations": [{"operator": "Exists"}]}`, false},
		{"cordoned", with(node("n", 8), func(n *inventory.Node) { n.Unschedulable = true }), `{}`, false},
		{"cordoned, tolerated", with(node("n", 8), func(n *inventory.Node) { n.Unschedulable = true }), `{"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}`, true},
		{"taint", with(node("n", 8), taint("gpu", "yes", "NoSchedule")), `{}`, false},
		{"taint that evicts", with(node("n", 8), taint("gpu", "yes", "NoExecute")), `{}`, false},
		{"taint that only prefers", with(node("n", 8), taint("gpu", "yes", "PreferNoSchedule")), `{}`, true},
		{"tolerated", with(node("n", 8), taint("gpu", "yes", "NoSchedule")), `{"tolerations": [{"key": "gpu", "value": "yes"}]}`, true},
		{"tolerated by existence", with(node("n", 8), taint("gpu", "yes", "NoSchedule")), `{"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}`, true},
		{"tolerates another value", with(node("n", 8), taint("gpu", "yes", "NoSchedule")), `{"tolerations": [{"key": "gpu", "value": "no"}]}`, false},
		{"tolerates another effect", with(node("n", 8), taint("gpu", "yes", "NoSchedule")), `{"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]}`, false},
		{"compares numbers", with(node("n", 8), taint("gpu", "3", "NoSchedule")), `{"tolerations": [{"key": "gpu", "operator": "Gt", "value": "2"}]}`, false},
		{"one of two taints", with(with(node("n", 8), taint("a", "", "NoSchedule")), taint("b", "", "NoSchedule")), `{"tolerations": [{"key": "a", "operator": "Exists"}]}`, false},
		{"label", plain, `{"nodeSelector": {"gpu": "H100"}}`, true},
		{"another label", plain, `{"nodeSelector": {"gpu": "A100"}}`, false},
		{"In", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["A100", "H100"]}]}]}`, true},
		{"In, absent", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "In", "values": [""]}]}]}`, false},
		{"NotIn", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["H100"]}]}]}`, false},
		{"NotIn, absent", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["H100"]}]}]}`, true},
		{"Exists", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}`, true},
		{"DoesNotExist", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]}`, false},
		{"Gt", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["8"]}]}]}`, true},
		{"Lt", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "generation", "operator": "Lt", "values": ["8"]}]}]}`, false},
		{"Gt of a text", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Gt", "values": ["8"]}]}]}`, false},
		{"unknown operator", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Like", "values": ["H*"]}]}]}`, false},
		{"one of two terms", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}`, true},
		{"one of two expressions", plain, `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}]}]}`, false},
		{"another name", plain, `{"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]}`, false},
		{"empty term", plain, `{"nodeSelectorTerms": [{}]}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := inventory.Build(&inventory.Input{Nodes: []*inventory.Node{tt.node}, Variants: []inventory.Variant{{Shape: shape(1, read(t, tt.placement))}}})
			require.Nil(t, got.Uses[0].Problem)
			assert.Equal(t, tt.want, got.Sets[got.Uses[0].Set].Nodes == 1)
		})
	}
}

// TestFreeCards: pods of everybody hold cards until they are gone, and a variant has those that are its own.
func TestFreeCards(t *testing.T) {
	t.Parallel()
	got := inventory.Build(&inventory.Input{
		Nodes: []*inventory.Node{node("a", 8, "nvidia.com/gpu.product=H100"), node("b", 8), node("c", 8), node("d", 2)},
		Pods: []inventory.Pod{
			{Node: "a", Requests: inventory.Cards{4}, Variant: 0}, {Node: "a", Requests: inventory.Cards{1}, Variant: -1},
			{Node: "b", Requests: inventory.Cards{4}, Variant: 0, Terminating: true}, {Node: "c", Requests: inventory.Cards{0, 4}, Variant: -1},
			{Node: "d", Requests: inventory.Cards{3}, Variant: -1}, {Node: "gone", Requests: inventory.Cards{4}, Variant: 1},
		},
		Variants: []inventory.Variant{{Shape: shape(4), Replicas: 1}, {Shape: shape(2)}, {}},
	})
	require.Len(t, got.Sets, 1, "both variants can use all nodes")
	assert.Equal(t, snapshot.NodeSet{
		Name: "nodes with nvidia.com/gpu (H100)", Resource: "nvidia.com/gpu", Nodes: 4, Free: []snapshot.FreeNodes{{Cards: 3, Nodes: 1}, {Cards: 4, Nodes: 1}, {Cards: 8, Nodes: 1}},
	}, got.Sets[0])
	assert.Equal(t, []inventory.VariantUse{
		{Pods: snapshot.Pods{Cards: 4, Count: 1, Placed: 1}}, {Pods: snapshot.Pods{Cards: 2, Count: 1, Placed: 1}}, {Pods: snapshot.Pods{Set: -1}},
	}, got.Uses)
}

// TestRollingUpdate: a pod that ends keeps the place of its replacement, unless the workload shrinks or its node is lost.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		replicas int64
		ready    bool
		want     int64
	}{{3, true, 3}, {4, true, 3}, {2, true, 2}, {1, true, 2}, {3, false, 2}} {
		n := node("b", 8)
		n.Ready = tt.ready
		got := inventory.Build(&inventory.Input{
			Nodes: []*inventory.Node{node("a", 8), n},
			Pods: []inventory.Pod{
				{Node: "a", Requests: inventory.Cards{4}}, {Node: "a", Requests: inventory.Cards{4}}, {Node: "b", Requests: inventory.Cards{4}, Terminating: true},
			},
			Variants: []inventory.Variant{{Shape: shape(4), Replicas: tt.replicas}},
		})
		assert.Equal(t, tt.want, got.Uses[0].Placed, tt)
	}
}

// TestSets: variants share a set if they can use the same nodes, whatever they call their accelerators.
func TestSets(t *testing.T) {
	t.Parallel()
	selector := func(key, value string) inventory.Shape {
		return shape(1, inventory.Placement{Selector: map[string]string{key: value}})
	}
	amd := shape(1)
	amd.Resource = 1
	mixed := node("d", 8)
	mixed.Allocatable[1] = 4
	got := inventory.Build(&inventory.Input{
		Nodes: []*inventory.Node{node("a", 8, "gpu=H100", "zone=1"), node("b", 8, "gpu=H100", "zone=2", "fairlead.dev/elastic=true"), node("c", 8, "gpu=A100", "zone=1"), mixed},
		Variants: []inventory.Variant{
			{Shape: shape(1)}, {Shape: selector("gpu", "H100")}, {Shape: selector("zone", "1")}, {Shape: selector("gpu", "H100")}, {Shape: selector("gpu", "none")}, {Shape: amd},
		},
	})
	var sets []int
	for _, u := range got.Uses {
		sets = append(sets, u.Set)
	}
	assert.Equal(t, []int{0, 1, 2, 1, 3, 4}, sets)
	assert.Equal(t, []bool{true, true, false, false, false}, []bool{got.Sets[0].Elastic, got.Sets[1].Elastic, got.Sets[2].Elastic, got.Sets[3].Elastic, got.Sets[4].Elastic})
	assert.Equal(t, []int{0}, got.Sets[1].Within)
	assert.Equal(t, []int{0, 2}, got.Sets[1].Overlaps)
	assert.Equal(t, []int{1, 2}, got.Sets[0].Overlaps)
	assert.Empty(t, got.Sets[3].Nodes)
	assert.Equal(t, "amd.com/gpu", got.Sets[4].Resource)
	assert.Empty(t, got.Sets[4].Overlaps, "cards of another resource")
}

// TestElastic: a node stands for others of its kind, in whatever state it is itself.
func TestElastic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(n *inventory.Node)
		want   bool
	}{
		{"ready", func(*inventory.Node) {}, true},
		{"another value", func(n *inventory.Node) { n.Labels[inventory.LabelElastic] = "false" }, false},
		{"not ready", func(n *inventory.Node) {
			n.Ready, n.Taints = false, []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: "NoExecute"}}
		}, true},
		{"cordoned", func(n *inventory.Node) { n.Unschedulable = true }, true},
		{"a kind that the pods do not tolerate", func(n *inventory.Node) { n.Taints = []corev1.Taint{{Key: "spot", Effect: "NoSchedule"}} }, false},
		{"without cards", func(n *inventory.Node) { n.Allocatable = inventory.Cards{} }, false},
	} {
		n := with(node("a", 8, "fairlead.dev/elastic=true"), tt.change)
		got := inventory.Build(&inventory.Input{Nodes: []*inventory.Node{n, node("b", 8)}, Variants: []inventory.Variant{{Shape: shape(1)}}})
		assert.Equal(t, tt.want, got.Sets[0].Elastic, tt.name)
	}
}

// TestNumbersThatCannotBeTrue: they are a problem of the variants that could use the node, and of no other.
func TestNumbersThatCannotBeTrue(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]inventory.Input{
		"a node with a million cards":   {Nodes: []*inventory.Node{node("bad", 1_000_000, "gpu=H100"), node("good", 8, "gpu=A100")}},
		"a node without a number":       {Nodes: []*inventory.Node{node("bad", inventory.Unreadable, "gpu=H100"), node("good", 8, "gpu=A100")}},
		"a pod with a negative request": {Nodes: []*inventory.Node{node("bad", 8, "gpu=H100"), node("good", 8, "gpu=A100")}, Pods: []inventory.Pod{{Node: "bad", Requests: inventory.Cards{-4}, Variant: -1}}},
	} {
		for _, gpu := range []string{"H100", "A100"} {
			in.Variants = append(in.Variants, inventory.Variant{Shape: shape(1, inventory.Placement{Selector: map[string]string{"gpu": gpu}})})
		}
		got := inventory.Build(&in)
		require.NotNil(t, got.Uses[0].Problem, name)
		assert.Equal(t, snapshot.InventoryInvalid, got.Uses[0].Problem.Reason, name)
		assert.Contains(t, got.Uses[0].Problem.Message, "node bad, or a pod on it, has a number of nvidia.com/gpu that cannot be true", name)
		assert.Nil(t, got.Uses[1].Problem, name)
		assert.Equal(t, []snapshot.FreeNodes{{Cards: 8, Nodes: 1}}, got.Sets[got.Uses[1].Set].Free, name)
	}
}

func TestUnreadablePlacement(t *testing.T) {
	t.Parallel()
	long := inventory.Placement{Selector: map[string]string{"key": strings.Repeat("x", 20_000)}}
	for _, s := range []inventory.Shape{shape(1, inventory.Placement{Unreadable: "a field is a number"}), shape(1, long), {Cards: 1, Placement: "{"}} {
		got := inventory.Build(&inventory.Input{Nodes: []*inventory.Node{node("a", 8)}, Variants: []inventory.Variant{{Shape: s}, {Shape: shape(1)}}})
		require.NotNil(t, got.Uses[0].Problem)
		assert.Equal(t, snapshot.InvalidConfiguration, got.Uses[0].Problem.Reason)
		assert.Nil(t, got.Uses[1].Problem)
	}
}

// TestManyChoices: a tenant who asks for more different nodes than anybody needs loses its newest variants, and no other tenant does.
func TestManyChoices(t *testing.T) {
	t.Parallel()
	in := &inventory.Input{}
	choice := func(n int) inventory.Shape {
		return shape(1, inventory.Placement{Selector: map[string]string{"n": fmt.Sprint(n)}})
	}
	for n := range 100 {
		in.Nodes = append(in.Nodes, node(fmt.Sprint(n), 8, fmt.Sprintf("n=%d", n)))
		in.Variants = append(in.Variants, inventory.Variant{Namespace: "tenant", Shape: choice(n)})
	}
	in.Variants = append(in.Variants, inventory.Variant{Namespace: "tenant", Shape: choice(3)}, inventory.Variant{Namespace: "other", Shape: choice(99)})
	got := inventory.Build(in)
	assert.Nil(t, got.Uses[15].Problem)
	assert.Nil(t, got.Uses[100].Problem, "a choice that it has")
	assert.Nil(t, got.Uses[101].Problem)
	require.NotNil(t, got.Uses[16].Problem)
	assert.Equal(t, snapshot.LimitExceeded, got.Uses[16].Problem.Reason)
}

// FuzzBuild reads numbers, labels and placements of anybody. Free cards are never more than a node can have, and each variant has a set, a
// problem, or neither.
func FuzzBuild(f *testing.F) {
	f.Add(int64(8), int64(4), int64(1), `{}`, "a", "b")
	f.Add(int64(1e6), int64(-1), int64(1), `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["99999999999999999999"]}]}]}`, "a", "1")
	f.Add(int64(-1<<63), int64(1<<62), int64(1<<62), `{"tolerations": [{"operator": "Exists"}]}`, "fairlead.dev/elastic", "true")
	f.Fuzz(func(t *testing.T, allocatable, request, cards int64, placement, key, value string) {
		var p inventory.Placement
		if json.Unmarshal([]byte(placement), &p) != nil {
			t.Skip()
		}
		s := shape(max(cards, 0), p)
		got := inventory.Build(&inventory.Input{
			Nodes:    []*inventory.Node{node("a", allocatable, key+"="+value), node("b", 8)},
			Pods:     []inventory.Pod{{Node: "a", Requests: inventory.Cards{request}, Variant: 0}, {Node: "b", Requests: inventory.Cards{request}, Variant: -1}},
			Variants: []inventory.Variant{{Shape: s, Replicas: allocatable}, {Shape: shape(1)}},
		})
		for _, set := range got.Sets {
			for _, free := range set.Free {
				assert.True(t, free.Cards > 0 && free.Cards <= inventory.MaxNodeCards && free.Nodes > 0)
			}
		}
		for i, u := range got.Uses {
			assert.True(t, u.Set < len(got.Sets) && (u.Problem == nil || u.Set == -1), i)
			assert.True(t, u.Placed >= 0 && u.Placed <= 1, i)
		}
	})
}
