package informers

import (
	"slices"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Labels that workloads set on their pods.
const (
	labelTemplateHash = "pod-template-hash"
	labelSetName      = "leaderworkerset.sigs.k8s.io/name"
	labelWorkerIndex  = "leaderworkerset.sigs.k8s.io/worker-index"
	leaderIndex       = "0"
)

const replicaSet = "ReplicaSet"

// maxCards bounds the cards of one replica, so that sums do not overflow. The largest servers have 72.
const maxCards = 1e7

// UnreadableCards is the number of cards of a workload whose requests are not numbers.
const UnreadableCards = -1

// Identity is what all objects have. It implements metav1.ObjectMetaAccessor, by which caches know the object.
type Identity struct {
	Namespace string
	Name      string
	Version   string // resourceVersion
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (i *Identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, ResourceVersion: i.Version}
}

func identityOf(u *unstructured.Unstructured) Identity {
	return Identity{Namespace: u.GetNamespace(), Name: u.GetName(), Version: u.GetResourceVersion()}
}

// Owner is a workload.
type Owner struct{ Namespace, Kind, Name string }

// String returns the value of an index.
func (o Owner) String() string { return o.Namespace + "/" + o.Kind + "/" + o.Name }

// Workload is a target.
type Workload struct {
	Identity
	Replicas int64 // that its spec asks for
	Ready    int64
	// Cards are the accelerators that the pods of a replica request. Zero: none; UnreadableCards: not a number.
	Cards int64
	// Labels are those of the pods that serve.
	Labels map[string]string
	// Owner is the object of another kind that made it, which has no name if nobody did.
	Owner Owner
	// Controller is the object of any kind that controls it, nil if none does.
	Controller *Controller
}

// Controller is an object that controls a workload.
type Controller struct{ Group, Kind, Name string }

// Pod is a pod that serves, or will. The program only needs to know the existence of others, whose Owner and Labels are empty.
type Pod struct {
	Identity
	// Labels are those of a pod that belongs to no Deployment, StatefulSet or LeaderWorkerSet: the selector of its target can tell whether it
	// serves.
	Labels  map[string]string
	owner   unique.Handle[Owner] // pods of a workload share it
	created int64                // in seconds, as the API has it
	ready   int64                // since when, in seconds; 0: it is not
}

// Owner returns the workload of the pod.
func (p *Pod) Owner() Owner {
	if p.owner == (unique.Handle[Owner]{}) {
		return Owner{}
	}
	return p.owner.Value()
}

// Created returns the time of creation.
func (p *Pod) Created() time.Time { return time.Unix(p.created, 0) }

// Ready returns since when the pod is ready. Zero: it is not.
func (p *Pod) Ready() time.Time {
	if p.ready == 0 {
		return time.Time{}
	}
	return time.Unix(p.ready, 0)
}

// Pool is an InferencePool.
type Pool struct {
	Identity
	Created time.Time
	// Selector is nil if it selects nothing.
	Selector map[string]string
}

// Namespace is a namespace.
type Namespace struct {
	Identity
	Excluded bool // by AnnotationExclude
}

func readNamespace(u *unstructured.Unstructured) any {
	return &Namespace{Identity: identityOf(u), Excluded: newFields(u).annotation(AnnotationExclude) == trueValue}
}

func readPool(u *unstructured.Unstructured) any { return newPool(u, "spec", "selector", "matchLabels") }

func readAlphaPool(u *unstructured.Unstructured) any { return newPool(u, "spec", "selector") }

// newPool returns a pool. A selector with too many labels selects nothing: a part of it would select too much.
func newPool(u *unstructured.Unstructured, selector ...string) *Pool {
	pool := &Pool{Identity: identityOf(u), Created: u.GetCreationTimestamp().Time}
	f := newFields(u)
	if all, _ := f.at(selector...).(map[string]any); len(all) <= maxLabels {
		pool.Selector = f.labels(selector...)
		if len(pool.Selector) < len(all) {
			pool.Selector = nil // a value is not a text
		}
	}
	return pool
}

// readPod keeps the pods of workloads that are not about to end. Only the leader of a group of a LeaderWorkerSet serves.
func readPod(u *unstructured.Unstructured) any {
	p := &Pod{Identity: identityOf(u)}
	f := newFields(u)
	if phase := f.text("status", "phase"); u.GetDeletionTimestamp() != nil || phase == "Succeeded" || phase == "Failed" {
		return p
	}
	owner := ownerOf(u, f)
	if owner.Name == "" {
		if owner = makerOf(u); owner.Name == "" && !hasReplicaSet(u) {
			return p
		}
		p.Labels = f.labels("metadata", "labels")
	}
	if owner.Name != "" {
		p.owner = unique.Make(owner)
	}
	p.created = u.GetCreationTimestamp().Unix()
	conditions, _ := f.at("status", "conditions").([]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			p.ready = readySince(c, p.created)
		}
	}
	return p
}

