package controller

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/gatewayapi"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// RegisterHandlers registers event handlers that enqueue only the services that a changed object affects:
//
//	an InferenceService                              the InferenceService
//	an EndpointSlice of a component's Service        the InferenceService that its label names
//	a Service of a component, a Knative Service,
//	an object that this controller wrote             the InferenceService that controls the object
//	a Gateway, a ListenerSet, an Istio Gateway, an InferencePool,
//	the Service of an endpoint picker,
//	any Service with the name of a component         the services that use the object
//	a GatewayClass                                   the services that use a Gateway of the class
//	an IngressClass                                  the services that may have an Ingress
//	a route of another owner                         the services that use one of its hosts
//	the labels of a Namespace                        the services in the namespace, and those that use a host of an HTTPRoute of another
//	                                                 owner in the namespace
func RegisterHandlers(i *informers.Informers, index *dependents.Index, enqueue func(cache.ObjectName)) {
	h := handlers{informers: i, index: index, requester: func(namespace, host, secret string) *unstructured.Unstructured {
		return informers.OldestIngress(i.Managed[render.Ingresses], namespace, host, secret)
	}}
	on := func(informer kit.Informer, names func(any) []cache.ObjectName) {
		informer.AddEventHandler(controller.Unless(isUnchanged, controller.Handler(enqueue, names)))
	}
	on(i.InferenceServices, ownName)
	on(i.Services, func(obj any) []cache.ObjectName {
		return append(ownerName(obj), h.namesForKind(dependents.Service)(obj)...)
	})
	on(i.Slices, sliceOwner)
	on(i.Knative, ownerName)
	for _, informer := range i.Managed {
		on(informer, func(obj any) []cache.ObjectName { return append(ownerName(obj), h.namesForHosts(obj)...) })
	}
	on(i.Gateways, h.namesForKind(dependents.Gateway))
	on(i.ListenerSets, h.namesForKind(dependents.Gateway))
	on(i.IstioGateways, h.namesForKind(dependents.IstioGateway))
	on(i.Pools, h.namesForKind(dependents.InferencePool))
	on(i.GatewayClasses, h.namesForClass)
	on(i.IngressClasses, func(any) []cache.ObjectName {
		return index.DependentsOf(dependents.Object{Kind: dependents.IngressClass})
	})
	on(i.Namespaces, h.namesForNamespace)
}

// handlers maps objects to the names of the services that they affect.
type handlers struct {
	informers *informers.Informers
	index     *dependents.Index
	requester func(namespace, host, secret string) *unstructured.Unstructured // the Ingress that requests a certificate, or nil
}

func ownName(obj any) []cache.ObjectName {
	name, err := cache.ObjectToName(obj)
	if err != nil {
		return nil
	}
	return []cache.ObjectName{name}
}

func sliceOwner(obj any) []cache.ObjectName {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		return []cache.ObjectName{{Namespace: s.Namespace, Name: s.Labels[backend.LabelService]}}
	}
	return nil
}

func ownerName(obj any) []cache.ObjectName {
	if name, ok := informers.OwnerName(obj); ok {
		return []cache.ObjectName{name}
	}
	return nil
}

func (h handlers) namesForKind(kind string) func(any) []cache.ObjectName {
	return func(obj any) []cache.ObjectName {
		var users []cache.ObjectName
		for _, name := range ownName(obj) {
			users = h.index.DependentsOf(dependents.Object{Kind: kind, Name: name})
		}
		return users
	}
}

// namesForSecrets returns the services that share a TLS Secret with an Ingress of this program that is, or was, the oldest with it.
func (h handlers) namesForSecrets(u *unstructured.Unstructured) []cache.ObjectName {
	var users []cache.ObjectName
	for host, secret := range render.TLSSecrets(u) {
		if oldest := h.requester(u.GetNamespace(), host, secret); oldest == nil || !render.IsOlder(oldest, u) {
			users = append(users, h.index.DependentsOf(dependents.Object{
				Kind: dependents.Secret, Name: cache.ObjectName{Namespace: u.GetNamespace(), Name: secret},
			})...)
		}
	}
	return users
}

