package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// owner returns a ClusterQueue or a Cohort with a quota in flavor f.
func owner(name, parent string, nominal, used int64) *QuotaOwner {
	return &QuotaOwner{Name: name, Parent: parent, Quotas: []FlavorQuota{{Flavor: "f", Nominal: nominal, Used: used}}}
}

// waiting returns an Input with a variant in a ClusterQueue whose flavor has no labels.
func waiting(k Kueue) *Input {
	k.Flavors = append(k.Flavors, &Flavor{Name: "f"})
	return &Input{
		Nodes:    []*Node{{Name: "a", Ready: true, Allocatable: Cards{8}, Labels: map[string]string{"gpu": "H100", "pool": "x"}}, {Name: "b", Ready: true, Allocatable: Cards{4}}},
		Variants: []Variant{{Namespace: "ns", Shape: Shape{Cards: 2, Pods: 1, Placement: Placements{{}}.Key()}, Queue: &LocalQueue{Namespace: "ns", Name: "l", ClusterQueue: "q"}, Replicas: 3}},
		Kueue:    k,
	}
}

func TestQuotasOfACohort(t *testing.T) {
	t.Parallel()
	lender := owner("lender", "inner", 10, 7)
	lender.Quotas[0].Lending = new(int64(4)) // it keeps 6, and uses one card beyond them
	root := owner("root", "", 3, 0)
	inner := owner("inner", "root", 2, 0)
	inner.Quotas[0].Borrowing = new(int64(5))
	other := owner("other", "branch", 20, 5)
	r := Build(waiting(Kueue{
		ClusterQueues: []*QuotaOwner{owner("q", "inner", 8, 1), lender, other, owner("alone", "", 100, 50)},
		Cohorts:       []*QuotaOwner{root, inner, {Name: "branch", Parent: "root"}},
	}))
	assert.Equal(t, []snapshot.Quota{
		{Name: "quota of Cohort root for nvidia.com/gpu of flavor f", Parent: -1, Nominal: 23, Used: 5},
		{Name: "quota of Cohort inner for nvidia.com/gpu of flavor f", Parent: 0, Nominal: 6, Used: 1, Borrowing: new(int64(5))},
		{Name: "quota of ClusterQueue q for nvidia.com/gpu of flavor f", Parent: 1, Nominal: 8, Used: 1},
	}, r.Quotas)
	assert.Equal(t, []int{2}, r.Uses[0].Quotas)

	r = Build(waiting(Kueue{ClusterQueues: []*QuotaOwner{owner("q", "implicit", 8, 1), owner("p", "implicit", 3, 2)}}))
	assert.Contains(t, r.Quotas[0].Name, "Cohort implicit", "a Cohort needs no object")
	assert.EqualValues(t, 3, r.Quotas[0].Nominal)
}

func TestFlavors(t *testing.T) {
	t.Parallel()
	h100 := &Flavor{Name: "h100", Labels: map[string]string{"gpu": "H100"}, Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}}}
	l40s := &Flavor{Name: "l40s", Labels: map[string]string{"gpu": "L40S"}}
	spot := &Flavor{Name: "spot", Labels: map[string]string{"pool": "spot"}, Taints: []corev1.Taint{{Key: "spot", Effect: "NoExecute"}}}
	in := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for _, tt := range []struct {
		name string
		give Placement
		want string // flavors
	}{
		{"anything", Placement{}, "h100 l40s"},
		{"a node selector", Placement{Selector: map[string]string{"gpu": "L40S"}}, "l40s"},
		{"a label that no flavor has", Placement{Selector: map[string]string{"zone": "a"}}, "h100 l40s"},
		{"a taint that is tolerated", Placement{Selector: map[string]string{"pool": "spot"}, Tolerations: []corev1.Toleration{{Key: "spot", Operator: "Exists"}}}, "h100 l40s spot"},
		{"terms", Placement{Terms: []corev1.NodeSelectorTerm{in("gpu", "In", "H100"), in("gpu", "In", "H200")}}, "h100"},
		{"a term about something else", Placement{Terms: []corev1.NodeSelectorTerm{in("gpu", "In", "H200"), in("zone", "In", "a")}}, "h100 l40s"},
		{"nothing", Placement{Terms: []corev1.NodeSelectorTerm{in("gpu", "NotIn", "H100", "L40S")}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, f := range []*Flavor{h100, l40s, spot} {
				if f.canAssign(Placements{tt.give}) {
					names = append(names, f.Name)
				}
			}
			assert.Equal(t, tt.want, strings.Join(names, " "))
		})
	}
}