// readySince returns the time of a condition that is true. One without a time counts from the creation of the pod.
func readySince(condition map[string]any, created int64) int64 {
	if condition["status"] != "True" {
		return 0
	}
	text, _ := condition["lastTransitionTime"].(string)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.Unix()
	}
	return created
}

// ownerOf returns the workload of a pod. The ReplicaSets of a Deployment are called as it, followed by the hash of the template.
func ownerOf(u *unstructured.Unstructured, f *fields) Owner {
	owner := func(kind, name string) Owner { return Owner{Namespace: u.GetNamespace(), Kind: kind, Name: name} }
	if set := f.label(labelSetName); set != "" {
		if f.label(labelWorkerIndex) == leaderIndex {
			return owner(LeaderWorkerSet, set)
		}
		return Owner{}
	}
	for _, o := range u.GetOwnerReferences() {
		switch {
		case o.Controller == nil || !*o.Controller || !strings.HasPrefix(o.APIVersion, "apps/"):
		case o.Kind == StatefulSet:
			return owner(StatefulSet, o.Name)
		case o.Kind == replicaSet:
			if name, ok := strings.CutSuffix(o.Name, "-"+f.label(labelTemplateHash)); ok {
				return owner(Deployment, name)
			}
		}
	}
	return Owner{}
}

// hasReplicaSet reports whether a ReplicaSet controls a pod. It is one of another kind than a Deployment, such as a Rollout, if the pod
// does not have the label of a Deployment.
func hasReplicaSet(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller && o.Kind == replicaSet
	})
}

// makerOf returns the object of a CRD that controls another one. A kind of the name of a workload would be taken for that.
func makerOf(u *unstructured.Unstructured) Owner {
	for _, o := range u.GetOwnerReferences() {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		if slices.Contains([]string{Deployment, StatefulSet, LeaderWorkerSet}, o.Kind) {
			continue
		}
		if o.Controller != nil && *o.Controller && strings.Contains(group, ".") && len(o.Kind)+len(o.Name) <= MaxText {
			return Owner{Namespace: u.GetNamespace(), Kind: strings.Clone(o.Kind), Name: strings.Clone(o.Name)}
		}
	}
	return Owner{}
}

// controllerOf returns the controller of an object, nil if it has none.
func controllerOf(u *unstructured.Unstructured) *Controller {
	for _, o := range u.GetOwnerReferences() {
		if o.Controller != nil && *o.Controller {
			group, _, _ := strings.Cut(o.APIVersion, "/")
			return &Controller{Group: cutText(group), Kind: cutText(o.Kind), Name: cutText(o.Name)}
		}
	}
	return nil
}

func indexWorkloadByOwner(obj any) ([]string, error) {
	if w, ok := obj.(*Workload); ok && w.Owner.Name != "" {
		return []string{w.Owner.String()}, nil
	}
	return nil, nil
}

// indexDeclarationByTarget indexes autoscalers by the workload that they scale.
func indexDeclarationByTarget(obj any) ([]string, error) {
	if d, ok := obj.(*Declaration); ok && d.Scales.Name != "" {
		return []string{d.Scales.String()}, nil
	}
	return nil, nil
}

func indexPodByTarget(obj any) ([]string, error) {
	p, ok := obj.(*Pod)
	if !ok || p.owner == (unique.Handle[Owner]{}) {
		return nil, nil
	}
	return []string{p.Owner().String()}, nil
}

