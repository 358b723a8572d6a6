package informers

import (
	"slices"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

// Labels that workloads set on their pods.
const (
	labelTemplateHash = "pod-template-hash"
	labelSetName      = "leaderworkerset.sigs.k8s.io/name"
	labelWorkerIndex  = "leaderworkerset.sigs.k8s.io/worker-index"
	leaderIndex       = "0"
)

const replicaSet = "ReplicaSet"

// KindInferenceService is the kind of services of OME and of KServe.
const KindInferenceService = "InferenceService"

// maxCards bounds the cards of one replica, so that sums do not overflow. The largest servers have 72.
const maxCards = 1e7

// UnreadableCards is the number of cards of a workload whose requests are not numbers.
const UnreadableCards = inventory.Unreadable

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

// indexKeys returns the value of an index, none if there is no owner.
func (o Owner) indexKeys() []string {
	if o.Name == "" {
		return nil
	}
	return []string{o.String()}
}

// Workload is a target.
type Workload struct {
	Identity
	Replicas int64 // that its spec asks for
	Ready    int64
	// Cards are the accelerators that the pods of a replica request. Zero: none; UnreadableCards: not a number.
	Cards int64
	// Shape is what each of these pods requests, and what their templates say of nodes. It has no cards if they request several resources.
	Shape inventory.Shape
	// Claims is what they request by claims of devices, nil if they do not.
	Claims *PodClaims
	// Labels are those of the pods that serve.
	Labels map[string]string
	// Queue is the LocalQueue of Kueue that it names, and Queued reports that Kueue manages it.
	Queue  string
	Queued bool
	// Owner is the object of another kind that made it, which has no name if nobody did.
	Owner Owner
	// Controller is the object of any kind that controls it, nil if none does.
	Controller *Controller
}

// Controller is an object that controls a workload.
type Controller struct {
	Group, Kind, Name string
	// LeavesReplicas reports whether it leaves the replicas of the workload to other programs.
	LeavesReplicas bool
}

// GroupOME is the API group of OME.
const GroupOME = "ome.io"

// Annotation by which OME makes no autoscaler for an InferenceService, and keeps the replicas that another program writes.
const (
	AnnotationOMEAutoscaler = GroupOME + "/autoscalerClass"
	OMEAutoscalerExternal   = "external"
)

// IsOME reports whether the controller is an InferenceService of OME.
func (c *Controller) IsOME() bool { return c.Group == GroupOME && c.Kind == KindInferenceService }

// Pod is a pod that serves, or will. The program only needs to know the existence of others, whose Owner and Labels are empty.
type Pod struct {
	Identity
	// Labels are those of a pod that belongs to no Deployment, StatefulSet or LeaderWorkerSet: the selector of its target can tell whether
	// it serves.
	Labels  map[string]string
	owner   unique.Handle[Owner] // pods of a workload share it
	created int64                // in seconds, as the API has it
	ready   int64                // since when, in seconds; 0: it is not
	holding *Holding
}

// Holding is what a pod holds of a node, or of a quota.
type Holding struct {
	Node  unique.Handle[string] // empty: it has none yet, and Kueue manages it
	Cards unique.Handle[inventory.Cards]
	// Owner is the workload of the pod, which may be a worker that does not serve. It has no name if the pod belongs to none.
	Owner unique.Handle[Owner]
	// Terminating pods hold their cards until they are gone.
	Terminating bool
	// Queued pods are those that Kueue manages, and Gated ones wait for it.
	Queued, Gated bool
	// Claims reports that the pod requests devices by claims.
	Claims bool
}

// Owner returns the workload of the pod.
func (p *Pod) Owner() Owner {
	if p.owner == (unique.Handle[Owner]{}) {
		return Owner{}
	}
	return p.owner.Value()
}

// Holding returns what the pod holds of a node or of a quota. Nil: nothing.
func (p *Pod) Holding() *Holding { return p.holding }

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
	// Picker is the Service of its endpoint picker, in its namespace. Empty: it names none.
	Picker string
}

// Namespace is a namespace.
type Namespace struct {
	Identity
	Excluded bool // by AnnotationExclude
}

func readNamespace(u *unstructured.Unstructured) any {
	return &Namespace{Identity: identityOf(u), Excluded: newFields(u).annotation(AnnotationExclude) == trueValue}
}

// readPool reads a pool with the names of its fields. A selector with too many labels selects nothing: a part of it would select too much.
func readPool(u *unstructured.Unstructured, picker string, selector ...string) any {
	f := newFields(u)
	pool := &Pool{Identity: identityOf(u), Created: u.GetCreationTimestamp().Time, Picker: pickerOf(f, picker)}
	if selected, _ := f.value(selector...).(map[string]any); len(selected) <= maxLabels {
		pool.Selector = f.labelsAt(maxLabels, selector...)
		if len(pool.Selector) < len(selected) {
			pool.Selector = nil // a value is not a text
		}
	}
	return pool
}

