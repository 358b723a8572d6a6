package decision

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// kueueNode is a ClusterQueue or a Cohort, as Kueue has it.
type kueueNode struct {
	*inventory.QuotaOwner

	parent  *kueueNode
	members []*kueueNode
	usage   map[string]int64 // of a ClusterQueue, by flavor
}

// The functions below are those of Kueue, without its caches:
// https://github.com/kubernetes-sigs/kueue/blob/v0.19.0/pkg/cache/scheduler/resource_node.go

func (n *kueueNode) quota(flavor string) inventory.FlavorQuota {
	for _, q := range n.Quotas {
		if q.Flavor == flavor {
			return q
		}
	}
	return inventory.FlavorQuota{}
}

func (n *kueueNode) subtreeQuota(flavor string) int64 {
	sum := n.quota(flavor).Nominal
	for _, m := range n.members {
		sum += m.subtreeQuota(flavor) - m.localQuota(flavor)
	}
	return sum
}

func (n *kueueNode) localQuota(flavor string) int64 {
	if limit := n.quota(flavor).Lending; limit != nil && n.parent != nil {
		return max(0, n.subtreeQuota(flavor)-*limit)
	}
	return 0
}

func (n *kueueNode) used(flavor string) int64 {
	sum := n.usage[flavor]
	for _, m := range n.members {
		sum += max(0, m.used(flavor)-m.localQuota(flavor))
	}
	return sum
}

func (n *kueueNode) available(flavor string) int64 {
	if n.parent == nil {
		return n.subtreeQuota(flavor) - n.used(flavor)
	}
	fromParent := n.parent.available(flavor)
	if limit := n.quota(flavor).Borrowing; limit != nil {
		local := n.localQuota(flavor)
		stored := n.subtreeQuota(flavor) - local
		fromParent = min(fromParent, stored-max(0, n.used(flavor)-local)+*limit)
	}
	return max(0, n.localQuota(flavor)-n.used(flavor)) + fromParent
}

// queueCluster is ClusterQueues in Cohorts, others who use them, and variants in some of them. Nodes have room for all.
type queueCluster struct {
	*rand.Rand

	clusterQueues, cohorts []*kueueNode
	flavors                []*inventory.Flavor
	variants               []*queueTenant
}

// queueTenant is a variant with a queue. Its admitted replicas have a flavor each, the others wait.
type queueTenant struct {
	cards, count int64
	flavor       string // that its pod template selects; empty: any
	queue        *kueueNode
	replicas     int
	admitted     []string
	group        int
}

func newQueueCluster(r *rand.Rand, flavors int, lending bool) *queueCluster {
	c := &queueCluster{Rand: r}
	for f := range flavors {
		name := fmt.Sprint("f", f)
		c.flavors = append(c.flavors, &inventory.Flavor{Name: name, Labels: map[string]string{"flavor": name}})
	}
	for n := range 1 + r.IntN(4) {
		cohort := &kueueNode{QuotaOwner: &inventory.QuotaOwner{Name: fmt.Sprint("cohort", n)}}
		if n > 0 && r.IntN(2) == 0 {
			cohort.join(c.cohorts[r.IntN(n)])
		}
		c.setQuotas(cohort, 8, lending)
		c.cohorts = append(c.cohorts, cohort)
	}
	for n := range 6 {
		q := &kueueNode{QuotaOwner: &inventory.QuotaOwner{Name: fmt.Sprint("queue", n)}, usage: map[string]int64{}}
		if r.IntN(4) > 0 {
			q.join(c.cohorts[r.IntN(len(c.cohorts))])
		}
		c.setQuotas(q, 40, lending)
		c.clusterQueues = append(c.clusterQueues, q)
	}
	for _, q := range c.clusterQueues { // others
		for _, f := range c.flavors {
			if room := q.available(f.Name); room > 0 && r.IntN(2) == 0 {
				q.usage[f.Name] += r.Int64N(room)
			}
		}
	}
	for n := range 12 {
		v := &queueTenant{cards: []int64{1, 2, 3, 8}[r.IntN(4)], count: 1, queue: c.clusterQueues[r.IntN(4)], group: n / 2}
		if r.IntN(6) == 0 {
			v.count = 2
		}
		if r.IntN(2) == 0 {
			v.flavor = c.flavors[r.IntN(flavors)].Name
		}
		c.variants = append(c.variants, v)
	}
	return c
}

