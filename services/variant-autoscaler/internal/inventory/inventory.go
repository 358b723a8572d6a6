// Package inventory finds which nodes the pods of variants can use, and how many cards of accelerators are free on each of them. It is
// pure, and follows the rules of the Kubernetes scheduler:
//
//	a pod of g cards needs one node with g free cards
//	node        ready, not cordoned, with the labels that the pod template asks for, and with no taint that the template does not tolerate
//	free        allocatable, without the requests of all pods on the node, whoever owns them, until they are gone
//	node set    the nodes that a pod template can use. Variants whose templates can use the same nodes share a set
//
// Devices of dynamic resource allocation count as cards of the node that can use them: see devices.go.
// Workloads that Kueue manages have quotas, too, by the rules of Kueue: see queues.go.
//
// The name of an accelerator in a variant plays no role: variants of one name whose templates select different nodes have different sets,
// and variants of different names share a set if the scheduler would put their pods on the same nodes. CPU, memory, pod affinity and
// topology spread constraints are not considered.
//
// Kubelets and administrators write nodes, and anybody may write pods and templates. A number that cannot be true is a problem of the
// variants that could use its node, and of no other.
package inventory

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Resources are the names of the resources that count as cards.
var Resources = [...]string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi"}

// Cards are numbers of cards by resource. A number of Unreadable could not be read.
type Cards [len(Resources)]int64

// Unreadable is the number of cards where an object has no usable number.
const Unreadable = -1

// Sum returns the cards of all resources, Unreadable if one of them is.
func (c *Cards) Sum() int64 {
	var sum int64
	for _, n := range c {
		if n == Unreadable {
			return Unreadable
		}
		sum += n
	}
	return sum
}

// LabelElastic is a label of nodes with the value "true": a node autoscaler can add more of them, so variants that can use one of them are
// not limited by what is free.
const LabelElastic = "fairlead.dev/elastic"

// Bounds of what is believed and kept.
const (
	// MaxNodeCards is the most cards that a node is believed to have. The largest servers have 72, and time slicing gives each card tens of
	// replicas.
	MaxNodeCards = 4096
	// maxShapesOfNamespace is the most different choices of nodes of the variants of a namespace. Usual namespaces have as many as kinds of
	// nodes. Each of them is compared with all nodes.
	maxShapesOfNamespace = 16
	// maxSets is the most node sets. Each pair of them is compared, and the decision log has those with nodes in common.
	maxSets = 256
	// maxProducts is the number of products in the name of a set.
	maxProducts = 3
)

// Node is a node.
type Node struct {
	Name          string
	Labels        map[string]string
	Taints        []corev1.Taint
	Ready         bool
	Unschedulable bool
	Allocatable   Cards
}

// Pod is a pod that holds cards of a node, or of a quota.
type Pod struct {
	Node     string // empty: none yet
	Requests Cards
	// Variant is the position of the variant that the pod belongs to, -1 if it belongs to none.
	Variant int
	// Terminating pods hold their cards, and do not serve.
	Terminating bool
	// Claims reports that it requests devices by claims.
	Claims bool
	// Queued pods are those that Kueue manages, and Gated ones wait for it.
	Queued, Gated bool
}

// Variant is what a variant needs of nodes.
type Variant struct {
	Namespace string
	Shape     Shape
	// Replicas are those that its workload asks for.
	Replicas int64
	// Devices are the devices that the pods request. The cards of Shape are their number. Nil: Shape has a resource.
	Devices *DeviceRequest
	// Queue is the queue of Kueue that admits its pods. Nil: no quota limits it.
	Queue *LocalQueue
}

// Shape is what the pods of a replica ask for. It is comparable.
type Shape struct {
	// Resource is the position of the resource in Resources, and Cards what the largest pod requests of it. Zero cards: none.
	Resource int
	Cards    int64
	// Pods is the number of pods of a replica that request cards.
	Pods int64
	// Placement is what the pod templates say of nodes, as Placements.Key has it.
	Placement string
}

// Input is what Build reads. Variants are ordered by age, the oldest first: the newest ones lose where there are too many.
type Input struct {
	Nodes    []*Node
	Pods     []Pod
	Variants []Variant
	// Kueue has the quotas of variants with a queue.
	Kueue   Kueue
	Devices Devices
}

// VariantUse is what Build finds for a variant. Its Set is -1 if no set limits the variant.
type VariantUse struct {
	snapshot.Pods

	Problem *snapshot.Problem
}

// Result has an element of Uses for each variant.
type Result struct {
	Sets   []snapshot.NodeSet
	Quotas []snapshot.Quota
	Uses   []VariantUse
}

