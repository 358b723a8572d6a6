// Package informers watches all that plans follow from. Each kind is kept as small as plans need it, and those whose CRD may
// be absent are picked up when they appear.
package informers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// Kinds that are read and not written.
var (
	services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ingressClasses  = networkingv1.SchemeGroupVersion.WithResource("ingressclasses")
	gateways        = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gateways"}
	gatewayClasses  = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gatewayclasses"}
	knativeServices = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
)

// Indexes.
const (
	byOwner     = "owner"     // namespace/name of the InferenceService that controls an object
	byNamespace = "namespace" // of an InferenceService
)

// Written are the kinds that are written, those first that others refer to.
var Written = []schema.GroupVersionResource{
	render.Services, render.InferencePools, render.Middlewares, render.HTTPRoutes, render.Ingresses, render.VirtualServices,
}

// Set is something for each kind.
type Set[T any] struct {
	InferenceServices T // of *isvc.Object
	Services          T // *corev1.Service
	Namespaces        T // *metav1.PartialObjectMetadata
	IngressClasses    T // *networkingv1.IngressClass
	Gateways          T // *gatewayv1.Gateway
	GatewayClasses    T // *gatewayv1.GatewayClass
	Knative           T // *metav1.PartialObjectMetadata
	Pools             T // *inferencev1.InferencePool, everybody's

	// Ours are the objects that are ours, of each kind that is written: *unstructured.Unstructured.
	Ours map[schema.GroupVersionResource]T
}

// all are what a set has.
func (s *Set[T]) all() []T {
	all := []T{s.InferenceServices, s.Services, s.Namespaces, s.IngressClasses, s.Gateways, s.GatewayClasses, s.Knative, s.Pools}
	for _, resource := range Written {
		all = append(all, s.Ours[resource])
	}
	return all
}

// Kind is how a kind is read.
type Kind struct {
	Resource  schema.GroupVersionResource
	Name      string // of the kind
	Selector  string // of labels; empty: all
	indexers  cache.Indexers
	transform cache.TransformFunc
}

// Kinds are how all kinds are read.
func Kinds() Set[Kind] {
	owned := cache.Indexers{byOwner: indexByOwner}
	kinds := Set[Kind]{
		InferenceServices: Kind{isvc.Resource, "InferenceService", "", cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc}, isvc.Transform},
		Services:          Kind{services, "Service", "", owned, transform(trimService)},
		Namespaces:        Kind{namespaces, "Namespace", "", cache.Indexers{}, transform(trimMetadata)},
		IngressClasses:    Kind{ingressClasses, "IngressClass", "", cache.Indexers{}, transform(func(*networkingv1.IngressClass) {})},
		Gateways:          Kind{gateways, "Gateway", "", cache.Indexers{}, transform(func(g *gatewayv1.Gateway) { g.ManagedFields, g.Annotations = nil, nil })},
		GatewayClasses:    Kind{gatewayClasses, "GatewayClass", "", cache.Indexers{}, transform(func(c *gatewayv1.GatewayClass) { c.ManagedFields, c.Annotations = nil, nil })},
		Knative:           Kind{knativeServices, "Service", "", owned, transform(trimMetadata)},
		Pools:             Kind{render.InferencePools, "InferencePool", "", cache.Indexers{}, transform(func(p *inferencev1.InferencePool) { p.ManagedFields, p.Annotations = nil, nil })},
		Ours:              map[schema.GroupVersionResource]Kind{},
	}
	for _, resource := range Written {
		kinds.Ours[resource] = Kind{resource, render.Kinds[resource], render.LabelManagedBy + "=" + render.Manager, owned, keepManager}
	}
	return kinds
}

// each makes a set of another.
func each[A, B any](of Set[A], f func(A) B) Set[B] {
	made := Set[B]{
		InferenceServices: f(of.InferenceServices), Services: f(of.Services), Namespaces: f(of.Namespaces), IngressClasses: f(of.IngressClasses),
		Gateways: f(of.Gateways), GatewayClasses: f(of.GatewayClasses), Knative: f(of.Knative), Pools: f(of.Pools),
		Ours: map[schema.GroupVersionResource]B{},
	}
	for resource, a := range of.Ours {
		made.Ours[resource] = f(a)
	}
	return made
}

