// Package observe collects the input for the plan of a service from informer caches. It makes no decisions.
package observe

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Observer reads informer caches.
type Observer struct{ informers.Caches }

// New returns an Observer that reads the given caches.
func New(c informers.Caches) *Observer { return &Observer{Caches: c} }

// Observation is the observed state of one service.
type Observation struct {
	Input        plan.Input
	Live         []Live              // existing objects of this controller
	Dependencies []dependents.Object // other objects that affect the service

	// Requester returns the Ingress that requests the certificate in a TLS Secret for a host, nil if none exists.
	Requester func(host, secret string) *unstructured.Unstructured

	// FailureMode is the failure mode of the InferencePool that the settings name.
	FailureMode string
}

// Live is an existing object of this controller.
type Live struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured // read-only
	Slot     plan.Slot
}

// AnnotationSuperseded records when new objects replaced an object.
const AnnotationSuperseded = "fairlead.dev/superseded-at"

// FindLive returns the existing object with a resource and a name, nil if it does not exist.
func (o *Observation) FindLive(resource schema.GroupVersionResource, name string) *Live {
	i := slices.IndexFunc(o.Live, func(l Live) bool { return l.Resource == resource && l.Object.GetName() == name })
	if i < 0 {
		return nil
	}
	return &o.Live[i]
}

// SupersededAt returns the time when new objects replaced the object, or the zero time.
func (l *Live) SupersededAt() time.Time {
	t, _ := time.Parse(time.RFC3339, l.Object.GetAnnotations()[AnnotationSuperseded]) // zero with an error
	return t
}

// RouteClaim returns the host and path that an object serves. It returns false if the object is not a route.
func (l *Live) RouteClaim() (ownership.Claim, bool) { return render.ParseClaim(l.Resource, l.Object) }

// InferenceService returns an InferenceService from the cache, nil if it does not exist.
func (o *Observer) InferenceService(name cache.ObjectName) *isvc.Object {
	return getObject[*isvc.Object](o.InferenceServices, name)
}

// IsAvailable reports whether objects of a kind can be written: the API server serves the kind, and --kinds includes it.
func (o *Observer) IsAvailable(resource schema.GroupVersionResource) bool {
	return o.Managed[resource].Listed()
}

// ServiceNames returns the names of all InferenceServices.
func (o *Observer) ServiceNames() []cache.ObjectName {
	var names []cache.ObjectName
	for _, s := range kit.CastObjects[*isvc.Object](o.InferenceServices.List()) {
		names = append(names, cache.MetaObjectToName(s))
	}
	return names
}

// ForeignRoutes returns the routes of a kind for a host that this program did not write, except those that are being deleted.
func (o *Observer) ForeignRoutes(resource schema.GroupVersionResource, host string) []*unstructured.Unstructured {
	return slices.DeleteFunc(informers.ForeignRoutes(o.Managed[resource], host),
		func(u *unstructured.Unstructured) bool { return u.GetDeletionTimestamp() != nil })
}

