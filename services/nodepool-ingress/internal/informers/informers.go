// Package informers declares the kinds of objects that plans depend on, and the fields that the caches keep.
package informers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
	kit "fairlead.dev/pkg/informers"
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

// Caches contains a cache of each kind. The comments give the types of the objects.
type Caches struct {
	YurtIngresses  kit.Informer // *v1alpha1.YurtIngress
	Nodes          kit.Informer // *Node
	IngressClasses kit.Informer // *unstructured.Unstructured, of any owner
	Manifests      kit.Informer // *corev1.ConfigMap

	// NodePools contains a cache for each version, of which one has objects: *metav1.PartialObjectMetadata.
	NodePools []kit.Informer
	// Definitions contains a cache for each custom resource of Traefik: *metav1.PartialObjectMetadata of its definition.
	Definitions []kit.Informer
	// Managed contains a cache for each kind that the program writes, except IngressClass: *unstructured.Unstructured.
	Managed map[schema.GroupVersionResource]kit.Informer
}

// Declare declares all kinds.
func (o Options) Declare() kit.Declaration[Caches] {
	return func(add func(kit.Kind) kit.Informer) Caches {
		caches := Caches{
			YurtIngresses: add(kit.Kind{
				Resource: YurtIngresses, Name: "YurtIngress", Required: true,
				Indexers:  cache.Indexers{indexPool: kit.IndexBy(poolsOf), indexManifest: kit.IndexBy(manifestOf)},
				Transform: kit.Typed(func(y *v1alpha1.YurtIngress) { y.ManagedFields = nil }),
			}),
			Nodes: add(kit.Kind{
				Resource: nodes, Name: "Node", Required: true, Indexers: cache.Indexers{indexLabel: kit.IndexBy(labelsOf)},
				Transform: trimNode(o.LabelKeys),
			}),
			IngressClasses: add(kit.Kind{
				Resource: plan.IngressClasses, Name: "IngressClass", Required: true, Indexers: ownerIndexers(), Transform: trimManagedFields,
			}),
			Manifests: add(kit.Kind{
				Resource: plan.ConfigMaps, Name: "ConfigMap", Namespace: o.Namespace, Selector: v1alpha1.LabelCustomManifest + "=true",
				Transform: kit.Typed(func(c *corev1.ConfigMap) { c.ManagedFields, c.Annotations, c.BinaryData = nil, nil, nil }),
			}),
			Managed: map[schema.GroupVersionResource]kit.Informer{},
		}
		for i, version := range nodePoolVersions { // all versions contain the same objects
			caches.NodePools = append(caches.NodePools, add(kit.Kind{
				Resource: schema.GroupVersionResource{Group: v1alpha1.SchemeGroupVersion.Group, Version: version, Resource: "nodepools"},
				Name:     "NodePool", Preferred: nodePoolVersions[:i], Transform: kit.Metadata(),
			}))
		}
		// One by one: all definitions of a cluster need more memory than all other objects.
		for _, definition := range traefik.Definitions() {
			caches.Definitions = append(caches.Definitions, add(kit.Kind{
				Resource: definitions, Name: "CustomResourceDefinition", Fields: "metadata.name=" + definition, Transform: kit.Metadata(),
				Off: !o.Traefik,
			}))
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
			caches.Managed[k.Resource] = add(managed)
		}
		return caches
	}
}

// Informers watch all kinds.
type Informers struct {
	*kit.Group
	Caches
}

// New returns informers. Run starts them.
func New(p kit.Params, o Options) *Informers {
	group := kit.NewGroup(p)
	return &Informers{Group: group, Caches: o.Declare().Watch(group)}
}

// ByOwner returns the objects that a YurtIngress controls.
func ByOwner(r kit.Reader, uid string) []*unstructured.Unstructured {
	return kit.CastObjects[*unstructured.Unstructured](r.ByIndex(indexOwner, uid))
}

// ByPoolLabel returns the objects with the label of a pool.
func ByPoolLabel(r kit.Reader, pool string) []*unstructured.Unstructured {
	return kit.CastObjects[*unstructured.Unstructured](r.ByIndex(indexPool, pool))
}

// ByListedPool returns the YurtIngresses that list a pool.
func ByListedPool(r kit.Reader, pool string) []*v1alpha1.YurtIngress {
	return kit.CastObjects[*v1alpha1.YurtIngress](r.ByIndex(indexPool, pool))
}

// ByManifest returns the YurtIngresses that name a ConfigMap.
func ByManifest(r kit.Reader, configMap string) []*v1alpha1.YurtIngress {
	return kit.CastObjects[*v1alpha1.YurtIngress](r.ByIndex(indexManifest, configMap))
}

// ByNodeLabel returns the nodes with a label.
func ByNodeLabel(r kit.Reader, key, value string) []*Node {
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
