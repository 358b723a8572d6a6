// Package informers watches all that plans follow from. Each kind is kept as small as plans need it, and those whose CRD may
// be absent are picked up when they appear.
package informers

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
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

// Informers are all informers.
type Informers struct {
	InferenceServices *kube.OptionalInformer // *isvc.Object
	Services          *kube.OptionalInformer // *corev1.Service, of components
	Namespaces        *kube.OptionalInformer // *metav1.PartialObjectMetadata
	IngressClasses    *kube.OptionalInformer // *networkingv1.IngressClass
	Gateways          *kube.OptionalInformer // *gatewayv1.Gateway
	GatewayClasses    *kube.OptionalInformer // *gatewayv1.GatewayClass
	Knative           *kube.OptionalInformer // *metav1.PartialObjectMetadata
	Pools             *kube.OptionalInformer // *metav1.PartialObjectMetadata, everybody's

	// Ours are the objects that are ours, of each kind that is written: *unstructured.Unstructured.
	Ours map[schema.GroupVersionResource]*kube.OptionalInformer
}

// Params is what New needs.
type Params struct {
	Log       *zap.Logger
	Client    dynamic.Interface
	Discovery kube.ResourceDiscovery
}

// New returns informers that do nothing until Run.
func New(p Params) *Informers {
	owned := cache.Indexers{byOwner: indexByOwner}
	i := &Informers{
		InferenceServices: p.informer(isvc.Resource, "", cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc}, isvc.Transform),
		Services:          p.informer(services, backend.LabelService, owned, transform(trimService)),
		Namespaces:        p.informer(namespaces, "", cache.Indexers{}, transform(trimMetadata)),
		IngressClasses:    p.informer(ingressClasses, "", cache.Indexers{}, transform(func(*networkingv1.IngressClass) {})),
		Gateways:          p.informer(gateways, "", cache.Indexers{}, transform(func(g *gatewayv1.Gateway) { g.ManagedFields, g.Annotations = nil, nil })),
		GatewayClasses:    p.informer(gatewayClasses, "", cache.Indexers{}, transform(func(c *gatewayv1.GatewayClass) { c.ManagedFields, c.Annotations = nil, nil })),
		Knative:           p.informer(knativeServices, "", owned, transform(trimMetadata)),
		Pools:             p.informer(render.InferencePools, "", cache.Indexers{}, transform(trimMetadata)),
		Ours:              map[schema.GroupVersionResource]*kube.OptionalInformer{},
	}
	for _, resource := range Written {
		i.Ours[resource] = p.informer(resource, render.LabelManagedBy+"="+render.Manager, owned, keepManager)
	}
	return i
}

func (p *Params) informer(resource schema.GroupVersionResource, selector string, indexers cache.Indexers, transform cache.TransformFunc) *kube.OptionalInformer {
	return kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log: p.Log, Discovery: p.Discovery, Resource: resource,
		New: func() cache.SharedIndexInformer {
			informer := dynamicinformer.NewFilteredDynamicInformer(p.Client, resource, metav1.NamespaceAll, 0, indexers, func(o *metav1.ListOptions) {
				o.LabelSelector = selector
			}).Informer()
			if err := informer.SetTransform(transform); err != nil {
				panic(fmt.Sprintf("informer of %s: %v", resource, err)) // not reached: it has not begun
			}
			return informer
		},
	})
}

// all are the informers, by what they are called in messages.
func (i *Informers) all() map[string]*kube.OptionalInformer {
	all := map[string]*kube.OptionalInformer{
		isvc.Resource.String(): i.InferenceServices, services.String(): i.Services, namespaces.String(): i.Namespaces, ingressClasses.String(): i.IngressClasses,
		gateways.String(): i.Gateways, gatewayClasses.String(): i.GatewayClasses, knativeServices.String(): i.Knative, render.InferencePools.String(): i.Pools,
	}
	for resource, informer := range i.Ours {
		all["our "+resource.String()] = informer
	}
	return all
}

// Run watches until ctx ends.
func (i *Informers) Run(ctx context.Context) {
	done := make(chan struct{})
	all := i.all()
	for _, informer := range all {
		go func() {
			informer.Run(ctx)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
}

// Unsynced returns what has yet to be listed, nothing once all is.
func (i *Informers) Unsynced() []string {
	var names []string
	for name, informer := range i.all() {
		if !informer.HasSynced() {
			names = append(names, name)
		}
	}
	return names
}

// OwnedBy returns the objects of an informer that an InferenceService controls.
func OwnedBy(informer *kube.OptionalInformer, service cache.ObjectName) []any {
	return informer.ByIndex(byOwner, service.String())
}

// InNamespace returns the InferenceServices of a namespace.
func (i *Informers) InNamespace(namespace string) []any {
	return i.InferenceServices.ByIndex(byNamespace, namespace)
}

// Owner returns the InferenceService that controls an object.
func Owner(obj any) (cache.ObjectName, bool) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return cache.ObjectName{}, false
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != "InferenceService" {
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

// trimService leaves what the choice of a backend looks at.
func trimService(s *corev1.Service) {
	s.ManagedFields, s.Annotations, s.Status = nil, nil, corev1.ServiceStatus{}
	s.Spec = corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports}
}

func trimMetadata(m *metav1.PartialObjectMetadata) { m.ManagedFields, m.Annotations = nil, nil }
