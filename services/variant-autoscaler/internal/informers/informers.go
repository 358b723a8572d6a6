// Package informers holds the informers of all kinds that the program reads, with their indexes. Objects become the small structs of
// this package, which hold only what the program uses:
//
//	VariantAutoscaling, HorizontalPodAutoscaler, ScaledObject    *Declaration
//	Deployment, StatefulSet, LeaderWorkerSet                     *Workload
//	Pod                                                          *Pod
//	InferencePool                                                *Pool
//	Namespace                                                    *Namespace
//	Node                                                         *Node
//	ClusterQueue, Cohort                                         *QuotaOwner
//	ResourceFlavor                                               *Flavor
//	ResourceSlice                                                *DeviceSlice
//	ResourceClaim                                                *DeviceClaim
//	ResourceClaimTemplate, DeviceClass                           *DeviceRequest
//	EndpointSlice                                                *Endpoints
//
// These objects are untrusted. So no object fails to be read, and texts, lists and numbers are bounded: see Spec.Invalid.
package informers

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Kinds of targets.
const (
	Deployment      = "Deployment"
	StatefulSet     = "StatefulSet"
	LeaderWorkerSet = "LeaderWorkerSet"
)

const (
	// byTarget indexes pods by the workload that they belong to, and autoscalers by the one that they scale.
	byTarget = "target"
	// byOwner indexes workloads by the object of another kind that made them.
	byOwner = "owner"
	// byNamespace indexes pods that only their labels assign to a target.
	byNamespace = "namespace"
)

// Set has something for each kind.
type Set[T any] struct {
	VariantAutoscalings      T
	HorizontalPodAutoscalers T
	ScaledObjects            T
	Deployments              T
	StatefulSets             T
	LeaderWorkerSets         T
	Pods                     T
	InferencePools           T
	// AlphaInferencePools are those of the group inference.networking.x-k8s.io.
	AlphaInferencePools T
	Namespaces          T

	// Nodes, and the kinds of Kueue and of dynamic resource allocation, are watched once the limiter is on: see WatchInventory. LocalQueues
	// are not watched: tenants create them.
	Nodes                T
	ClusterQueues        T
	OlderClusterQueues   T
	Cohorts              T
	OlderCohorts         T
	ResourceFlavors      T
	OlderResourceFlavors T

	ResourceSlices         T
	ResourceClaims         T
	ResourceClaimTemplates T
	DeviceClasses          T
}

// Informers are the informers.
type Informers struct {
	*kit.Group
	Set[*kube.OptionalInformer]
	// Endpoints are those of pickers. Without the permission to list them, no picker is found.
	Endpoints *kube.OptionalInformer

	inventory      *kit.Group // of the kinds that only the limiter reads
	watchInventory func()
	inventoryOn    chan struct{} // closed by watchInventory
}

// Caches are the caches of all kinds.
type Caches = Set[kit.Reader]

// Params are the parts of Informers.
type Params struct {
	kit.Params
	// Instance is the value of LabelInstance of the objects that this installation reads. Empty: those without the label.
	Instance string
	// Endpoints lists EndpointSlices too.
	Endpoints bool
}

// New returns informers. Run starts them.
func New(p Params) *Informers {
	endpoints := EndpointsKind()
	endpoints.Off = !p.Endpoints
	group, on := kit.NewGroup(p.Params), make(chan struct{})
	p.Discovery = preferredVersions{p.Discovery}
	inventory := kit.NewGroup(p.Params)
	add := func(k kit.Kind) *kube.OptionalInformer {
		if k.Required {
			return group.Add(k)
		}
		return inventory.Add(k)
	}
	return &Informers{
		Group: group, Set: mapSet(Kinds(p.Instance), add), Endpoints: group.Add(endpoints), inventory: inventory,
		inventoryOn: on, watchInventory: sync.OnceFunc(func() { close(on) }),
	}
}

// WatchInventory starts to watch nodes, quotas and devices, for as long as the program runs.
func (i *Informers) WatchInventory() { i.watchInventory() }

// Run watches until ctx ends.
func (i *Informers) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { i.Group.Run(ctx) })
	select {
	case <-i.inventoryOn:
		i.inventory.Run(ctx)
	case <-ctx.Done():
	}
	group.Wait()
}

// Unsynced returns the names of the kinds that are not listed yet.
func (i *Informers) Unsynced() []string {
	unsynced := i.Group.Unsynced()
	select {
	case <-i.inventoryOn:
		unsynced = append(unsynced, slices.Compact(i.inventory.Unsynced())...) // a kind may have two versions
	default:
	}
	return unsynced
}

// Caches returns the caches of the informers.
func (i *Informers) Caches() Caches {
	return preferNewer(mapSet(i.Set, func(o *kube.OptionalInformer) kit.Reader { return o }))
}

