// Package informers declares the kinds of objects that plans depend on, and the fields that the caches keep.
package informers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// Resources that the reconciler reads and never writes.
var (
	endpointSlices  = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ingressClasses  = networkingv1.SchemeGroupVersion.WithResource("ingressclasses")
	gateways        = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gateways"}
	listenerSets    = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "listenersets"}
	gatewayClasses  = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gatewayclasses"}
	knativeServices = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
)

// Indexes.
const (
	byOwner     = "owner"     // namespace/name of the InferenceService that controls an object
	byNamespace = "namespace" // namespace of an InferenceService, or of an HTTPRoute that this program did not write
	byHost      = "host"      // host of a route that this program did not write
	bySecret    = "secret"    // namespace, host and TLS Secret of an Ingress of this program
	byService   = "service"   // namespace/name of the Service of an EndpointSlice
)

// Written lists the resources that the reconciler writes. Each comes before the resources that refer to it.
var Written = []schema.GroupVersionResource{
	render.Services, render.InferencePools, render.Middlewares, render.HTTPRoutes, render.Ingresses, render.VirtualServices,
}

// Caches contains a cache of each kind. The comments give the types of the objects.
type Caches struct {
	InferenceServices kit.Informer // *isvc.Object
	Services          kit.Informer // *corev1.Service
	Slices            kit.Informer // *discoveryv1.EndpointSlice of component Services, with at most one endpoint
	Namespaces        kit.Informer // *metav1.PartialObjectMetadata
	IngressClasses    kit.Informer // *networkingv1.IngressClass
	Gateways          kit.Informer // *gatewayv1.Gateway
	ListenerSets      kit.Informer // *gatewayv1.ListenerSet
	GatewayClasses    kit.Informer // *gatewayv1.GatewayClass
	IstioGateways     kit.Informer // *istiogateway.Gateway, or *metav1.PartialObjectMetadata if it cannot be decoded
	Knative           kit.Informer // *metav1.PartialObjectMetadata
	Pools             kit.Informer // *inferencev1.InferencePool, of any owner

	// Managed contains a cache for each resource in Written: the objects of this program, as *unstructured.Unstructured. Those of
	// routes also contain the routes of others, which may answer the requests for a host.
	Managed map[schema.GroupVersionResource]kit.Informer
}

// Declare declares all kinds. A written kind is off if its resource is not in writable. A kind that is read only for the sake of a
// written kind is off together with it. If writable is nil, all kinds are on.
func Declare(writable []string) kit.Declaration[Caches] {
	return func(add func(kit.Kind) kit.Informer) Caches {
		owned := cache.Indexers{byOwner: kit.IndexBy(indexByOwner)}
		addFor := func(written schema.GroupVersionResource, k kit.Kind) kit.Informer {
			k.Off = writable != nil && !slices.Contains(writable, written.Resource)
			return add(k)
		}
		dependency := func(resource schema.GroupVersionResource, name string, transform cache.TransformFunc,
			written schema.GroupVersionResource) kit.Informer {
			return addFor(written, kit.Kind{Resource: resource, Name: name, Transform: transform})
		}
		caches := Caches{
			InferenceServices: add(kit.Kind{
				Resource: isvc.Resource, Name: "InferenceService", Indexers: cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc},
				Transform: isvc.Transform, Required: true,
			}),
			Services: add(kit.Kind{
				Resource: services, Name: "Service", Indexers: owned, Transform: kit.Typed(trimService), Required: true,
			}),
			Slices: add(kit.Kind{ // has the labels of its Service
				Resource: endpointSlices, Name: "EndpointSlice", Selector: backend.LabelService, Transform: kit.Typed(trimSlice),
				Indexers: cache.Indexers{byService: kit.IndexBy(indexByService)},
			}),
			Namespaces: add(kit.Kind{Resource: namespaces, Name: "Namespace", Transform: kit.Metadata()}),
			IngressClasses: addFor(render.Ingresses, kit.Kind{
				Resource: ingressClasses, Name: "IngressClass", Transform: kit.Typed(func(*networkingv1.IngressClass) {}), Required: true,
			}),
			Gateways:     dependency(gateways, "Gateway", kit.Typed[gatewayv1.Gateway](kit.TrimMetadata), render.HTTPRoutes),
			ListenerSets: dependency(listenerSets, "ListenerSet", kit.Typed[gatewayv1.ListenerSet](kit.TrimMetadata), render.HTTPRoutes),
			GatewayClasses: dependency(gatewayClasses, "GatewayClass", kit.Typed[gatewayv1.GatewayClass](kit.TrimMetadata),
				render.HTTPRoutes),
			IstioGateways: dependency(istiogateway.Resource, "Gateway", kit.Typed[istiogateway.Gateway](kit.TrimMetadata),
				render.VirtualServices),
			Knative: add(kit.Kind{Resource: knativeServices, Name: "Service", Indexers: owned, Transform: kit.Metadata()}),
			Pools: dependency(render.InferencePools, "InferencePool", kit.Typed[inferencev1.InferencePool](kit.TrimMetadata),
				render.InferencePools),
			Managed: map[schema.GroupVersionResource]kit.Informer{},
		}
		for _, resource := range Written {
			caches.Managed[resource] = addFor(resource, managedKind(resource))
		}
		return caches
	}
}