// AllKinds are how all kinds are read, in no order.
func AllKinds() []Kind {
	kinds := Kinds()
	return kinds.all()
}

// Reader is what was read of a kind.
type Reader interface {
	Get(name cache.ObjectName) (any, bool)
	List() []any
	ByIndex(index, value string) []any
	Listed() bool // the kind is served, and all its objects are known
}

// Caches are what was read of all kinds.
type Caches = Set[Reader]

// Informers watch all kinds.
type Informers struct {
	Set[*kube.OptionalInformer]

	names map[*kube.OptionalInformer]string
}

// Params is what New needs.
type Params struct {
	Log       *zap.Logger
	Client    dynamic.Interface
	Discovery kube.ResourceDiscovery
	Interval  time.Duration // between two looks at which kinds there are
}

// New returns informers that do nothing until Run.
func New(p Params) *Informers {
	i := &Informers{names: map[*kube.OptionalInformer]string{}}
	i.Set = each(Kinds(), func(k Kind) *kube.OptionalInformer {
		informer := p.informer(k)
		i.names[informer] = strings.TrimSpace(k.Resource.GroupResource().String() + " " + k.Selector)
		return informer
	})
	return i
}

// Caches returns what the informers read.
func (i *Informers) Caches() Caches {
	return each(i.Set, func(o *kube.OptionalInformer) Reader { return o })
}

func (p *Params) informer(k Kind) *kube.OptionalInformer {
	return kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log: p.Log, Discovery: p.Discovery, Resource: k.Resource, PollInterval: p.Interval,
		New: func() cache.SharedIndexInformer {
			informer := dynamicinformer.NewFilteredDynamicInformer(p.Client, k.Resource, metav1.NamespaceAll, 0, maps.Clone(k.indexers), func(o *metav1.ListOptions) {
				o.LabelSelector = k.Selector
			}).Informer()
			if err := informer.SetTransform(k.transform); err != nil {
				panic(fmt.Sprintf("informer of %s: %v", k.Resource, err)) // not reached: it has not begun
			}
			return informer
		},
	})
}

// Run watches until ctx ends.
func (i *Informers) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, informer := range i.all() {
		all.Go(func() { informer.Run(ctx) })
	}
	all.Wait()
}

// Unsynced returns what has yet to be listed, nothing once all is.
func (i *Informers) Unsynced() []string {
	var names []string
	for _, informer := range i.all() {
		if !informer.HasSynced() {
			names = append(names, i.names[informer])
		}
	}
	return names
}

// OwnedBy returns the objects that an InferenceService controls.
func OwnedBy(r Reader, service cache.ObjectName) []any { return r.ByIndex(byOwner, service.String()) }

// InNamespace returns the InferenceServices of a namespace.
func (i *Informers) InNamespace(namespace string) []any {
	return i.InferenceServices.ByIndex(byNamespace, namespace)
}

// Owner returns the name of the InferenceService of OME that controls an object. InferenceServices of other groups, such as
// KServe's, are not OME's.
func Owner(obj any) (cache.ObjectName, bool) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return cache.ObjectName{}, false
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != "InferenceService" {
		return cache.ObjectName{}, false
	}
	if version, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || version.Group != isvc.Resource.Group {
		return cache.ObjectName{}, false
	}
	return cache.ObjectName{Namespace: object.GetNamespace(), Name: ref.Name}, true
}

func indexByOwner(obj any) ([]string, error) {
	if owner, ok := Owner(obj); ok {
		return []string{owner.String()}, nil
	}
	return nil, nil
}

// trimService keeps what the choice of backends and pods needs. Of Services that are not OME's, which may be endpoint pickers
// or have the name of a component, it keeps the name and the ports.
func trimService(s *corev1.Service) {
	s.ManagedFields, s.Annotations, s.Status = nil, nil, corev1.ServiceStatus{}
	if s.Labels[backend.LabelService] == "" {
		s.Labels, s.OwnerReferences, s.Finalizers, s.Spec = nil, nil, nil, corev1.ServiceSpec{Ports: s.Spec.Ports}
		return
	}
	s.Spec = corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports, Selector: s.Spec.Selector}
}

func trimMetadata(m *metav1.PartialObjectMetadata) { m.ManagedFields, m.Annotations = nil, nil }