// readPod keeps the pods of workloads that are not about to end, nor wait for Kueue. Only the leader of a group of a LeaderWorkerSet
// serves.
func readPod(u *unstructured.Unstructured) any {
	p := &Pod{Identity: identityOf(u)}
	f := newFields(u)
	phase := f.textAt("status", "phase")
	if phase == "Succeeded" || phase == "Failed" {
		return p
	}
	owner, serves := ownerOf(u, f)
	byLabels := false
	if owner.Name == "" {
		owner = creatorOf(u)
		byLabels = owner.Name != "" || hasReplicaSet(u)
	}
	admission := admissionOf(f)
	p.holding = holdingOf(u, f, owner, admission)
	switch {
	case u.GetDeletionTimestamp() != nil, !serves, admission.gated, owner.Name == "" && !byLabels:
		return p
	case byLabels:
		p.Labels = f.labelsAt(maxLabels, "metadata", "labels")
	}
	p.owner = unique.Make(owner)
	p.readTimes(u, f, admission)
	return p
}

// readTimes reads since when a pod starts and is ready.
func (p *Pod) readTimes(u *unstructured.Unstructured, f *fields, a admission) {
	p.created = u.GetCreationTimestamp().Unix()
	for c := range f.itemsAt("status", "conditions") {
		switch {
		case c.object["type"] == "Ready":
			p.ready = trueSince(c.object, p.created)
		case c.object["type"] == "PodScheduled" && a.queued: // it waited for quota before that
			p.created = max(p.created, trueSince(c.object, p.created))
		}
	}
}

// holdingOf returns what a pod holds of a node or of a quota, nil if it requests none, or is on no node and Kueue does not manage it.
func holdingOf(u *unstructured.Unstructured, f *fields, owner Owner, a admission) *Holding {
	node, requests := f.textAt("spec", "nodeName"), requestsOf(f)
	claims := len(f.listAt("spec", "resourceClaims")) > 0
	if node == "" && !a.queued || requests == (inventory.Cards{}) && !claims {
		return nil
	}
	return &Holding{
		Node: unique.Make(node), Cards: unique.Make(requests), Owner: unique.Make(owner), Terminating: u.GetDeletionTimestamp() != nil,
		Queued: a.queued, Gated: a.gated, Claims: claims,
	}
}

// trueSince returns the time of a condition that is true, or 0. One without a time counts from the creation of the pod.
func trueSince(condition map[string]any, created int64) int64 {
	if condition["status"] != "True" {
		return 0
	}
	text, _ := condition["lastTransitionTime"].(string)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.Unix()
	}
	return created
}

// ownerOf returns the workload of a pod, and whether the pod serves for it. The ReplicaSets of a Deployment are called as it, followed by
// the hash of the template.
func ownerOf(u *unstructured.Unstructured, f *fields) (w Owner, serves bool) {
	owner := func(kind, name string) Owner { return Owner{Namespace: u.GetNamespace(), Kind: kind, Name: name} }
	if set := f.label(labelSetName); set != "" {
		return owner(LeaderWorkerSet, set), f.label(labelWorkerIndex) == leaderIndex
	}
	for _, o := range u.GetOwnerReferences() {
		switch {
		case o.Controller == nil || !*o.Controller || !strings.HasPrefix(o.APIVersion, "apps/"):
		case o.Kind == StatefulSet:
			return owner(StatefulSet, o.Name), true
		case o.Kind == replicaSet:
			if name, ok := strings.CutSuffix(o.Name, "-"+f.label(labelTemplateHash)); ok {
				return owner(Deployment, name), true
			}
		}
	}
	return Owner{}, true
}

// hasReplicaSet reports whether a ReplicaSet controls a pod. It is one of another kind than a Deployment, such as a Rollout, if the pod
// does not have the label of a Deployment.
func hasReplicaSet(u *unstructured.Unstructured) bool {
	o := metav1.GetControllerOfNoCopy(u)
	return o != nil && o.Kind == replicaSet
}

// creatorOf returns the object of a CRD that controls another one. A kind of the name of a workload would be taken for that.
func creatorOf(u *unstructured.Unstructured) Owner {
	o := metav1.GetControllerOfNoCopy(u)
	if o == nil || slices.Contains([]string{Deployment, StatefulSet, LeaderWorkerSet}, o.Kind) {
		return Owner{}
	}
	group, _, _ := strings.Cut(o.APIVersion, "/")
	if !strings.Contains(group, ".") || len(o.Kind)+len(o.Name) > MaxText {
		return Owner{}
	}
	return Owner{Namespace: u.GetNamespace(), Kind: strings.Clone(o.Kind), Name: strings.Clone(o.Name)}
}

// controllerOf returns the controller of an object, nil if it has none.
func controllerOf(u *unstructured.Unstructured) *Controller {
	o := metav1.GetControllerOfNoCopy(u)
	if o == nil {
		return nil
	}
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return &Controller{Group: cutText(group), Kind: cutText(o.Kind), Name: cutText(o.Name)}
}
