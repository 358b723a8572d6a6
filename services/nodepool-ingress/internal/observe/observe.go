// Package observe reads the caches into the input of package plan. It decides nothing.
package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// Observer reads the caches.
type Observer struct {
	caches informers.Caches
	policy plan.Policy
}

// New returns an Observer.
func New(caches informers.Caches, policy plan.Policy) *Observer {
	return &Observer{caches: caches, policy: policy}
}

// YurtIngressNames returns the names of all YurtIngresses, sorted.
func (o *Observer) YurtIngressNames() []cache.ObjectName {
	var names []cache.ObjectName
	for _, object := range kit.CastObjects[metav1.Object](o.caches.YurtIngresses.List()) {
		names = append(names, cache.ObjectName{Name: object.GetName()})
	}
	slices.SortFunc(names, func(a, b cache.ObjectName) int { return cmp.Compare(a.Name, b.Name) })
	return names
}

// YurtIngress returns an object, which must not be modified. readable is false for an object that cannot be decoded: only its identity is
// known.
func (o *Observer) YurtIngress(name cache.ObjectName) (object *v1alpha1.YurtIngress, readable bool) {
	obj, _ := o.caches.YurtIngresses.Get(name)
	switch obj := obj.(type) {
	case *v1alpha1.YurtIngress:
		return obj, true
	case *metav1.PartialObjectMetadata:
		return &v1alpha1.YurtIngress{ObjectMeta: obj.ObjectMeta}, false
	}
	return nil, true
}

// Observe returns the input of a plan.
func (o *Observer) Observe(object *v1alpha1.YurtIngress) plan.Input {
	in := plan.Input{
		Object: object, Policy: o.policy, Pools: map[string]plan.Observed{}, Live: o.LiveObjects(object.UID),
		Manifest:     o.observeManifest(object.Spec.CustomManifest),
		TraefikKinds: !slices.ContainsFunc(o.caches.Definitions, func(r kit.Informer) bool { return len(r.List()) == 0 }),
	}
	key := cmp.Or(object.Spec.PoolLabelKey, o.policy.LabelKeys[0])
	for i := range object.Spec.Pools {
		name := object.Spec.Pools[i].Name
		if _, known := in.Pools[name]; !known && len(in.Pools) < plan.MaxPools {
			in.Pools[name] = o.observePool(key, name)
		}
	}
	return in
}

// LiveObjects returns the objects that a YurtIngress controls, sorted.
func (o *Observer) LiveObjects(uid types.UID) []plan.Object {
	var live []plan.Object
	for _, k := range plan.Kinds() {
		reader := o.caches.IngressClasses
		if k.Resource != plan.IngressClasses {
			reader = o.caches.Managed[k.Resource]
		}
		first := len(live)
		for _, u := range informers.ByOwner(reader, string(uid)) {
			live = append(live, plan.Object{Resource: k.Resource, Object: u})
		}
		slices.SortFunc(live[first:], func(a, b plan.Object) int { return cmp.Compare(a.Object.GetName(), b.Object.GetName()) })
	}
	return live
}

func (o *Observer) observeManifest(ref *v1alpha1.CustomManifest) plan.Manifest {
	if ref == nil {
		return plan.Manifest{}
	}
	key := cmp.Or(ref.Key, v1alpha1.DefaultManifestKey)
	namespace := o.policy.Install.Namespace
	m := plan.Manifest{Source: fmt.Sprintf("key %q of ConfigMap %q in namespace %s", key, ref.ConfigMap, namespace)}
	obj, _ := o.caches.Manifests.Get(cache.ObjectName{Namespace: namespace, Name: ref.ConfigMap})
	if c, ok := obj.(*corev1.ConfigMap); ok {
		m.Text, m.Found = c.Data[key]
	}
	return m
}

// observePool observes a pool.
func (o *Observer) observePool(key, name string) plan.Observed {
	observed := plan.Observed{Claim: o.observeClaim(name)}
	for _, n := range informers.ByNodeLabel(o.caches.Nodes, key, name) {
		observed.Nodes++
		if n.Ready {
			observed.ReadyNodes++
		}
	}
	observed.Exists = observed.Nodes > 0
	for _, reader := range o.caches.NodePools {
		if _, found := reader.Get(cache.ObjectName{Name: name}); found {
			observed.Exists = true
		}
	}
	return observed
}

// observeClaim observes which YurtIngresses list a pool, and which one has it.
func (o *Observer) observeClaim(pool string) plan.Claim {
	var claim plan.Claim
	for _, y := range informers.ByListedPool(o.caches.YurtIngresses, pool) {
		if y.DeletionTimestamp == nil {
			claim.Contenders = append(claim.Contenders, plan.Contender{Age: ownership.AgeOf(y), UID: y.UID})
		}
	}
	if obj, found := o.caches.IngressClasses.Get(cache.ObjectName{Name: o.policy.ClassName(pool)}); found {
		claim.Class.Exists = true
		if owner, found := informers.FindOwner(obj); found { // not the label, which another client may have removed
			claim.Class.Owner = owner.UID
		}
	}
	holders := sets.New[types.UID]()
	for _, reader := range o.caches.Managed {
		for _, u := range informers.ByPoolLabel(reader, pool) {
			if owner, found := informers.FindOwner(u); found {
				holders.Insert(owner.UID)
			}
		}
	}
	claim.Holders = slices.Sorted(maps.Keys(holders))
	return claim
}
