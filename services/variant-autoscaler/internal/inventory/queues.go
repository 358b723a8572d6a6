package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxQuotas is the most quotas of all variants together: of a ClusterQueue and its Cohorts, one for each flavor. Each can become a
	// limit of the optimizer, and the decision log has them.
	maxQuotas = 1024
	// maxQuotaCards is the most cards of a quota with all that its members lend. No cluster has as many.
	maxQuotaCards = 1e9
	// maxCohortDepth is the most Cohorts above a ClusterQueue. Kueue refuses Cohorts that form a circle.
	maxCohortDepth = 32
)

// Kueue is what the objects of Kueue say of quotas.
type Kueue struct {
	ClusterQueues []*QuotaOwner
	Cohorts       []*QuotaOwner
	Flavors       []*Flavor
	// CohortsUnknown reports that Cohorts cannot be listed: it is not known what they share with their ClusterQueues.
	CohortsUnknown bool
}

// QuotaOwner is a ClusterQueue or a Cohort.
type QuotaOwner struct {
	Name   string
	Parent string // its Cohort; empty: none
	// Inactive says why a ClusterQueue admits nothing. Empty: it admits.
	Inactive string
	Quotas   []FlavorQuota // in the order of the object
	cohort   bool
}

// FlavorQuota is the quota of a resource in a flavor. A number of Unreadable could not be read.
type FlavorQuota struct {
	Flavor   string
	Resource int // position in Resources
	Nominal  int64
	// Borrowing and Lending are the most that may come from, and go to, others of the Cohort. Nil: no limit.
	Borrowing, Lending *int64
	// Used is what workloads of a ClusterQueue have reserved.
	Used int64
}

// Flavor is a ResourceFlavor.
type Flavor struct {
	Name        string
	Labels      map[string]string // of its nodes
	Taints      []corev1.Taint
	Tolerations []corev1.Toleration // that admitted pods get
}

// LocalQueue is a LocalQueue. Variants of one queue have the same pointer.
type LocalQueue struct {
	Namespace, Name string
	ClusterQueue    string
	// Inactive says why the LocalQueue admits nothing. Empty: it admits.
	Inactive string
	// Reserved are cards of workloads that wait for an admission check, not for quota.
	Reserved Cards
}

// quotaKey identifies a quota.
type quotaKey struct {
	owner    *QuotaOwner
	flavor   string
	resource int
}

// queues finds the quotas of variants.
type queues struct {
	clusterQueues  map[string]*QuotaOwner
	cohorts        map[string]*QuotaOwner
	members        map[string][]*QuotaOwner // of each Cohort
	flavors        map[string]*Flavor
	cohortsUnknown bool
	keys           []quotaKey // of quotas
	quotas         []snapshot.Quota
	position       map[quotaKey]int
	known          map[admissionKey]admission
	choices        [][]*Flavor // sets of flavors of variants; the first set is empty
	choice         map[string]int
}

// admissionKey is what decides which quotas a variant can use.
type admissionKey struct {
	clusterQueue string
	shape        shapeKey
}

// admission is how pods are admitted.
type admission struct {
	quotas []int // of the flavors that they can get
	// flavors is the position of these in choices. The admission restricts pods to the nodes of their flavor. 0: it does not.
	flavors int
	problem *snapshot.Problem
}

func newQueues(in *Kueue) *queues {
	q := &queues{
		clusterQueues: map[string]*QuotaOwner{}, cohorts: map[string]*QuotaOwner{}, members: map[string][]*QuotaOwner{},
		flavors:  map[string]*Flavor{},
		position: map[quotaKey]int{}, known: map[admissionKey]admission{}, choice: map[string]int{}, choices: [][]*Flavor{nil},
		cohortsUnknown: in.CohortsUnknown,
	}
	for _, owner := range in.Cohorts {
		cohort := *owner
		cohort.cohort = true
		q.cohorts[owner.Name] = &cohort
	}
	for _, owner := range in.ClusterQueues {
		q.clusterQueues[owner.Name] = owner
	}
	for _, all := range []map[string]*QuotaOwner{q.cohorts, q.clusterQueues} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if parent := all[name].Parent; parent != "" {
				q.members[parent] = append(q.members[parent], all[name])
			}
		}
	}
	for _, f := range in.Flavors {
		q.flavors[f.Name] = f
	}
	return q
}

// admissionFor returns how a LocalQueue admits pods of a shape.
func (q *queues) admissionFor(from *LocalQueue, shape shapeKey) admission {
	if from.Inactive != "" {
		return admission{problem: inactiveQueue(fmt.Sprintf("LocalQueue %s/%s", from.Namespace, from.Name), from.Inactive)}
	}
	key := admissionKey{from.ClusterQueue, shape}
	result, known := q.known[key]
	if !known {
		result = q.findQuotas(key)
		q.known[key] = result
	}
	return result
}