func (n *kueueNode) join(parent *kueueNode) {
	n.parent, n.Parent = parent, parent.Name
	parent.members = append(parent.members, n)
}

func (c *queueCluster) setQuotas(n *kueueNode, most int64, lending bool) {
	n.Quotas = nil
	for _, f := range c.flavors {
		q := inventory.FlavorQuota{Flavor: f.Name, Nominal: c.Int64N(most)}
		if n.parent != nil && c.IntN(2) == 0 {
			q.Borrowing = new(c.Int64N(most))
		}
		if n.parent != nil && lending && c.IntN(2) == 0 {
			q.Lending = new(c.Int64N(most))
		}
		n.Quotas = append(n.Quotas, q)
	}
}

// admit admits replicas that wait, in any order and with any flavor that has quota, and returns how many wait after that.
func (c *queueCluster) admit() (waiting int) {
	var queue []*queueTenant
	for _, v := range c.variants {
		for range v.replicas - len(v.admitted) {
			queue = append(queue, v)
		}
	}
	c.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, v := range queue {
		waiting++
		for _, f := range c.Perm(len(c.flavors)) {
			name := c.flavors[f].Name
			if (v.flavor == "" || v.flavor == name) && v.queue.available(name) >= v.cards*v.count {
				v.queue.usage[name] += v.cards * v.count
				v.admitted = append(v.admitted, name)
				waiting--
				break
			}
		}
	}
	return waiting
}

func (c *queueCluster) scale(v *queueTenant, replicas int) {
	for v.replicas = replicas; len(v.admitted) > replicas; {
		i := c.IntN(len(v.admitted))
		v.queue.usage[v.admitted[i]] -= v.cards * v.count
		v.admitted = slices.Delete(v.admitted, i, i+1)
	}
}

// snapshot returns what a pass sees under loads.
func (c *queueCluster) snapshot(loads []int64) *snapshot.Snapshot {
	in := &inventory.Input{Kueue: inventory.Kueue{Flavors: c.flavors}}
	for _, f := range c.flavors {
		in.Nodes = append(in.Nodes, &inventory.Node{Name: f.Name, Ready: true, Labels: map[string]string{"flavor": f.Name, inventory.LabelElastic: "true"}, Allocatable: inventory.Cards{8}})
	}
	for _, q := range c.cohorts {
		in.Kueue.Cohorts = append(in.Kueue.Cohorts, q.QuotaOwner)
	}
	for _, q := range c.clusterQueues {
		for i := range q.Quotas {
			q.Quotas[i].Used = q.usage[q.Quotas[i].Flavor]
		}
		in.Kueue.ClusterQueues = append(in.Kueue.ClusterQueues, q.QuotaOwner)
	}
	for i, v := range c.variants {
		for range int64(len(v.admitted)) * v.count {
			in.Pods = append(in.Pods, inventory.Pod{Requests: inventory.Cards{v.cards}, Variant: i})
		}
		for range int64(v.replicas-len(v.admitted)) * v.count {
			in.Pods = append(in.Pods, inventory.Pod{Requests: inventory.Cards{v.cards}, Variant: i, Gated: true})
		}
		p := inventory.Placement{}
		if v.flavor != "" {
			p.Selector = map[string]string{"flavor": v.flavor}
		}
		in.Variants = append(in.Variants, inventory.Variant{
			Replicas: int64(v.replicas), Shape: inventory.Shape{Cards: v.cards, Pods: v.count, Placement: inventory.Placements{p}.Key()}, Queue: &inventory.LocalQueue{ClusterQueue: v.queue.Name},
		})
	}
	return c.describe(inventory.Build(in), loads)
}