// Build returns the node sets and quotas of the variants.
func Build(in *Input) *Result {
	b := newBuilder(in)
	for i := range in.Variants {
		b.setUse(i)
	}
	b.countPods()
	b.relateSets()
	return &Result{Sets: b.sets, Quotas: b.queues.resultQuotas(), Uses: b.uses}
}

// builder builds a Result. Nodes are in the order of their names.
type builder struct {
	in           *Input
	nodes        []*Node
	position     map[string]int // of nodes by name
	free         []Cards        // by node; Unreadable: the node, or a pod on it, has no usable number
	uses         []VariantUse
	sets         []snapshot.NodeSet
	members      []*big.Int     // of each set: a bit for each node
	resources    []int          // of each set
	bySet        map[string]int // sets by resource and members
	byShape      map[shapeKey]usableNodes
	tenantShapes map[string]map[shapeKey]bool // shapes of the variants of a namespace
	queues       *queues
	devices      *devices
}

// shapeKey is what decides which nodes a pod can use.
type shapeKey struct {
	resource  int // position in Resources, or behind them, in the kinds of devices
	placement string
	flavors   int // position of the flavors that its pods get; 0: they are not restricted
}

// usableNodes is the nodes that a shape can use.
type usableNodes struct {
	members *big.Int // a bit for each node
	elastic bool
	problem *snapshot.Problem
}

// keyWith identifies the nodes with a resource.
func (u *usableNodes) keyWith(resource int) string {
	return string(append(u.members.Bytes(), byte(resource)))
}