func (q *queues) findQuotas(key admissionKey) admission {
	owner := q.clusterQueues[key.clusterQueue]
	switch {
	case owner == nil:
		return admission{problem: snapshot.NewProblem(snapshot.QueueNotFound,
			"ClusterQueue %q does not exist: create it, or use another LocalQueue", key.clusterQueue)}
	case owner.Inactive != "":
		return admission{problem: inactiveQueue("ClusterQueue "+owner.Name, owner.Inactive)}
	case owner.Parent != "" && q.cohortsUnknown:
		return admission{problem: snapshot.NewProblem(snapshot.InventoryUnknown,
			"ClusterQueue %s is in a cohort, and Cohorts cannot be listed: grant list and watch of cohorts (limiter.enabled of the chart)", owner.Name)}
	}
	placements, err := parsePlacements(key.shape.placement)
	if err != nil {
		return admission{} // its nodes are a problem, too
	}
	var result admission
	var flavors []*Flavor
	for i := range owner.Quotas {
		quota := &owner.Quotas[i]
		f := q.flavors[quota.Flavor]
		if quota.Resource != key.shape.resource || f == nil || !f.canAssign(placements) {
			continue
		}
		at, problem := q.addQuota(quotaKey{owner, quota.Flavor, quota.Resource}, 0)
		if problem != nil {
			return admission{problem: problem}
		}
		result.quotas, flavors = append(result.quotas, at), append(flavors, f)
	}
	if len(flavors) == 0 {
		return admission{problem: snapshot.NewProblem(snapshot.QuotaMissing,
			"ClusterQueue %s has no quota for %s in a flavor that suits the nodeSelector, affinity and tolerations of the pod template: add a flavor, or use another LocalQueue",
			owner.Name, Resources[key.shape.resource])}
	}
	result.flavors = q.flavorChoice(flavors)
	return result
}

// flavorChoice returns the position of some flavors in choices.
func (q *queues) flavorChoice(flavors []*Flavor) int {
	var names []string
	for _, f := range flavors {
		names = append(names, f.Name)
	}
	name := strings.Join(names, "/")
	if q.choice[name] == 0 {
		q.choice[name] = len(q.choices)
		q.choices = append(q.choices, flavors)
	}
	return q.choice[name]
}

// canAssign reports whether Kueue may assign a flavor to pods: it compares what their templates say of the labels that the flavor has.
func (f *Flavor) canAssign(placements Placements) bool {
	node := &Node{Labels: f.Labels}
	for i := range placements {
		p := placements[i].restrictTo(f.Labels)
		p.Tolerations = slices.Concat(p.Tolerations, f.Tolerations)
		if !p.selectsNode(node) || !(Placements{p}).toleratesAll(f.Taints) {
			return false
		}
	}
	return true
}

// restrictTo returns what a placement says of some labels. A term that says nothing of them matches all nodes, and so do all terms then.
func (p *Placement) restrictTo(labels map[string]string) Placement {
	restricted := Placement{Selector: maps.Clone(p.Selector), Tolerations: p.Tolerations}
	maps.DeleteFunc(restricted.Selector, func(key, _ string) bool { return !hasKey(labels, key) })
	for i := range p.Terms {
		expressions := slices.DeleteFunc(slices.Clone(p.Terms[i].MatchExpressions),
			func(r corev1.NodeSelectorRequirement) bool { return !hasKey(labels, r.Key) })
		if len(expressions) == 0 {
			restricted.Terms = nil
			break
		}
		restricted.Terms = append(restricted.Terms, corev1.NodeSelectorTerm{MatchExpressions: expressions})
	}
	return restricted
}

func hasKey(labels map[string]string, key string) bool {
	_, found := labels[key]
	return found
}

// withFlavors returns the placements of pods that get one of some flavors: with its labels, and the tolerations that all flavors add.
func (p Placements) withFlavors(flavors []*Flavor) Placements {
	if len(flavors) == 0 {
		return p
	}
	if len(p) == 0 {
		p = Placements{{}}
	}
	tolerations := slices.Clone(flavors[0].Tolerations)
	for _, f := range flavors[1:] {
		tolerations = slices.DeleteFunc(tolerations, func(t corev1.Toleration) bool { return !slices.Contains(f.Tolerations, t) })
	}
	restricted := make(Placements, len(p))
	for i := range p {
		restricted[i] = Placement{Selector: p[i].Selector, Terms: p[i].Terms, Tolerations: slices.Concat(p[i].Tolerations, tolerations)}
	}
	if !slices.ContainsFunc(flavors, func(f *Flavor) bool { return len(f.Labels) == 0 }) { // a flavor without labels has all nodes
		restricted[0].flavors = flavors
	}
	return restricted
}