func (c *queueCluster) describe(result *inventory.Result, loads []int64) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Time: noon, Settings: snapshot.Settings{Split: "capacity"}, Quotas: result.Quotas}
	for _, set := range result.Sets {
		s.Nodes = append(s.Nodes, snapshot.NodeSet{Nodes: set.Nodes, Elastic: set.Elastic, Within: set.Within, Overlaps: set.Overlaps})
	}
	for i, v := range c.variants {
		if v.group == len(s.Groups) {
			s.Groups = append(s.Groups, one(load(loads[v.group])).Groups[0])
			g := &s.Groups[v.group]
			g.Model, g.Priority, g.Variants = fmt.Sprint(v.group), 1+v.group%2, nil
		}
		usage := result.Uses[i]
		built := one().Groups[0].Variants[i%2]
		built.Name, built.Max, built.Now, built.Ready = fmt.Sprint(i), 100, v.replicas, len(v.admitted)
		built.Pods = &snapshot.Pods{Set: usage.Set, Cards: v.cards, Count: v.count, Quotas: usage.Quotas, Admitted: usage.Admitted}
		s.Groups[v.group].Variants = append(s.Groups[v.group].Variants, built)
	}
	return s
}

// TestNoPodIsGated: whatever ClusterQueues and Cohorts there are, and whatever Kueue does, it admits each replica that a decision adds. A
// quota that somebody lowers costs no replica that is admitted and that the load needs.
func TestNoPodIsGated(t *testing.T) {
	t.Parallel()
	added, full := 0, 0
	for seed := range uint64(testlane.Repetitions(2, 500)) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := newQueueCluster(r, 1+r.IntN(3), r.IntN(2) == 0)
		loads := make([]int64, len(c.variants)/2)
		for pass := range 4 {
			for g := range loads {
				if pass%2 == 0 {
					loads[g] = r.Int64N(400)
				}
			}
			if pass == 2 { // some quotas change
				c.setQuotas(c.clusterQueues[r.IntN(6)], 20, true)
			}
			d, err := Decide(c.snapshot(loads))
			require.NoError(t, err)
			for i, v := range c.variants {
				n := &d.Groups[v.group].Variants[i%2]
				added += max(n.Desired-v.replicas, 0)
				if n.Reason == QuotaFull || n.Reason == LimitBinding {
					full++
				}
				assert.GreaterOrEqual(t, n.Desired, min(n.Planned, len(v.admitted)))
				c.scale(v, n.Desired)
			}
			require.Zero(t, c.admit(), "seed %d, pass %d", seed, pass)
		}
	}
	assert.Greater(t, added, 100)
	assert.Greater(t, full, 10)
}

// TestAdmittedPlanIsReached: without limits of lending, and with a flavor for each variant, what the plan wants is there after few passes.
func TestAdmittedPlanIsReached(t *testing.T) {
	t.Parallel()
	limiting := 0
	for seed := range uint64(testlane.Repetitions(2, 500)) {
		r := rand.New(rand.NewPCG(seed, 4))
		c := newQueueCluster(r, 1, false)
		loads := make([]int64, len(c.variants)/2)
		for g := range loads {
			loads[g] = r.Int64N(400)
		}
		for pass := 0; ; pass++ {
			s := c.snapshot(loads)
			for g := range s.Groups {
				s.Groups[g].Priority = 1
			}
			d, err := Decide(s)
			require.NoError(t, err)
			missing := 0
			for i, v := range c.variants {
				n := &d.Groups[v.group].Variants[i%2]
				missing += max(n.Wanted-v.replicas, 0)
				c.scale(v, n.Desired)
			}
			limiting += len(d.Binding)
			require.Zero(t, c.admit())
			if missing == 0 {
				break
			}
			require.Less(t, pass, 8, "seed %d: %d replicas are missing", seed, missing)
		}
	}
	assert.Greater(t, limiting, 8)
}