// TestNodesOfFlavors: an admitted pod only runs on the nodes of its flavor, whose taints it may tolerate.
func TestNodesOfFlavors(t *testing.T) {
	t.Parallel()
	queue := &QuotaOwner{Name: "q", Quotas: []FlavorQuota{{Flavor: "h100", Nominal: 8}, {Flavor: "l40s", Nominal: 8}, {Flavor: "f", Resource: 1, Nominal: 8}, {Flavor: "missing", Nominal: 8}}}
	give := func(selector map[string]string, more ...*Flavor) *Input {
		in := waiting(Kueue{ClusterQueues: []*QuotaOwner{queue}, Flavors: append(more, &Flavor{Name: "h100", Labels: map[string]string{"gpu": "H100"}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}}})})
		in.Nodes[0].Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		in.Variants[0].Shape.Placement = Placements{{Selector: selector}}.Key()
		return in
	}
	r := Build(give(nil))
	assert.Len(t, r.Uses[0].Quotas, 1)
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 8, Nodes: 1}}, r.Sets[0].Free)

	l40s := &Flavor{Name: "l40s", Labels: map[string]string{"pool": "y"}}
	in := give(nil, l40s)
	in.Nodes[1].Labels = map[string]string{"pool": "y"}
	r = Build(in)
	assert.Len(t, r.Uses[0].Quotas, 2)
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 4, Nodes: 1}}, r.Sets[0].Free, "only one of the flavors has the toleration")
	in.Nodes[0].Taints = nil
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 4, Nodes: 1}, {Cards: 8, Nodes: 1}}, Build(in).Sets[0].Free)

	r = Build(give(map[string]string{"pool": "z"}))
	assert.Zero(t, r.Sets[0].Nodes, "the template asks for more than the flavor")
}

func TestQueueProblems(t *testing.T) {
	t.Parallel()
	circle := []*QuotaOwner{owner("a", "b", 1, 0), owner("b", "a", 1, 0)}
	broken := owner("broken", "c", 5, Unreadable)
	for _, tt := range []struct {
		name          string
		give          Kueue
		want, message string
	}{
		{"none", Kueue{}, snapshot.QueueNotFound, `ClusterQueue "q" does not exist`},
		{"inactive", Kueue{ClusterQueues: []*QuotaOwner{{Name: "q", Inactive: "x"}}}, snapshot.QueueInactive, "ClusterQueue q admits no pods: x"},
		{"no quota", Kueue{ClusterQueues: []*QuotaOwner{{Name: "q"}}}, snapshot.QuotaMissing, "ClusterQueue q has no quota for nvidia.com/gpu"},
		{"circle", Kueue{ClusterQueues: []*QuotaOwner{owner("q", "a", 1, 0)}, Cohorts: circle}, snapshot.InventoryInvalid, "they form a circle with Cohort"},
		{"own number", Kueue{ClusterQueues: []*QuotaOwner{owner("q", "", Unreadable, 0)}}, snapshot.InventoryInvalid, "ClusterQueue q has a quota or a use"},
		{"a number in the cohort", Kueue{ClusterQueues: []*QuotaOwner{owner("q", "c", 1, 0), broken}}, snapshot.InventoryInvalid, "ClusterQueue broken has a quota or a use"},
		{"unknown cohorts", Kueue{ClusterQueues: []*QuotaOwner{owner("q", "c", 1, 0)}, CohortsUnknown: true}, snapshot.InventoryUnknown, "Cohorts cannot be listed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			use := Build(waiting(tt.give)).Uses[0]
			require.NotNil(t, use.Problem)
			assert.Equal(t, tt.want, use.Problem.Reason)
			assert.Contains(t, use.Problem.Message, tt.message)
		})
	}
	in := waiting(Kueue{ClusterQueues: []*QuotaOwner{owner("q", "", 1, 0)}, CohortsUnknown: true})
	assert.Nil(t, Build(in).Uses[0].Problem, "without a cohort, nobody needs to know them")
	in.Variants[0].Queue.Inactive = "y"
	assert.Equal(t, "LocalQueue ns/l admits no pods: y", Build(in).Uses[0].Problem.Message)
}