// addQuota adds a quota, and those of the Cohorts above it, and returns its position.
func (q *queues) addQuota(key quotaKey, depth int) (int, *snapshot.Problem) {
	if at, found := q.position[key]; found {
		return at, nil
	}
	if depth > maxCohortDepth {
		return 0, snapshot.NewProblem(snapshot.InventoryInvalid,
			"more than %d Cohorts are above each other, or they form a circle with %s: correct spec.parentName", maxCohortDepth, key.owner)
	}
	parent := -1
	if key.owner.Parent != "" {
		var problem *snapshot.Problem
		if parent, problem = q.addQuota(quotaKey{q.cohortNamed(key.owner.Parent), key.flavor, key.resource}, depth+1); problem != nil {
			return 0, problem
		}
	}
	if wrong := q.unreadableOwner(key); wrong != nil {
		return 0, snapshot.NewProblem(snapshot.InventoryInvalid,
			"%s has a quota or a use of %s in flavor %s that cannot be true: correct it", wrong, Resources[key.resource], key.flavor)
	}
	if len(q.quotas) >= maxQuotas {
		return 0, snapshot.NewProblem(snapshot.LimitExceeded,
			"all variants together use more than %d quotas: use fewer ClusterQueues and flavors", maxQuotas)
	}
	own := key.owner.quotaFor(key)
	q.quotas = append(q.quotas, snapshot.Quota{
		Name: fmt.Sprintf("quota of %s for %s of flavor %s", key.owner, Resources[key.resource], key.flavor), Parent: parent,
		Nominal: own.Nominal, Borrowing: own.Borrowing, Lending: own.Lending, Used: own.Used,
	})
	q.keys = append(q.keys, key)
	q.position[key] = len(q.quotas) - 1
	return len(q.quotas) - 1, nil
}

// cohortNamed returns a Cohort. One without an object has no quota of its own.
func (q *queues) cohortNamed(name string) *QuotaOwner {
	if q.cohorts[name] == nil {
		q.cohorts[name] = &QuotaOwner{Name: name, cohort: true}
	}
	return q.cohorts[name]
}

// unreadableOwner returns an owner with an unreadable number: the owner of a quota, or one below it. Nil: there is none.
func (q *queues) unreadableOwner(key quotaKey) *QuotaOwner {
	if own := key.owner.quotaFor(key); own.isUnreadable() {
		return key.owner
	}
	for _, member := range q.membersOf(key.owner) {
		if wrong := q.unreadableOwner(quotaKey{member, key.flavor, key.resource}); wrong != nil {
			return wrong
		}
	}
	return nil
}

// membersOf returns what is directly below a Cohort.
func (q *queues) membersOf(owner *QuotaOwner) []*QuotaOwner {
	if !owner.cohort {
		return nil
	}
	return q.members[owner.Name]
}

// resultQuotas returns all quotas, those of Cohorts with what members without quotas of their own lend and use.
func (q *queues) resultQuotas() []snapshot.Quota {
	for at, key := range q.keys {
		for _, member := range q.membersOf(key.owner) {
			below := quotaKey{member, key.flavor, key.resource}
			if _, known := q.position[below]; !known {
				lent, used := q.lentQuota(below)
				q.quotas[at].Nominal = min(q.quotas[at].Nominal+lent, maxQuotaCards)
				q.quotas[at].Used = min(q.quotas[at].Used+used, maxQuotaCards)
			}
		}
	}
	return q.quotas
}

// lentQuota returns what an owner lends to its Cohort, and what it uses of that, as Kueue has it: a limit of lending keeps the rest of the
// quota for the owner, which it uses first.
func (q *queues) lentQuota(key quotaKey) (lent, used int64) {
	own := key.owner.quotaFor(key)
	lent, used = own.Nominal, own.Used
	for _, member := range q.membersOf(key.owner) {
		more, taken := q.lentQuota(quotaKey{member, key.flavor, key.resource})
		lent, used = lent+more, used+taken
	}
	if own.Lending != nil {
		kept := max(lent-*own.Lending, 0)
		lent, used = lent-kept, max(used-kept, 0)
	}
	return lent, used
}

// quotaFor returns the quota of an owner for a resource in a flavor. Without one, it has none of its own, and may borrow all of it.
func (o *QuotaOwner) quotaFor(key quotaKey) FlavorQuota {
	for i := range o.Quotas {
		if o.Quotas[i].Flavor == key.flavor && o.Quotas[i].Resource == key.resource {
			return o.Quotas[i]
		}
	}
	return FlavorQuota{}
}

// String returns kind and name.
func (o *QuotaOwner) String() string {
	if o.cohort {
		return "Cohort " + o.Name
	}
	return "ClusterQueue " + o.Name
}

func (f *FlavorQuota) isUnreadable() bool {
	negative := func(n *int64) bool { return n != nil && *n < 0 }
	return negative(&f.Nominal) || negative(&f.Used) || negative(f.Borrowing) || negative(f.Lending)
}

func inactiveQueue(queue, why string) *snapshot.Problem {
	return snapshot.NewProblem(snapshot.QueueInactive, "%s admits no pods: %s", queue, why)
}