// OwnerNames returns the names of InferenceServices with routes of this controller. They include deleted InferenceServices.
func (o *Observer) OwnerNames() []cache.ObjectName {
	seen := map[cache.ObjectName]bool{}
	var names []cache.ObjectName
	for _, resource := range render.Routes {
		for _, obj := range o.Managed[resource].List() {
			if name, ok := informers.OwnerName(obj); ok && informers.IsManaged(obj) && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// LiveClaims returns the claims of the existing routes of a service. The routes of a deleted service serve requests until the garbage
// collector removes them, so the service does not have to exist.
func (o *Observer) LiveClaims(name cache.ObjectName) []ownership.Ask {
	var asks []ownership.Ask
	for _, resource := range render.Routes {
		for _, u := range informers.ByOwner[*unstructured.Unstructured](o.Managed[resource], name) {
			if c, ok := render.ParseClaim(resource, u); ok {
				asks = append(asks, ownership.Ask{Claim: c, Live: u.GetCreationTimestamp().Time})
			}
		}
	}
	return asks
}

// ObserveAny observes a service that may not exist or may be unreadable. The observation of an unreadable service has only its
// metadata and its objects.
func (o *Observer) ObserveAny(name cache.ObjectName, config settings.Config) (out Observation, found bool) {
	object := o.InferenceService(name)
	switch {
	case object == nil:
		return out, false
	case object.Err != nil:
		out = o.Observe(&isvc.Service{
			Namespace: object.Namespace, Name: object.Name, UID: object.UID, Created: object.CreationTimestamp.Time,
		}, config)
		out.Input.SettingsErr = object.Err
		return out, true
	}
	return o.Observe(object.Service, config), true
}

// Observe collects the observed state of a service under a configuration.
func (o *Observer) Observe(s *isvc.Service, config settings.Config) Observation {
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	out := Observation{Live: o.liveObjects(name)}
	in := &out.Input
	in.Service = s
	in.Settings, in.SettingsErr = config.ResolveSettings(s)
	in.Services = informers.ByOwner[*corev1.Service](o.Services, name)
	in.Podless = o.podlessServices(in.Services)
	o.addForeignServices(&out)
	in.Knative = map[isvc.Role]bool{}
	for _, k := range informers.ByOwner[*metav1.PartialObjectMetadata](o.Knative, name) {
		if !metav1.IsControlledBy(k, &metav1.ObjectMeta{UID: s.UID}) { // belongs to a deleted service with this name
			continue
		}
		for _, r := range isvc.Roles {
			in.Knative[r] = in.Knative[r] || k.Name == backend.ServiceName(s.Name, r) || k.Labels[backend.LabelComponent] == string(r)
		}
	}
	in.Live = liveRoles(out.Live)
	in.Routed = map[ownership.Claim]bool{}
	for i := range out.Live {
		if c, ok := out.Live[i].RouteClaim(); ok {
			in.Routed[c] = true
		}
	}
	in.Foreign = func(host string) []*unstructured.Unstructured { return o.ForeignRoutes(render.Ingresses, host) }
	in.Unserved = map[settings.Strategy]bool{}
	for strategy, resource := range render.Routes {
		in.Unserved[strategy] = !o.IsAvailable(resource)
	}
	out.Requester = func(host, secret string) *unstructured.Unstructured {
		return informers.OldestIngress(o.Managed[render.Ingresses], s.Namespace, host, secret)
	}
	in.Labels = o.NamespaceLabels(s.Namespace)
	in.Classes = kit.CastObjects[*networkingv1.IngressClass](o.IngressClasses.List())
	o.observeGateways(&out)
	o.observeIstioGateway(&out)
	o.observePools(&out)
	if s := &in.Settings; s.Strategy == settings.Ingress || s.Strategy == settings.Auto && !s.GatewayAPI {
		out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.IngressClass})
	}
	return out
}

// getObject returns a cached object of a type, nil if it does not exist, or could not be decoded.
func getObject[T any](r informers.Reader, name cache.ObjectName) T {
	obj, _ := r.Get(name)
	typed, _ := obj.(T)
	return typed
}

// addForeignServices adds Services that have the name of a component and another owner.
func (o *Observer) addForeignServices(out *Observation) {
	in := &out.Input
	for _, r := range isvc.Roles {
		name := cache.ObjectName{Namespace: in.Service.Namespace, Name: backend.ServiceName(in.Service.Name, r)}
		out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.Service, Name: name})
		if service := getObject[*corev1.Service](o.Services, name); service != nil && !slices.Contains(in.Services, service) {
			in.Services = append(in.Services, service)
		}
	}
}

// podlessServices returns the names of the Services that select no pods: their EndpointSlices have no endpoints. A Service without an
// EndpointSlice is new.
func (o *Observer) podlessServices(services []*corev1.Service) map[string]bool {
	podless := map[string]bool{}
	for _, s := range services {
		slicesOf := informers.SlicesOfService(o.Slices, cache.MetaObjectToName(s))
		podless[s.Name] = len(slicesOf) > 0 &&
			!slices.ContainsFunc(slicesOf, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) > 0 })
	}
	return podless
}

// liveObjects returns the existing objects of this controller for a service, by kind.
func (o *Observer) liveObjects(name cache.ObjectName) []Live {
	var objects []Live
	for _, resource := range informers.Written {
		for _, u := range informers.ByOwner[*unstructured.Unstructured](o.Managed[resource], name) {
			if u.GetDeletionTimestamp() == nil {
				objects = append(objects, Live{Resource: resource, Object: u, Slot: plan.Slot(u.GetLabels()[render.LabelSlot])})
			}
		}
	}
	return objects
}

// liveRoles returns the components that existing objects route to, by slot.
func liveRoles(live []Live) map[plan.Slot][]isvc.Role {
	roles := map[plan.Slot][]isvc.Role{}
	for i := range live {
		l := &live[i]
		role := isvc.Role(l.Object.GetLabels()[render.LabelComponent])
		if role != "" && !slices.Contains(roles[l.Slot], role) {
			roles[l.Slot] = append(roles[l.Slot], role)
		}
	}
	return roles
}