// inQueue gives both variants quotas. A replica of big has two cards, one of small has one.
func inQueue(s *snapshot.Snapshot, bigs, smalls int64, quotas ...snapshot.Quota) *snapshot.Snapshot {
	s = elastic(on(s, bigs, smalls))
	s.Quotas = quotas
	for i, admitted := range []int64{bigs, smalls} {
		s.Groups[0].Variants[i].Pods.Quotas, s.Groups[0].Variants[i].Pods.Admitted = []int{len(quotas) - 1}, admitted
	}
	return s
}

// TestQuotas has a load of 100 requests/s, for which the cheapest plan is 7 replicas of big and none of small, or as many as are admitted.
func TestQuotas(t *testing.T) {
	t.Parallel()
	binding := []Reason{LimitBinding, LimitBinding}
	queue := func(nominal, used int64) snapshot.Quota {
		return snapshot.Quota{Name: "queue", Parent: -1, Nominal: nominal, Used: used}
	}
	inCohort := func(q snapshot.Quota, borrowing *int64) snapshot.Quota {
		q.Parent, q.Borrowing = 0, borrowing
		return q
	}
	tests := []struct {
		name string
		give *snapshot.Snapshot
		want outcome
	}{
		{"room for all", inQueue(one(load(100)), 0, 0, queue(14, 0)), outcome{[]int{7, 0}, []Reason{Optimal, Optimal}}},
		{"both variants share it", inQueue(one(load(100)), 0, 0, queue(7, 0)), outcome{[]int{3, 1}, binding}},
		{"others use a part", inQueue(one(load(100)), 0, 0, queue(14, 9)), outcome{[]int{2, 1}, binding}},
		{"own use is own", inQueue(one(load(100), has(3, 0)), 3, 0, queue(8, 6)), outcome{[]int{4, 0}, binding}},
		{"a lower quota costs no admitted replica, but those that wait", inQueue(one(load(100), has(5, 0)), 3, 0, queue(2, 6)), outcome{[]int{3, 0}, binding}},
		{"the cohort lends", inQueue(one(load(100)), 0, 0, queue(10, 0), inCohort(queue(4, 0), nil)), outcome{[]int{7, 0}, []Reason{Optimal, Optimal}}},
		{"at most the limit of borrowing", inQueue(one(load(100)), 0, 0, queue(10, 0), inCohort(queue(4, 0), new(int64(2)))), outcome{[]int{3, 0}, binding}},
		{"others use what the cohort lends", inQueue(one(load(100)), 0, 0, queue(10, 9), inCohort(queue(4, 0), nil)), outcome{[]int{2, 1}, binding}},
		{"a negative rest is none", inQueue(one(load(100)), 0, 0, queue(10, 90), inCohort(queue(4, 0), nil)), outcome{[]int{0, 0}, binding}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, decide(t, tt.give))
		})
	}
}

// TestOneMoreOfAQuota: the explanation names the quota that binds, and says what the cards of another replica change.
func TestOneMoreOfAQuota(t *testing.T) {
	t.Parallel()
	s := inQueue(one(load(100)), 0, 0, snapshot.Quota{Name: "cohort", Parent: -1, Nominal: 3}, snapshot.Quota{Name: "queue", Parent: 0, Nominal: 2, Borrowing: new(int64(9))})
	before, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, []Binding{{Name: "queue", Limit: -1, Quota: new(1), Cards: 1}, {Name: "cohort", Limit: -1, Quota: new(0), Cards: 1}}, before.Binding)
	assert.Equal(t, "the cohort has 5 cards left for replicas of 2 cards. Raise the quota, or end other workloads that use it", before.Groups[0].Variants[0].Short)
	for i := range before.Binding {
		after, err := Decide(WithLimitRaised(s, &before.Binding[i]))
		require.NoError(t, err)
		assert.InDelta(t, 8, float64(after.Groups[0].Share-before.Groups[0].Share)/1e4, 1e-3, "a quota of a ClusterQueue is one of its cohort, too")
	}
	assert.EqualValues(t, 3, s.Quotas[0].Nominal, "the snapshot is as before")
}

