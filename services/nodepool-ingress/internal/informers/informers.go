// Package informers declares the kinds of objects that plans depend on, and the fields that the caches keep.
package informers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// YurtIngresses is the resource of the specifications.
var YurtIngresses = v1alpha1.SchemeGroupVersion.WithResource("yurtingresses")

var (
	nodes       = corev1.SchemeGroupVersion.WithResource("nodes")
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// nodePoolVersions are the versions of NodePool that OpenYurt has had, in order of preference.
var nodePoolVersions = []string{"v1beta2", "v1beta1", "v1alpha1"}

// Indexes.
const (
	indexOwner    = "owner"    // UID of the YurtIngress that controls an object
	indexPool     = "pool"     // pools that a YurtIngress lists; the pool in the label of an object
	indexManifest = "manifest" // name of the ConfigMap that a YurtIngress names
	indexLabel    = "label"    // key=value of the labels of a node that can be those of a pool
)

// Options are the flags that select the objects to read.
type Options struct {
	Namespace string   // of the objects of pools and of custom manifests
	LabelKeys []string // of nodes
	Traefik   bool     // pools may have it
}

// Set contains a value for each kind. The comments give the types of the cached objects.
type Set[T any] struct {
	YurtIngresses  T // *v1alpha1.YurtIngress
	Nodes          T // *Node
	IngressClasses T // *unstructured.Unstructured, of any owner
	Manifests      T // *corev1.ConfigMap

	// NodePools contains a value for each version, in order of preference: *metav1.PartialObjectMetadata.
	NodePools []T
	// Definitions contains a value for each custom resource of Traefik: *metav1.PartialObjectMetadata of its definition.
	Definitions []T
	// Managed contains a value for each kind that the program writes, except IngressClass: *unstructured.Unstructured.
	Managed map[schema.GroupVersionResource]T
}

// values returns the values in any order.
func (s *Set[T]) values() []T {
	values := slices.Concat([]T{s.YurtIngresses, s.Nodes, s.IngressClasses, s.Manifests}, s.NodePools, s.Definitions)
	return slices.AppendSeq(values, maps.Values(s.Managed))
}

// Kinds declares all kinds.
func Kinds(o Options) Set[kit.Kind] {
	kinds := Set[kit.Kind]{
		YurtIngresses: kit.Kind{
			Resource: YurtIngresses, Name: "YurtIngress", Required: true,
			Indexers:  cache.Indexers{indexPool: kit.IndexBy(poolsOf), indexManifest: kit.IndexBy(manifestOf)},
			Transform: kit.Typed(func(y *v1alpha1.YurtIngress) { y.ManagedFields = nil }),
		},
		Nodes: kit.Kind{
			Resource: nodes, Name: "Node", Required: true, Indexers: cache.Indexers{indexLabel: kit.IndexBy(labelsOf)},
			Transform: trimNode(o.LabelKeys),
		},
		IngressClasses: kit.Kind{
			Resource: plan.IngressClasses, Name: "IngressClass", Required: true, Indexers: ownerIndexers(), Transform: trimManagedFields,
		},
		Manifests: kit.Kind{
			Resource: plan.ConfigMaps, Name: "ConfigMap", Namespace: o.Namespace, Selector: v1alpha1.LabelCustomManifest + "=true",
			Transform: kit.Typed(func(c *corev1.ConfigMap) { c.ManagedFields, c.Annotations, c.BinaryData = nil, nil, nil }),
		},
		Managed: map[schema.GroupVersionResource]kit.Kind{},
	}
	for _, version := range nodePoolVersions {
		resource := schema.GroupVersionResource{Group: v1alpha1.SchemeGroupVersion.Group, Version: version, Resource: "nodepools"}
		kinds.NodePools = append(kinds.NodePools, kit.Kind{Resource: resource, Name: "NodePool", Transform: kit.Metadata()})
	}
	for _, definition := range traefik.Definitions() { // one by one: all definitions of a cluster need more memory than all other objects
		kinds.Definitions = append(kinds.Definitions, kit.Kind{
			Resource: definitions, Name: "CustomResourceDefinition", Fields: "metadata.name=" + definition, Transform: kit.Metadata(),
			Off: !o.Traefik,
		})
	}
	for _, k := range plan.Kinds() {
		if k.Resource == plan.IngressClasses {
			continue
		}
		managed := kit.Kind{
			Resource: k.Resource, Name: k.Kind, Selector: v1alpha1.LabelManagedBy + "=" + v1alpha1.Manager, Indexers: ownerIndexers(),
			Transform: trimManagedFields, Required: true,
		}
		if k.Namespaced {
			managed.Namespace = o.Namespace
		}
		kinds.Managed[k.Resource] = managed
	}
	return kinds
}

// mapSet returns a Set with the results of f for the values of another Set.
func mapSet[A, B any](set Set[A], f func(A) B) Set[B] {
	mapped := Set[B]{
		YurtIngresses: f(set.YurtIngresses), Nodes: f(set.Nodes), IngressClasses: f(set.IngressClasses), Manifests: f(set.Manifests),
		Managed: map[schema.GroupVersionResource]B{},
	}
	for _, a := range set.NodePools {
		mapped.NodePools = append(mapped.NodePools, f(a))
	}
	for _, a := range set.Definitions {
		mapped.Definitions = append(mapped.Definitions, f(a))
	}
	for resource, a := range set.Managed {
		mapped.Managed[resource] = f(a)
	}
	return mapped
}

// AllKinds returns all kinds, in any order.
func AllKinds(o Options) []kit.Kind {
	kinds := Kinds(o)
	return kinds.values()
}

// Reader reads the cached objects of one kind.
type Reader = kit.Reader

// Caches contains a Reader for each kind.
type Caches = Set[Reader]

// Informers watch all kinds.
type Informers struct {
	*kit.Group
	Set[*kube.OptionalInformer]
}

// Params holds the dependencies of Informers.
type Params struct {
	Options

	Log       *zap.Logger
	Client    dynamic.Interface
	Discovery kube.ResourceDiscovery
	Interval  time.Duration // time between two checks of the kinds that the API server serves
}

// New returns informers. Run starts them.
func New(p Params) *Informers {
	group := kit.NewGroup(kit.Params{Log: p.Log, Client: p.Client, Discovery: preferredVersions{p.Discovery}, Interval: p.Interval})
	return &Informers{Group: group, Set: mapSet(Kinds(p.Options), group.Add)}
}

// Caches returns the caches of the informers.
func (i *Informers) Caches() Caches {
	return mapSet(i.Set, func(o *kube.OptionalInformer) Reader { return o })
}

// ReadSnapshot returns caches of objects that were read once. It ignores objects of other kinds.
func ReadSnapshot(world kit.Snapshot, o Options) (Caches, error) {
	var failed error
	caches := mapSet(Kinds(o), func(k kit.Kind) Reader {
		r, err := world.Reader(k)
		if err != nil {
			failed = err
		}
		return r
	})
	return caches, failed
}

// preferredVersions makes discovery find NodePool only in the preferred version that the API server serves. All versions contain the same
// objects.
type preferredVersions struct{ kube.ResourceDiscovery }

// ServerResourcesForGroupVersionWithContext implements kube.ResourceDiscovery.
func (p preferredVersions) ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string,
) (*metav1.APIResourceList, error) {
	list, err := p.ResourceDiscovery.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
	group, parseErr := schema.ParseGroupVersion(groupVersion)
	if err != nil || parseErr != nil || group.Group != v1alpha1.SchemeGroupVersion.Group {
		return list, err
	}
	for _, version := range nodePoolVersions {
		if version == group.Version {
			break
		}
		other, err := p.ResourceDiscovery.ServerResourcesForGroupVersionWithContext(ctx, group.Group+"/"+version)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case slices.ContainsFunc(other.APIResources, isNodePool):
			rest := *list
			rest.APIResources = slices.DeleteFunc(slices.Clone(list.APIResources), isNodePool)
			return &rest, nil
		}
	}
	return list, nil
}