// managedKind returns the objects of this program of a resource, for routes together with those of others.
func managedKind(resource schema.GroupVersionResource) kit.Kind {
	kind := kit.Kind{
		Resource: resource, Name: render.Kinds[resource], Selector: render.LabelManagedBy + "=" + render.Manager,
		Indexers: cache.Indexers{
			byOwner: kit.IndexBy(indexManaged), byHost: kit.IndexBy(indexForeign), bySecret: kit.IndexBy(indexBySecret),
		},
		Transform: trimManaged,
	}
	if render.IsRoute(resource) {
		kind.Selector = ""
	}
	if resource == render.HTTPRoutes {
		kind.Indexers[byNamespace] = kit.IndexBy(indexForeignNamespace)
	}
	return kind
}

// Reader reads the cached objects of one kind.
type Reader = kit.Reader

// Informers watch all kinds.
type Informers struct {
	*kit.Group
	Caches
}

// New returns informers. Run starts them. writable are the resources that the reconciler may write; nil: all.
func New(p kit.Params, writable []string) *Informers {
	group := kit.NewGroup(p)
	return &Informers{Group: group, Caches: Declare(writable).Watch(group)}
}

// ByOwner returns the objects of type T that an InferenceService controls.
func ByOwner[T any](r Reader, service cache.ObjectName) []T {
	return kit.CastObjects[T](r.ByIndex(byOwner, service.String()))
}

// ForeignRoutes returns the routes for a host that this program did not write.
func ForeignRoutes(r Reader, host string) []*unstructured.Unstructured {
	return kit.CastObjects[*unstructured.Unstructured](r.ByIndex(byHost, host))
}

// OldestIngress returns the oldest Ingress of this program with a TLS Secret for a host, nil if there is none. It requests the certificate:
// cert-manager gives a Certificate to one Ingress, and refuses it to all others.
func OldestIngress(r Reader, namespace, host, secret string) *unstructured.Unstructured {
	var oldest *unstructured.Unstructured
	for _, u := range kit.CastObjects[*unstructured.Unstructured](r.ByIndex(bySecret, secretKey(namespace, host, secret))) {
		if u.GetDeletionTimestamp() == nil && (oldest == nil || render.IsOlder(u, oldest)) {
			oldest = u
		}
	}
	return oldest
}

func secretKey(namespace, host, secret string) string { return namespace + "/" + host + "/" + secret }

func indexBySecret(u *unstructured.Unstructured) []string {
	if !IsManaged(u) {
		return nil
	}
	var keys []string
	for host, secret := range render.TLSSecrets(u) {
		keys = append(keys, secretKey(u.GetNamespace(), host, secret))
	}
	return keys
}