// SnapshotCaches returns caches with the objects of a snapshot.
func SnapshotCaches(world kit.Snapshot, instance string) (Caches, error) {
	var first error
	read := func(k kit.Kind) kit.Reader {
		reader, err := world.Reader(k)
		if err != nil && first == nil {
			first = err
		}
		return reader
	}
	return preferNewer(mapSet(Kinds(instance), read)), first
}

// Kinds returns the kinds that the program reads. All but those of the limiter are required: without the permission to list one of them,
// variants would disappear, or groups would change.
func Kinds(instance string) Set[kit.Kind] {
	pod := newKind("", "v1", "pods", "Pod", readPod)
	pod.Indexers = cache.Indexers{
		byTarget: kit.IndexBy(func(p *Pod) []string { return p.Owner().indexKeys() }),
		byNamespace: kit.IndexBy(func(p *Pod) []string {
			if p.Labels == nil {
				return nil
			}
			return []string{p.Namespace}
		}),
	}
	declarations := func(group, version, resource string, source snapshot.Source) kit.Kind {
		k := newKind(group, version, resource, string(source),
			func(u *unstructured.Unstructured) any { return readDeclaration(source, instance, u) })
		k.Indexers = cache.Indexers{byTarget: kit.IndexBy(func(d *Declaration) []string { return d.Scales.indexKeys() })}
		return k
	}
	workloads := func(group, resource, name string, read func(*unstructured.Unstructured) any) kit.Kind {
		k := newKind(group, "v1", resource, name, read)
		k.Indexers = cache.Indexers{byOwner: kit.IndexBy(func(w *Workload) []string { return w.Owner.indexKeys() })}
		return k
	}
	return Set[kit.Kind]{
		VariantAutoscalings:      declarations("llmd.ai", "v1alpha1", "variantautoscalings", snapshot.VariantAutoscaling),
		HorizontalPodAutoscalers: declarations("autoscaling", "v2", "horizontalpodautoscalers", snapshot.HorizontalPodAutoscaler),
		ScaledObjects:            declarations("keda.sh", "v1alpha1", "scaledobjects", snapshot.ScaledObject),
		Deployments:              workloads("apps", "deployments", Deployment, readWorkload),
		StatefulSets:             workloads("apps", "statefulsets", StatefulSet, readWorkload),
		LeaderWorkerSets:         workloads("leaderworkerset.x-k8s.io", "leaderworkersets", LeaderWorkerSet, readLeaderWorkerSet),
		Pods:                     pod,
		InferencePools: newKind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool",
			func(u *unstructured.Unstructured) any {
				return readPool(u, "endpointPickerRef", "spec", "selector", "matchLabels")
			}),
		AlphaInferencePools: newKind("inference.networking.x-k8s.io", "v1alpha2", "inferencepools", "InferencePool",
			func(u *unstructured.Unstructured) any { return readPool(u, "extensionRef", "spec", "selector") }),
		Namespaces:             newKind("", "v1", "namespaces", "Namespace", readNamespace),
		Nodes:                  optionalKind("", "v1", "nodes", "Node", readNode),
		ClusterQueues:          optionalKind(groupKueue, kueueVersion, "clusterqueues", "ClusterQueue", readClusterQueue),
		OlderClusterQueues:     optionalKind(groupKueue, olderKueueVersion, "clusterqueues", "ClusterQueue", readClusterQueue),
		Cohorts:                optionalKind(groupKueue, kueueVersion, "cohorts", "Cohort", readCohort),
		OlderCohorts:           optionalKind(groupKueue, olderKueueVersion, "cohorts", "Cohort", readCohort),
		ResourceFlavors:        optionalKind(groupKueue, kueueVersion, "resourceflavors", "ResourceFlavor", readFlavor),
		OlderResourceFlavors:   optionalKind(groupKueue, olderKueueVersion, "resourceflavors", "ResourceFlavor", readFlavor),
		ResourceSlices:         optionalKind(groupResource, "v1", "resourceslices", "ResourceSlice", readSlice),
		ResourceClaims:         optionalKind(groupResource, "v1", "resourceclaims", "ResourceClaim", readClaim),
		ResourceClaimTemplates: optionalKind(groupResource, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", readClaimTemplate),
		DeviceClasses:          optionalKind(groupResource, "v1", "deviceclasses", "DeviceClass", readDeviceClass),
	}
}

// KindList returns the kinds that are always read, in their order.
func KindList(instance string) []kit.Kind {
	return slices.DeleteFunc(allKinds(instance), func(k kit.Kind) bool { return !k.Required })
}

// InventoryKinds returns the kinds that only the limiter reads, in all versions.
func InventoryKinds() []kit.Kind {
	return slices.DeleteFunc(allKinds(""), func(k kit.Kind) bool { return k.Required })
}