func isNodePool(r metav1.APIResource) bool { return r.Name == "nodepools" }

// ByOwner returns the objects that a YurtIngress controls.
func ByOwner(r Reader, uid string) []*unstructured.Unstructured {
	return kit.CastObjects[*unstructured.Unstructured](r.ByIndex(indexOwner, uid))
}

// ByPoolLabel returns the objects with the label of a pool.
func ByPoolLabel(r Reader, pool string) []*unstructured.Unstructured {
	return kit.CastObjects[*unstructured.Unstructured](r.ByIndex(indexPool, pool))
}

// ByListedPool returns the YurtIngresses that list a pool.
func ByListedPool(r Reader, pool string) []*v1alpha1.YurtIngress {
	return kit.CastObjects[*v1alpha1.YurtIngress](r.ByIndex(indexPool, pool))
}

// ByManifest returns the YurtIngresses that name a ConfigMap.
func ByManifest(r Reader, configMap string) []*v1alpha1.YurtIngress {
	return kit.CastObjects[*v1alpha1.YurtIngress](r.ByIndex(indexManifest, configMap))
}

// ByNodeLabel returns the nodes with a label.
func ByNodeLabel(r Reader, key, value string) []*Node {
	return kit.CastObjects[*Node](r.ByIndex(indexLabel, key+"="+value))
}

// FindOwner returns the YurtIngress that controls an object.
func FindOwner(obj any) (metav1.OwnerReference, bool) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return metav1.OwnerReference{}, false
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != "YurtIngress" || !strings.HasPrefix(ref.APIVersion, v1alpha1.SchemeGroupVersion.Group+"/") {
		return metav1.OwnerReference{}, false
	}
	return *ref, true
}

func ownerIndexers() cache.Indexers {
	return cache.Indexers{
		indexOwner: kit.IndexBy(func(u *unstructured.Unstructured) []string {
			if owner, ok := FindOwner(u); ok {
				return []string{string(owner.UID)}
			}
			return nil
		}),
		indexPool: kit.IndexBy(func(u *unstructured.Unstructured) []string {
			if pool := u.GetLabels()[v1alpha1.LabelPool]; pool != "" {
				return []string{pool}
			}
			return nil
		}),
	}
}

func poolsOf(y *v1alpha1.YurtIngress) []string {
	var pools []string
	for i := range y.Spec.Pools {
		pools = append(pools, y.Spec.Pools[i].Name)
	}
	return pools
}

func manifestOf(y *v1alpha1.YurtIngress) []string {
	if y.Spec.CustomManifest == nil {
		return nil
	}
	return []string{y.Spec.CustomManifest.ConfigMap}
}

// trimManagedFields removes the managed fields, unless this program set fields of the object by a create or update instead of an apply:
// then the next apply needs all managed fields to migrate them.
func trimManagedFields(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	if !slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == v1alpha1.Manager && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
	}) {
		u.SetManagedFields(nil)
	}
	return u, nil
}
