package controller

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/uses"
)

// Handle registers event handlers that enqueue only the services that a changed object affects:
//
//	an InferenceService                              the InferenceService
//	an EndpointSlice of a component's Service        the InferenceService that its label names
//	a Service of a component, a Knative Service,
//	an object that this controller wrote             the InferenceService that controls the object
//	a Gateway, a ListenerSet, an Istio Gateway, an InferencePool,
//	the Service of an endpoint picker                the services that use the object
//	a GatewayClass                                   the services that use a Gateway of the class
//	an IngressClass                                  the services that may have an Ingress
//	a route of somebody else                         the services that use one of its hosts
//	the labels of a Namespace                        the services in the namespace
func Handle(i *informers.Informers, users *uses.Index, enqueue func(cache.ObjectName)) {
	h := handlers{informers: i, users: users, requester: func(namespace, host, secret string) *unstructured.Unstructured {
		return informers.OldestOf(i.Managed[render.Ingresses], namespace, host, secret)
	}}
	on := func(informer *kube.OptionalInformer, names func(any) []cache.ObjectName) {
		informer.AddEventHandler(controller.Unless(unchanged, controller.Handler(enqueue, names)))
	}
	on(i.InferenceServices, itself)
	on(i.Services, func(obj any) []cache.ObjectName { return append(owner(obj), h.named(uses.Service)(obj)...) })
	on(i.Slices, labelled)
	on(i.Knative, owner)
	for _, informer := range i.Managed {
		on(informer, func(obj any) []cache.ObjectName { return append(owner(obj), h.hosts(obj)...) })
	}
	on(i.Gateways, h.named(uses.Gateway))
	on(i.ListenerSets, h.named(uses.Gateway))
	on(i.IstioGateways, h.named(uses.IstioGateway))
	on(i.Pools, h.named(uses.InferencePool))
	on(i.GatewayClasses, h.class)
	on(i.IngressClasses, func(any) []cache.ObjectName { return users.Users(uses.Object{Kind: uses.IngressClass}) })
	on(i.Namespaces, h.namespace)
}

// handlers maps objects to the names of the services that they affect.
type handlers struct {
	informers *informers.Informers
	users     *uses.Index
	requester func(namespace, host, secret string) *unstructured.Unstructured // the Ingress that requests a certificate, or nil
}

func itself(obj any) []cache.ObjectName {
	name, err := cache.ObjectToName(obj)
	if err != nil {
		return nil
	}
	return []cache.ObjectName{name}
}

func labelled(obj any) []cache.ObjectName {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		return []cache.ObjectName{{Namespace: s.Namespace, Name: s.Labels[backend.LabelService]}}
	}
	return nil
}

func owner(obj any) []cache.ObjectName {
	if name, ok := informers.Owner(obj); ok {
		return []cache.ObjectName{name}
	}
	return nil
}

func (h handlers) named(kind string) func(any) []cache.ObjectName {
	return func(obj any) []cache.ObjectName {
		var users []cache.ObjectName
		for _, name := range itself(obj) {
			users = h.users.Users(uses.Object{Kind: kind, Name: name})
		}
		return users
	}
}

// requesters returns the services that share a TLS Secret with an Ingress of this program that is, or was, the oldest with it.
func (h handlers) requesters(u *unstructured.Unstructured) []cache.ObjectName {
	var users []cache.ObjectName
	for host, secret := range render.Secrets(u) {
		if oldest := h.requester(u.GetNamespace(), host, secret); oldest == nil || !render.Older(oldest, u) {
			users = append(users, h.users.Users(uses.Object{Kind: uses.Secret, Name: cache.ObjectName{Namespace: u.GetNamespace(), Name: secret}})...)
		}
	}
	return users
}

// hosts returns the services that use a host of a route that this program did not write.
func (h handlers) hosts(obj any) []cache.ObjectName {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if informers.IsOurs(u) {
		return h.requesters(u)
	}
	var users []cache.ObjectName
	for _, host := range informers.HostsOf(u) {
		users = append(users, h.users.Users(uses.Object{Kind: uses.Host, Name: cache.ObjectName{Name: host}})...)
	}
	return users
}

func (h handlers) class(obj any) []cache.ObjectName {
	class, ok := obj.(*gatewayv1.GatewayClass)
	if !ok {
		return nil
	}
	var users []cache.ObjectName
	for _, g := range h.informers.Gateways.List() {
		if g, ok := g.(*gatewayv1.Gateway); ok && string(g.Spec.GatewayClassName) == class.Name {
			users = append(users, h.named(uses.Gateway)(g)...)
		}
	}
	return users
}

func (h handlers) namespace(obj any) []cache.ObjectName {
	var names []cache.ObjectName
	for _, name := range itself(obj) {
		for _, s := range h.informers.InNamespace(name.Name) {
			names = append(names, itself(s)...)
		}
	}
	return names
}

// unchanged reports whether an update changes no relevant field. For example, the status of a Gateway contains the number of its
// routes: without this filter each of 2 000 new routes would enqueue all services of the Gateway.
func unchanged(old, current any) bool {
	switch old := old.(type) {
	case *corev1.Service:
		return alike(old, current, func(a, b *corev1.Service) bool {
			return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
				reflect.DeepEqual(a.Annotations, b.Annotations) && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
		})
	case *unstructured.Unstructured:
		return alike(old, current, sameRequests)
	case *discoveryv1.EndpointSlice:
		return alike(old, current, func(a, b *discoveryv1.EndpointSlice) bool { return len(a.Endpoints) == len(b.Endpoints) })
	case *gatewayv1.Gateway, *gatewayv1.GatewayClass:
		return unchangedGateway(old, current)
	case *inferencev1.InferencePool:
		return alike(old, current, func(a, b *inferencev1.InferencePool) bool { return reflect.DeepEqual(a.Spec, b.Spec) })
	case *metav1.PartialObjectMetadata:
		return alike(old, current, func(a, b *metav1.PartialObjectMetadata) bool {
			return reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
		})
	}
	return false
}

// sameRequests reports whether an update of a route of somebody else cannot change the requests that it takes. The status of a service's own
// routes counts.
func sameRequests(a, b *unstructured.Unstructured) bool {
	_, owned := informers.Owner(a)
	return !owned && reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) && reflect.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		reflect.DeepEqual(a.GetLabels(), b.GetLabels()) && reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		reflect.DeepEqual(a.GetDeletionTimestamp(), b.GetDeletionTimestamp())
}

func unchangedGateway(old, current any) bool {
	switch old := old.(type) {
	case *gatewayv1.Gateway:
		return alike(old, current, func(a, b *gatewayv1.Gateway) bool {
			return reflect.DeepEqual(a.Spec, b.Spec) && gatewayapi.Gateway{Gateway: a}.Programmed() == gatewayapi.Gateway{Gateway: b}.Programmed()
		})
	case *gatewayv1.GatewayClass:
		return alike(old, current, func(a, b *gatewayv1.GatewayClass) bool {
			return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status.SupportedFeatures, b.Status.SupportedFeatures)
		})
	}
	return false
}

// alike reports whether same returns true for two versions of one object.
func alike[T metav1.Object](old T, current any, same func(a, b T) bool) bool {
	next, ok := current.(T)
	return ok && old.GetUID() == next.GetUID() && same(old, next)
}