func newBuilder(in *Input) *builder {
	b := &builder{
		in: in, nodes: slices.Clone(in.Nodes), position: map[string]int{}, uses: make([]VariantUse, len(in.Variants)),
		bySet: map[string]int{}, byShape: map[shapeKey]usableNodes{}, tenantShapes: map[string]map[shapeKey]bool{},
		queues: newQueues(&in.Kueue), devices: newDevices(&in.Devices),
	}
	slices.SortFunc(b.nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	for n, node := range b.nodes {
		b.position[node.Name] = n
		b.free = append(b.free, boundCards(node.Allocatable))
	}
	for i := range in.Pods {
		if n, known := b.position[in.Pods[i].Node]; known {
			b.free[n].subtractPod(&in.Pods[i].Requests)
		}
	}
	return b
}

// boundCards returns allocatable cards, with Unreadable for an impossible number.
func boundCards(c Cards) Cards {
	for r := range c {
		if c[r] < 0 || c[r] > MaxNodeCards {
			c[r] = Unreadable
		}
	}
	return c
}

// subtractPod subtracts the requests of a pod. They can exceed the allocatable cards while a device is broken.
func (c *Cards) subtractPod(requests *Cards) {
	for r := range c {
		switch {
		case c[r] == Unreadable:
		case requests[r] < 0:
			c[r] = Unreadable
		default:
			c[r] = max(c[r]-requests[r], 0)
		}
	}
}

// setUse finds the node set and the quotas of a variant.
func (b *builder) setUse(i int) {
	v, u := &b.in.Variants[i], &b.uses[i]
	u.Pods = snapshot.Pods{Set: -1, Cards: v.Shape.Cards, Count: v.Shape.Pods}
	if v.Shape.Cards == 0 {
		return
	}
	key, problem := b.keyOf(v)
	if u.Problem = problem; problem != nil {
		return
	}
	if v.Queue != nil {
		a := b.queues.admissionFor(v.Queue, key)
		if u.Problem = a.problem; u.Problem != nil {
			return
		}
		u.Quotas, key.flavors = a.quotas, a.flavors
	}
	f := b.findNodes(key)
	if u.Problem = f.problem; u.Problem != nil {
		return
	}
	set, known := b.bySet[f.keyWith(key.resource)]
	switch {
	case known:
		u.Set = set
	case len(b.sets) < maxSets:
		u.Set = b.addSet(key.resource, f)
	default:
		u.Problem = snapshot.NewProblem(snapshot.LimitExceeded,
			"all variants together select more than %d different sets of nodes: use the same nodeSelector in several pod templates", maxSets)
	}
}

// keyOf returns the shape of a variant, or a problem if there are too many of them: of a namespace first, as it must not use up what all
// share.
func (b *builder) keyOf(v *Variant) (shapeKey, *snapshot.Problem) {
	key := shapeKey{resource: v.Shape.Resource, placement: v.Shape.Placement}
	if v.Devices != nil {
		key.resource = len(Resources) + b.devices.kindOf(v.Devices)
	}
	if !b.admitShape(v.Namespace, key) {
		return key, snapshot.NewProblem(snapshot.LimitExceeded,
			"the variants of the namespace have more than %d different choices of nodes or devices: use the same nodeSelector, affinity and tolerations in several pod templates",
			maxShapesOfNamespace)
	}
	if v.Devices != nil {
		return key, b.devices.addKind(v.Devices, b.position)
	}
	return key, nil
}

// admitShape reports whether a namespace may have a choice of nodes.
func (b *builder) admitShape(namespace string, key shapeKey) bool {
	tenant := b.tenantShapes[namespace]
	if tenant == nil {
		tenant = map[shapeKey]bool{}
		b.tenantShapes[namespace] = tenant
	}
	if !tenant[key] && len(tenant) >= maxShapesOfNamespace {
		return false
	}
	tenant[key] = true
	return true
}

// findNodes returns the nodes that a pod can use.
func (b *builder) findNodes(key shapeKey) usableNodes {
	if f, known := b.byShape[key]; known {
		return f
	}
	f := usableNodes{members: new(big.Int)}
	placements, err := parsePlacements(key.placement)
	if err != nil {
		f.problem = snapshot.NewProblem(snapshot.InvalidConfiguration,
			"the pod template has a nodeSelector, an affinity or tolerations that cannot be read: %s; correct it", err)
	}
	placements = placements.withFlavors(b.queues.choices[key.flavors])
	for n, node := range b.nodes {
		if f.problem != nil {
			break
		}
		allocatable, free := b.cardsOf(n, key.resource)
		if allocatable == 0 || !placements.selectsNode(node) {
			continue
		}
		f.elastic = f.elastic || node.Labels[LabelElastic] == "true" && placements.toleratesAll(node.taintsOfKind())
		if !node.Ready || !placements.toleratesAll(node.allTaints()) {
			continue
		}
		if free == Unreadable {
			f.problem = snapshot.NewProblem(snapshot.InventoryInvalid,
				"node %s, or a pod on it, has a number of %s that cannot be true: correct it (at most %d are believed), or cordon the node",
				node.Name, b.nameOf(key.resource), MaxNodeCards)
		}
		f.members.SetBit(f.members, n, 1)
	}
	b.byShape[key] = f
	return f
}

// addSet adds the set of the nodes that a shape can use, and returns its position.
func (b *builder) addSet(resource int, f usableNodes) int {
	name := b.nameOf(resource)
	set := snapshot.NodeSet{Name: "nodes with " + name, Resource: name, Elastic: f.elastic}
	free, products := map[int64]int64{}, map[string]bool{}
	for n := range b.nodes {
		if f.members.Bit(n) == 0 {
			continue
		}
		set.Nodes++
		if _, cards := b.cardsOf(n, resource); cards > 0 {
			free[cards]++
		}
		if p := b.nodes[n].productName(); p != "" {
			products[p] = true
		}
	}
	for _, cards := range slices.Sorted(maps.Keys(free)) {
		set.Free = append(set.Free, snapshot.FreeNodes{Cards: cards, Nodes: free[cards]})
	}
	names := slices.Sorted(maps.Keys(products))
	if len(names) > maxProducts {
		names = append(names[:maxProducts], "...")
	}
	if len(names) > 0 {
		set.Name += " (" + strings.Join(names, ", ") + ")"
	}
	b.sets, b.members, b.resources = append(b.sets, set), append(b.members, f.members), append(b.resources, resource)
	b.bySet[f.keyWith(resource)] = len(b.sets) - 1
	return len(b.sets) - 1
}

// relateSets finds the sets that have nodes in common, and those that are a part of another one.
func (b *builder) relateSets() {
	var nodes big.Int
	for i := range b.sets {
		for j := range b.sets {
			if i == j || !b.canShare(b.resources[i], b.resources[j]) || nodes.And(b.members[i], b.members[j]).Sign() == 0 {
				continue
			}
			b.sets[i].Overlaps = append(b.sets[i].Overlaps, j)
			if b.resources[i] == b.resources[j] && nodes.AndNot(b.members[i], b.members[j]).Sign() == 0 {
				b.sets[i].Within = append(b.sets[i].Within, j)
			}
		}
	}
}

// productLabels are the labels that name the product of the cards of a node: of the feature discoveries of vendors, and of clouds.
var productLabels = []string{
	"nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product", "cloud.google.com/gke-accelerator",
	"karpenter.k8s.aws/instance-gpu-name", "eks.amazonaws.com/instance-gpu-name", "kubernetes.azure.com/accelerator",
	"node.kubernetes.io/instance-type",
}

// productName returns the name of the cards of a node, or nothing.
func (n *Node) productName() string {
	name := ""
	for _, label := range productLabels {
		name = cmp.Or(name, n.Labels[label])
	}
	return name
}