// TestHostileQuotas: huge numbers, and many of them, are bounded.
func TestHostileQuotas(t *testing.T) {
	t.Parallel()
	k := Kueue{ClusterQueues: []*QuotaOwner{owner("q", "c", 1e7, 0)}}
	for n := range 2000 {
		k.ClusterQueues = append(k.ClusterQueues, owner(fmt.Sprint(n), "c", 1e7, 1e7))
	}
	r := Build(waiting(k))
	assert.Equal(t, []int64{maxQuotaCards, maxQuotaCards}, []int64{r.Quotas[0].Nominal, r.Quotas[0].Used})

	many := &QuotaOwner{Name: "q"}
	k = Kueue{ClusterQueues: []*QuotaOwner{many}}
	for n := range maxQuotas + 1 {
		many.Quotas = append(many.Quotas, FlavorQuota{Flavor: fmt.Sprint(n), Nominal: 1})
		k.Flavors = append(k.Flavors, &Flavor{Name: fmt.Sprint(n)})
	}
	r = Build(waiting(k))
	assert.Equal(t, snapshot.LimitExceeded, r.Uses[0].Problem.Reason)
	assert.Len(t, r.Quotas, maxQuotas)

	deep := Kueue{ClusterQueues: []*QuotaOwner{owner("q", "0", 1, 0)}}
	for n := range 100_000 {
		deep.Cohorts = append(deep.Cohorts, owner(fmt.Sprint(n), fmt.Sprint(n+1), 1, 0))
	}
	assert.Equal(t, snapshot.InventoryInvalid, Build(waiting(deep)).Uses[0].Problem.Reason)
}

// TestAdmittedPods: pods that Kueue does not keep from starting count as there, and those with a reserved quota, too.
func TestAdmittedPods(t *testing.T) {
	t.Parallel()
	in := waiting(Kueue{ClusterQueues: []*QuotaOwner{owner("q", "", 8, 0)}})
	pod := func(p Pod) {
		in.Pods = append(in.Pods, Pod{Node: p.Node, Requests: Cards{2}, Terminating: p.Terminating, Gated: p.Gated})
	}
	count := func() [2]int64 {
		u := Build(in).Uses[0]
		return [2]int64{u.Placed, u.Admitted}
	}
	pod(Pod{Node: "a"})
	assert.Equal(t, [2]int64{1, 1}, count())
	pod(Pod{})
	assert.Equal(t, [2]int64{1, 2}, count(), "admitted, without a node")
	pod(Pod{Gated: true})
	assert.Equal(t, [2]int64{1, 2}, count())
	pod(Pod{Node: "a", Terminating: true})
	assert.Equal(t, [2]int64{2, 3}, count(), "its cards are for the one that waits")
	in.Pods = in.Pods[:3]
	in.Variants[0].Queue.Reserved = Cards{3}
	assert.Equal(t, [2]int64{1, 3}, count(), "it waits for an admission check")
	in.Variants = append(in.Variants, in.Variants[0])
	in.Pods = append(in.Pods, Pod{Requests: Cards{2}, Gated: true, Variant: 1})
	assert.EqualValues(t, 0, Build(in).Uses[1].Admitted, "the reserved cards are those of the first variant")
	in.Variants[0].Queue = nil
	assert.Equal(t, [2]int64{1, 0}, count(), "nothing admits them")
}