// SlicesOfService returns the EndpointSlices of a component's Service.
func SlicesOfService(r Reader, service cache.ObjectName) []*discoveryv1.EndpointSlice {
	return kit.CastObjects[*discoveryv1.EndpointSlice](r.ByIndex(byService, service.String()))
}

func indexByService(s *discoveryv1.EndpointSlice) []string {
	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
}

// trimSlice keeps whether there is an endpoint.
func trimSlice(s *discoveryv1.EndpointSlice) {
	s.ManagedFields, s.Annotations, s.Ports = nil, nil, nil
	if len(s.Endpoints) > 0 {
		s.Endpoints = []discoveryv1.Endpoint{{}}
	}
}

// InNamespace returns the InferenceServices of a namespace.
func (i *Informers) InNamespace(namespace string) []any {
	return i.InferenceServices.ByIndex(byNamespace, namespace)
}

// ForeignHosts returns the hosts of the HTTPRoutes of a namespace that this program did not write. Listeners can select HTTPRoutes, but no
// other routes, by the labels of their namespace.
func (i *Informers) ForeignHosts(namespace string) sets.Set[string] {
	hosts := sets.New[string]()
	for _, u := range kit.CastObjects[*unstructured.Unstructured](i.Managed[render.HTTPRoutes].ByIndex(byNamespace, namespace)) {
		hosts.Insert(IndexedHosts(u)...)
	}
	return hosts
}

// OwnerName returns the name of the InferenceService that controls an object. It ignores InferenceServices of API groups other than
// OME's, such as KServe's.
func OwnerName(obj any) (cache.ObjectName, bool) {
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

func indexByOwner(o metav1.Object) []string {
	if owner, ok := OwnerName(o); ok {
		return []string{owner.String()}
	}
	return nil
}

// indexManaged is indexByOwner for the objects of this program.
func indexManaged(o metav1.Object) []string {
	if !IsManaged(o) {
		return nil
	}
	return indexByOwner(o)
}

func indexForeign(u *unstructured.Unstructured) []string {
	if IsManaged(u) {
		return nil
	}
	return IndexedHosts(u)
}

func indexForeignNamespace(u *unstructured.Unstructured) []string {
	if IsManaged(u) {
		return nil
	}
	return []string{u.GetNamespace()}
}

// EveryHost stands for the host of a listener: an HTTPRoute without hostnames has it.
const EveryHost = ""

// IndexedHosts returns the hosts of a route, EveryHost for an HTTPRoute without hostnames.
func IndexedHosts(route *unstructured.Unstructured) []string {
	hosts := render.RouteHosts(route)
	if len(hosts) == 0 && route.GetKind() == render.Kinds[render.HTTPRoutes] {
		return []string{EveryHost}
	}
	return hosts
}

// IsManaged reports whether this program wrote an object for an InferenceService. The label alone does not hide an object of a tenant.
func IsManaged(obj any) bool {
	o, ok := obj.(metav1.Object)
	if !ok || o.GetLabels()[render.LabelManagedBy] != render.Manager {
		return false
	}
	_, owned := OwnerName(obj)
	return owned
}

// trimService keeps the fields that package backend reads. A Service without OME's label can be an endpoint picker, or have the name
// of a component: trimService keeps its name and ports.
func trimService(s *corev1.Service) {
	scheme, found := s.Annotations[backend.AnnotationScheme]
	s.ManagedFields, s.Annotations, s.Status = nil, nil, corev1.ServiceStatus{}
	if found {
		s.Annotations = map[string]string{backend.AnnotationScheme: scheme}
	}
	if s.Labels[backend.LabelService] == "" {
		s.Labels, s.OwnerReferences, s.Finalizers, s.Spec = nil, nil, nil, corev1.ServiceSpec{Ports: s.Spec.Ports}
		return
	}
	s.Spec = corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports, Selector: s.Spec.Selector}
}