// NamespaceLabels returns the labels of a namespace, nil if the namespace is not in the cache.
func (o *Observer) NamespaceLabels(namespace string) map[string]string {
	n := getObject[*metav1.PartialObjectMetadata](o.Namespaces, cache.ObjectName{Name: namespace})
	switch {
	case n == nil:
		return nil
	case n.Labels == nil:
		return map[string]string{}
	}
	return n.Labels
}

// observeGateways adds the Gateways that the settings name.
func (o *Observer) observeGateways(out *Observation) {
	in := &out.Input
	in.Gateways = map[types.NamespacedName]gatewayapi.Gateway{}
	for _, p := range in.Settings.Gateways {
		name := cache.ObjectName{Namespace: p.Namespace, Name: p.Name}
		g := o.findGateway(name)
		in.Gateways[types.NamespacedName(name)] = g
		out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.Gateway, Name: name})
		if g.ListenerSet {
			out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.Gateway, Name: o.parentGateway(name)})
		}
	}
}

// observeIstioGateway adds the Istio Gateway that the settings name, if the API server serves the kind.
func (o *Observer) observeIstioGateway(out *Observation) {
	in := &out.Input
	if in.Settings.IstioGateway == "" {
		return
	}
	namespace, name := istiogateway.ParseName(in.Settings.IstioGateway, in.Service.Namespace)
	key := cache.ObjectName{Namespace: namespace, Name: name}
	out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.IstioGateway, Name: key})
	if !o.IstioGateways.Listed() {
		return
	}
	in.Istio = map[types.NamespacedName]*istiogateway.Gateway{}
	if obj, exists := o.IstioGateways.Get(key); exists {
		g, readable := obj.(*istiogateway.Gateway)
		if !readable {
			g = &istiogateway.Gateway{Unreadable: true}
		}
		in.Istio[types.NamespacedName(key)] = g
	}
}

// findGateway returns a Gateway with its class, or else the ListenerSet of that name.
func (o *Observer) findGateway(name cache.ObjectName) gatewayapi.Gateway {
	if g := getObject[*gatewayv1.Gateway](o.Gateways, name); g != nil {
		return gatewayapi.Gateway{Gateway: g, Class: o.gatewayClass(g)}
	}
	set := getObject[*gatewayv1.ListenerSet](o.ListenerSets, name)
	if set == nil {
		return gatewayapi.Gateway{}
	}
	return gatewayapi.FromListenerSet(set, o.gatewayClass(getObject[*gatewayv1.Gateway](o.Gateways, o.parentGateway(name))))
}

// gatewayClass returns the class of a Gateway, nil if it does not exist.
func (o *Observer) gatewayClass(g *gatewayv1.Gateway) *gatewayv1.GatewayClass {
	if g == nil {
		return nil
	}
	return getObject[*gatewayv1.GatewayClass](o.GatewayClasses, cache.ObjectName{Name: string(g.Spec.GatewayClassName)})
}

// parentGateway returns the Gateway of a ListenerSet.
func (o *Observer) parentGateway(set cache.ObjectName) cache.ObjectName {
	parent := cache.ObjectName{Namespace: set.Namespace}
	if s := getObject[*gatewayv1.ListenerSet](o.ListenerSets, set); s != nil {
		ref := s.Spec.ParentRef
		parent.Name, parent.Namespace = string(ref.Name), string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(set.Namespace)))
	}
	return parent
}

// observePools adds the InferencePool that the settings name, and the Service of the endpoint picker.
func (o *Observer) observePools(out *Observation) {
	in := &out.Input
	if in.Settings.Pool == nil || !o.Pools.Listed() {
		return
	}
	in.Pools = map[string]*inferencev1.InferencePool{}
	if name := in.Settings.Pool.Name; name != "" {
		pool := cache.ObjectName{Namespace: in.Service.Namespace, Name: name}
		obj, found := o.Pools.Get(pool)
		if p, ok := obj.(*inferencev1.InferencePool); ok {
			in.Pools[name] = p
			if p.Spec.EndpointPickerRef != nil {
				out.FailureMode = cmp.Or(string(p.Spec.EndpointPickerRef.FailureMode), settings.FailClose)
			}
		} else if found {
			in.Pools[name] = &inferencev1.InferencePool{} // unreadable: selector and picker are unknown
		}
		out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.InferencePool, Name: pool})
	}
	if name, ok := plan.PickerService(in); ok {
		picker := cache.ObjectName{Namespace: in.Service.Namespace, Name: name}
		if s := getObject[*corev1.Service](o.Services, picker); s != nil && s.DeletionTimestamp == nil {
			in.Pickers = map[string]*corev1.Service{name: s}
		}
		out.Dependencies = append(out.Dependencies, dependents.Object{Kind: dependents.Service, Name: picker})
	}
}
