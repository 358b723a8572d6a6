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

// Caches are the caches of all kinds.
type Caches struct {
	VariantAutoscalings      kit.Informer
	HorizontalPodAutoscalers kit.Informer
	ScaledObjects            kit.Informer
	Namespaces               kit.Informer

	Deployments, StatefulSets, LeaderWorkerSets kit.Reader
	Pods                                        kit.Reader
	InferencePools                              kit.Reader
	AlphaInferencePools                         kit.Reader // of the group inference.networking.x-k8s.io

	// Nodes, and the kinds of Kueue and of dynamic resource allocation, are watched once the limiter is on: see WatchInventory. LocalQueues
	// are not watched: tenants create them.
	Nodes                                                                 kit.Reader
	ClusterQueues, Cohorts, ResourceFlavors                               kit.Reader
	ResourceSlices, ResourceClaims, ResourceClaimTemplates, DeviceClasses kit.Reader
}

// Informers are the informers.
type Informers struct {
	*kit.Group
	Caches
	// Endpoints are those of pickers. Without the permission to list them, no picker is found.
	Endpoints kit.Reader

	inventory      *kit.Group // of the kinds that only the limiter reads
	watchInventory func()
	inventoryOn    chan struct{} // closed by watchInventory
}

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
	group, inventory, on := kit.NewGroup(p.Params), kit.NewGroup(p.Params), make(chan struct{})
	caches := Declare(p.Instance)(func(k kit.Kind) kit.Informer {
		if k.Required {
			return group.Add(k)
		}
		return inventory.Add(k)
	})
	return &Informers{
		Group: group, Caches: caches, Endpoints: group.Add(endpoints), inventory: inventory,
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

// Declare declares the kinds that the program reads. All but those of the limiter are required: without the permission to list one of
// them, variants would disappear, or groups would change.
func Declare(instance string) kit.Declaration[Caches] {
	return func(add func(kit.Kind) kit.Informer) Caches {
		declarations := func(group, version, resource string, source snapshot.Source) kit.Informer {
			k := newKind(group, version, resource, string(source),
				func(u *unstructured.Unstructured) any { return readDeclaration(source, instance, u) })
			k.Indexers = cache.Indexers{byTarget: kit.IndexBy(func(d *Declaration) []string { return d.Scales.indexKeys() })}
			return add(k)
		}
		workloads := func(group, resource, name string, read func(*unstructured.Unstructured) any) kit.Informer {
			k := newKind(group, "v1", resource, name, read)
			k.Indexers = cache.Indexers{byOwner: kit.IndexBy(func(w *Workload) []string { return w.Owner.indexKeys() })}
			return add(k)
		}
		kueue := func(resource, name string, read func(*unstructured.Unstructured) any) kit.Reader {
			newer := optionalKind(groupKueue, kueueVersion, resource, name, read)
			older := optionalKind(groupKueue, olderKueueVersion, resource, name, read)
			older.Preferred = []string{kueueVersion} // a cluster that serves both sends objects once
			return preferredReader{add(newer), add(older)}
		}
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
		return Caches{
			VariantAutoscalings:      declarations("llmd.ai", "v1alpha1", "variantautoscalings", snapshot.VariantAutoscaling),
			HorizontalPodAutoscalers: declarations("autoscaling", "v2", "horizontalpodautoscalers", snapshot.HorizontalPodAutoscaler),
			ScaledObjects:            declarations("keda.sh", "v1alpha1", "scaledobjects", snapshot.ScaledObject),
			Deployments:              workloads("apps", "deployments", Deployment, readWorkload),
			StatefulSets:             workloads("apps", "statefulsets", StatefulSet, readWorkload),
			LeaderWorkerSets:         workloads("leaderworkerset.x-k8s.io", "leaderworkersets", LeaderWorkerSet, readLeaderWorkerSet),
			Pods:                     add(pod),
			InferencePools: add(newKind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool",
				func(u *unstructured.Unstructured) any {
					return readPool(u, "endpointPickerRef", "spec", "selector", "matchLabels")
				})),
			AlphaInferencePools: add(newKind("inference.networking.x-k8s.io", "v1alpha2", "inferencepools", "InferencePool",
				func(u *unstructured.Unstructured) any { return readPool(u, "extensionRef", "spec", "selector") })),
			Namespaces:      add(newKind("", "v1", "namespaces", "Namespace", readNamespace)),
			Nodes:           add(optionalKind("", "v1", "nodes", "Node", readNode)),
			ClusterQueues:   kueue("clusterqueues", "ClusterQueue", readClusterQueue),
			Cohorts:         kueue("cohorts", "Cohort", readCohort),
			ResourceFlavors: kueue("resourceflavors", "ResourceFlavor", readFlavor),
			ResourceSlices:  add(optionalKind(groupResource, "v1", "resourceslices", "ResourceSlice", readSlice)),
			ResourceClaims:  add(optionalKind(groupResource, "v1", "resourceclaims", "ResourceClaim", readClaim)),
			ResourceClaimTemplates: add(
				optionalKind(groupResource, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", readClaimTemplate)),
			DeviceClasses: add(optionalKind(groupResource, "v1", "deviceclasses", "DeviceClass", readDeviceClass)),
		}
	}
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