// namesForHosts returns the services that use a host of a route that this program did not write.
func (h handlers) namesForHosts(obj any) []cache.ObjectName {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if informers.IsManaged(u) {
		return h.namesForSecrets(u)
	}
	var users []cache.ObjectName
	for _, host := range informers.IndexedHosts(u) {
		users = append(users, h.namesForHost(host)...)
	}
	return users
}

// namesForHost returns the services that use a host.
func (h handlers) namesForHost(host string) []cache.ObjectName {
	return h.index.DependentsOf(dependents.Object{Kind: dependents.Host, Name: cache.ObjectName{Name: host}})
}

func (h handlers) namesForClass(obj any) []cache.ObjectName {
	class, ok := obj.(*gatewayv1.GatewayClass)
	if !ok {
		return nil
	}
	var users []cache.ObjectName
	for _, g := range kit.CastObjects[*gatewayv1.Gateway](h.informers.Gateways.List()) {
		if string(g.Spec.GatewayClassName) == class.Name {
			users = append(users, h.namesForKind(dependents.Gateway)(g)...)
		}
	}
	return users
}

func (h handlers) namesForNamespace(obj any) []cache.ObjectName {
	var names []cache.ObjectName
	for _, name := range ownName(obj) {
		for _, s := range h.informers.InNamespace(name.Name) {
			names = append(names, ownName(s)...)
		}
		for host := range h.informers.ForeignHosts(name.Name) { // once, although many routes can have it
			names = append(names, h.namesForHost(host)...)
		}
	}
	return names
}

// isUnchanged reports whether an update changes no relevant field. For example, the status of a Gateway contains the number of its
// routes: without this filter each of 2 000 new routes would enqueue all services of the Gateway.
func isUnchanged(old, current any) bool {
	return slices.ContainsFunc(comparisons, func(same func(old, current any) bool) bool { return same(old, current) })
}

// comparisons report whether two versions of an object of one type have the same relevant fields.
var comparisons = []func(old, current any) bool{
	compareVersions(func(a, b *corev1.Service) bool {
		return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Labels, b.Labels) &&
			reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
			reflect.DeepEqual(a.Annotations, b.Annotations) && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
	}),
	compareVersions(hasSameRequests),
	compareVersions(func(a, b *discoveryv1.EndpointSlice) bool { return len(a.Endpoints) == len(b.Endpoints) }),
	compareVersions(func(a, b *gatewayv1.Gateway) bool {
		return reflect.DeepEqual(a.Spec, b.Spec) &&
			gatewayapi.Gateway{Gateway: a}.Programmed() == gatewayapi.Gateway{Gateway: b}.Programmed()
	}),
	compareVersions(func(a, b *gatewayv1.GatewayClass) bool {
		return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status.SupportedFeatures, b.Status.SupportedFeatures)
	}),
	compareVersions(func(a, b *inferencev1.InferencePool) bool { return reflect.DeepEqual(a.Spec, b.Spec) }),
	compareVersions(func(a, b *metav1.PartialObjectMetadata) bool {
		return reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
	}),
}

// compareVersions returns a comparison of two versions of one object of type T.
func compareVersions[T metav1.Object](same func(a, b T) bool) func(old, current any) bool {
	return func(old, current any) bool {
		a, ok := old.(T)
		b, alsoOK := current.(T)
		return ok && alsoOK && a.GetUID() == b.GetUID() && same(a, b)
	}
}

// hasSameRequests reports whether an update of a route of another owner cannot change the requests that the route receives. The status of a
// service's own routes counts.
func hasSameRequests(a, b *unstructured.Unstructured) bool {
	_, owned := informers.OwnerName(a)
	return !owned && reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) && reflect.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		reflect.DeepEqual(a.GetLabels(), b.GetLabels()) && reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		reflect.DeepEqual(a.GetDeletionTimestamp(), b.GetDeletionTimestamp())
}