// indexPodByNamespace indexes pods with labels.
func indexPodByNamespace(obj any) ([]string, error) {
	if p, ok := obj.(*Pod); ok && p.Labels != nil {
		return []string{p.Namespace}, nil
	}
	return nil, nil
}

func readWorkload(u *unstructured.Unstructured) any {
	f := newFields(u)
	return &Workload{
		Identity: identityOf(u), Replicas: replicasOf(f), Ready: f.number("status", "readyReplicas").Value,
		Cards: cardsOf(f, "spec", "template"), Labels: f.labels("spec", "template", "metadata", "labels"), Owner: makerOf(u), Controller: controllerOf(u),
	}
}

// readLeaderWorkerSet reads a workload whose replicas are groups of pods: a leader, and workers that have the template of the leader
// unless it has its own.
func readLeaderWorkerSet(u *unstructured.Unstructured) any {
	f := newFields(u)
	workers := []string{"spec", "leaderWorkerTemplate", "workerTemplate"}
	leader := workers
	if own := []string{"spec", "leaderWorkerTemplate", "leaderTemplate"}; f.at(own...) != nil {
		leader = own
	}
	w := &Workload{
		Identity: identityOf(u), Replicas: replicasOf(f), Ready: f.number("status", "readyReplicas").Value, Owner: makerOf(u), Controller: controllerOf(u),
	}
	size := int64(1)
	if n := f.number("spec", "leaderWorkerTemplate", "size"); n.Set {
		size = min(max(n.Value, 1), maxCards)
	}
	first, others := cardsOf(f, leader...), cardsOf(f, workers...)
	switch {
	case first == UnreadableCards || size > 1 && others == UnreadableCards:
		w.Cards = UnreadableCards
	case size > 1:
		w.Cards = min(first+(size-1)*others, maxCards)
	default:
		w.Cards = first
	}
	w.Labels = f.labels(slices.Concat(leader, []string{"metadata", "labels"})...)
	if w.Labels == nil {
		w.Labels = map[string]string{}
	}
	w.Labels[labelSetName], w.Labels[labelWorkerIndex] = w.Name, leaderIndex
	return w
}

func replicasOf(f *fields) int64 {
	if n := f.number("spec", "replicas"); n.Set {
		return n.Value
	}
	return 1 // the default of all workloads
}

// cardsOf returns the accelerators that the pods of a template request: what its containers need together, or one of its init containers
// alone.
func cardsOf(f *fields, template ...string) int64 {
	spec, _ := f.at(slices.Concat(template, []string{"spec"})...).(map[string]any)
	var together, alone int64
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			c, _ := c.(map[string]any)
			cards := cardsOfContainer(c)
			switch {
			case cards == UnreadableCards:
				return UnreadableCards
			case list == "containers" || c["restartPolicy"] == "Always": // a sidecar runs with the others
				together = min(together+cards, maxCards)
			default:
				alone = max(alone, cards)
			}
		}
	}
	return max(together, alone)
}

// cardsOfContainer reads limits where requests are absent: the API server copies them in pods, not in templates.
func cardsOfContainer(container map[string]any) int64 {
	f := &fields{object: container}
	var cards int64
	for _, name := range []string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi"} {
		value := f.at("resources", "requests", name)
		if value == nil {
			value = f.at("resources", "limits", name)
		}
		n, ok := readQuantity(value)
		if !ok {
			return UnreadableCards
		}
		cards = min(cards+n, maxCards)
	}
	return cards
}

// maxQuantity is the longest quantity that is read, in bytes.
const maxQuantity = 32

// readQuantity refuses exponents: the parser takes minutes for 1e-999999999. The API server writes none for numbers of cards.
func readQuantity(value any) (int64, bool) {
	switch v := value.(type) {
	case nil:
		return 0, true
	case int64:
		return min(v, maxCards), v >= 0
	case string:
		if len(v) > maxQuantity || strings.ContainsAny(v, "eE") {
			return 0, false
		}
		q, err := resource.ParseQuantity(v)
		return min(q.Value(), maxCards), err == nil && q.Sign() >= 0
	}
	return 0, false
}

// firstKeys returns the first n keys in their order.
func firstKeys(m map[string]any, n int) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys[:min(n, len(keys))]
}