// TestReplicasThatMayTakeAnyFlavor: a replica that can get two flavors could take the one that another variant needs.
func TestReplicasThatMayTakeAnyFlavor(t *testing.T) {
	t.Parallel()
	single := func(v *snapshot.Variant) { v.Max = 2 }
	s := inQueue(one(load(100), big(single), small(func(v *snapshot.Variant) { v.Max = 3 })), 0, 0, snapshot.Quota{Name: "a", Parent: -1, Nominal: 4}, snapshot.Quota{Name: "b", Parent: -1, Nominal: 2})
	v := s.Groups[0].Variants
	v[0].Pods.Quotas, v[1].Pods.Quotas, v[1].Pods.Cards = []int{0}, []int{0, 1}, 2
	d, err := Decide(s)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{d.Groups[0].Variants[0].Planned, d.Groups[0].Variants[1].Planned})
	assert.Equal(t, []int{2, 0}, []int{d.Groups[0].Variants[0].Desired, d.Groups[0].Variants[1].Desired})
	assert.Equal(t, QuotaFull, d.Groups[0].Variants[1].Reason)
	assert.Equal(t, "The plan has 1 replica; 0 for now: the a has 4 cards left for replicas of 2 cards. Raise the quota, or end other workloads that use it", d.Groups[0].Variants[1].Message)
}

// TestManyReplicasThatMayTakeAnyFlavor: beyond the number of variants that are compared, no more is given than any order admits.
func TestManyReplicasThatMayTakeAnyFlavor(t *testing.T) {
	t.Parallel()
	a := &admitter{tree: newQuotaTree([]snapshot.Quota{{Parent: -1, Nominal: 300}, {Parent: -1, Nominal: 1000}})}
	for range maxMixed + 1 {
		p := &snapshot.Pods{Cards: 1, Count: 1, Quotas: []int{0, 1}}
		require.EqualValues(t, 1, a.admissibleReplicas(p, 1))
		a.reserveQuota(p, 1)
	}
	assert.EqualValues(t, 300-maxMixed-1, a.admissibleReplicas(&snapshot.Pods{Cards: 1, Count: 1, Quotas: []int{0, 1}}, 1000))
}

// TestInvalidQuotas: a snapshot can come from a file that somebody wrote.
func TestInvalidQuotas(t *testing.T) {
	t.Parallel()
	for _, change := range []func(s *snapshot.Snapshot){
		func(s *snapshot.Snapshot) { s.Quotas[0].Parent = 0 },
		func(s *snapshot.Snapshot) { s.Quotas[0].Parent = -2 },
		func(s *snapshot.Snapshot) { s.Quotas[0].Nominal = -1 },
		func(s *snapshot.Snapshot) { s.Quotas[0].Used = 1 << 62 },
		func(s *snapshot.Snapshot) { s.Quotas[0].Borrowing = new(int64(-1)) },
		func(s *snapshot.Snapshot) { s.Quotas[0].Lending = new(int64(-1)) },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Quotas = []int{1} },
		func(s *snapshot.Snapshot) { s.Groups[0].Variants[0].Pods.Admitted = -1 },
	} {
		s := inQueue(one(), 0, 0, snapshot.Quota{Parent: -1, Nominal: 3})
		change(s)
		_, err := Decide(s)
		require.ErrorContains(t, err, "snapshot: ")
	}
}