func allKinds(instance string) (kinds []kit.Kind) {
	mapSet(Kinds(instance), func(k kit.Kind) struct{} {
		kinds = append(kinds, k)
		return struct{}{}
	})
	return kinds
}

func newKind(group, version, resource, name string, read func(*unstructured.Unstructured) any) kit.Kind {
	return kit.Kind{
		Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Name: name, Required: true,
		Transform: func(obj any) (any, error) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return read(u), nil
			}
			return obj, nil // already read, or the tombstone of a deleted object
		},
	}
}

// optionalKind returns a kind that the program may not be permitted to list.
func optionalKind(group, version, resource, name string, read func(*unstructured.Unstructured) any) kit.Kind {
	k := newKind(group, version, resource, name, read)
	k.Required = false
	return k
}

func mapSet[A, B any](a Set[A], convert func(A) B) Set[B] {
	return Set[B]{
		VariantAutoscalings: convert(a.VariantAutoscalings), HorizontalPodAutoscalers: convert(a.HorizontalPodAutoscalers),
		ScaledObjects: convert(a.ScaledObjects), Deployments: convert(a.Deployments), StatefulSets: convert(a.StatefulSets),
		LeaderWorkerSets: convert(a.LeaderWorkerSets), Pods: convert(a.Pods), InferencePools: convert(a.InferencePools),
		AlphaInferencePools: convert(a.AlphaInferencePools), Namespaces: convert(a.Namespaces),
		Nodes:         convert(a.Nodes),
		ClusterQueues: convert(a.ClusterQueues), OlderClusterQueues: convert(a.OlderClusterQueues),
		Cohorts: convert(a.Cohorts), OlderCohorts: convert(a.OlderCohorts),
		ResourceFlavors: convert(a.ResourceFlavors), OlderResourceFlavors: convert(a.OlderResourceFlavors),
		ResourceSlices: convert(a.ResourceSlices), ResourceClaims: convert(a.ResourceClaims),
		ResourceClaimTemplates: convert(a.ResourceClaimTemplates), DeviceClasses: convert(a.DeviceClasses),
	}
}

// ListAll returns all objects of a kind.
func ListAll[T any](r kit.Reader) []*T { return kit.CastObjects[*T](r.List()) }

// CountVariants returns the number of the variants that all objects declare, and the name of the first.
func CountVariants(c Caches) (total int, first string) {
	for _, reader := range []kit.Reader{c.VariantAutoscalings, c.ScaledObjects, c.HorizontalPodAutoscalers} {
		for _, d := range ListAll[Declaration](reader) {
			if d.Spec == nil {
				continue
			}
			total++
			if name := d.Namespace + "/" + d.Name; first == "" || name < first {
				first = name
			}
		}
	}
	return total, first
}

// FindObject returns an object, nil if it does not exist.
func FindObject[T any](r kit.Reader, name cache.ObjectName) *T {
	obj, _ := r.Get(name)
	t, _ := obj.(*T)
	return t
}

// PodsOf returns the pods of a workload.
func PodsOf(r kit.Reader, w Owner) []*Pod {
	return kit.CastObjects[*Pod](r.ByIndex(byTarget, w.String()))
}

// PodsBySelector returns the pods of a namespace that a selector selects, of those that belong to no Deployment, StatefulSet or
// LeaderWorkerSet.
func PodsBySelector(r kit.Reader, namespace string, selector labels.Selector) []*Pod {
	return slices.DeleteFunc(kit.CastObjects[*Pod](r.ByIndex(byNamespace, namespace)),
		func(p *Pod) bool { return !selector.Matches(labels.Set(p.Labels)) })
}

// OwnedBy returns the workloads that an object of another kind made, with the kind of each.
func OwnedBy(c Caches, o Owner) map[Owner]*Workload {
	workloads := map[Owner]*Workload{}
	for kind, reader := range map[string]kit.Reader{Deployment: c.Deployments, StatefulSet: c.StatefulSets,
		LeaderWorkerSet: c.LeaderWorkerSets} {
		for _, w := range kit.CastObjects[*Workload](reader.ByIndex(byOwner, o.String())) {
			workloads[Owner{Namespace: w.Namespace, Kind: kind, Name: w.Name}] = w
		}
	}
	return workloads
}

// AutoscalersOf returns the HorizontalPodAutoscalers and ScaledObjects that scale a workload.
func AutoscalersOf(c Caches, w Owner) []*Declaration {
	return append(kit.CastObjects[*Declaration](c.ScaledObjects.ByIndex(byTarget, w.String())),
		kit.CastObjects[*Declaration](c.HorizontalPodAutoscalers.ByIndex(byTarget, w.String()))...)
}
