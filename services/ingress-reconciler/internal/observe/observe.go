// Package observe gathers all that the plan of one service follows from. It decides nothing, and reads caches only.
package observe

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
	"fairlead.dev/services/ingress-reconciler/internal/uses"
)

// Observer reads caches.
type Observer struct{ informers.Caches }

// New returns an Observer of these caches.
func New(c informers.Caches) *Observer { return &Observer{Caches: c} }

// Observation is what is known of one service.
type Observation struct {
	Input plan.Input
	Live  []Live        // objects that are ours
	Uses  []uses.Object // what else a change of would matter

	// FailureMode is that of the InferencePool that the settings name: what becomes of requests without its picker.
	FailureMode string
}

// Live is an object of ours that is there.
type Live struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured // must not be changed
	Slot     plan.Slot
}

// AnnotationSuperseded is when other objects had taken the place of one.
const AnnotationSuperseded = "fairlead.dev/superseded-at"

// Superseded returns the time that an object has by its annotation.
func (l *Live) Superseded() time.Time {
	t, err := time.Parse(time.RFC3339, l.Object.GetAnnotations()[AnnotationSuperseded])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Claim returns the host and path that an object serves, and reports false for an object that serves none.
func (l *Live) Claim() (ownership.Claim, bool) { return render.Claim(l.Resource, l.Object) }

// Service returns an InferenceService as it was last seen, nil if it is gone.
func (o *Observer) Service(name cache.ObjectName) *isvc.Object {
	obj, found := o.InferenceServices.Get(name)
	if !found {
		return nil
	}
	s, _ := obj.(*isvc.Object)
	return s
}

// Available reports whether objects of a kind that is written can be: the API server serves the kind, and --kinds has it.
func (o *Observer) Available(resource schema.GroupVersionResource) bool {
	return o.Ours[resource].Listed()
}

// Names returns the names of all InferenceServices.
func (o *Observer) Names() []cache.ObjectName {
	var names []cache.ObjectName
	for _, obj := range o.InferenceServices.List() {
		if s, ok := obj.(*isvc.Object); ok {
			names = append(names, cache.MetaObjectToName(s))
		}
	}
	return names
}

// Owners returns the names of InferenceServices that have objects of ours, whether they still exist or not.
func (o *Observer) Owners() []cache.ObjectName {
	seen := map[cache.ObjectName]bool{}
	var names []cache.ObjectName
	for _, resource := range render.Routes {
		for _, obj := range o.Ours[resource].List() {
			if name, ok := informers.Owner(obj); ok && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// Claims returns the claims that objects of a service serve, also of a service that is gone: its objects serve until the garbage
// collector has removed them.
func (o *Observer) Claims(name cache.ObjectName) []ownership.Ask {
	var asks []ownership.Ask
	for _, resource := range render.Routes {
		for _, u := range list[*unstructured.Unstructured](informers.OwnedBy(o.Ours[resource], name)) {
			if c, ok := render.Claim(resource, u); ok {
				asks = append(asks, ownership.Ask{Claim: c, Live: u.GetCreationTimestamp().Time})
			}
		}
	}
	return asks
}

// ObserveAny observes a service that may be gone, or unreadable: then its name and age are known, and its objects.
func (o *Observer) ObserveAny(name cache.ObjectName, config settings.Config) (out Observation, found bool) {
	object := o.Service(name)
	switch {
	case object == nil:
		return out, false
	case object.Err != nil:
		out = o.Observe(&isvc.Service{Namespace: object.Namespace, Name: object.Name, UID: object.UID, Created: object.CreationTimestamp.Time}, config)
		out.Input.SettingsErr = object.Err
		return out, true
	}
	return o.Observe(object.Service, config), true
}

// Observe gathers what is known of a service, under what is configured.
func (o *Observer) Observe(s *isvc.Service, config settings.Config) Observation {
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	out := Observation{Live: o.live(name)}
	in := &out.Input
	in.Service = s
	in.Settings, in.SettingsErr = config.Resolve(s)
	in.Services = list[*corev1.Service](informers.OwnedBy(o.Services, name))
	o.strangers(in)
	in.Knative = map[isvc.Role]bool{}
	for _, k := range list[*metav1.PartialObjectMetadata](informers.OwnedBy(o.Knative, name)) {
		if !metav1.IsControlledBy(k, &metav1.ObjectMeta{UID: s.UID}) { // of an earlier service of this name
			continue
		}
		for _, r := range isvc.Roles {
			in.Knative[r] = in.Knative[r] || k.Name == backend.Name(s.Name, r) || k.Labels[backend.LabelComponent] == string(r)
		}
	}
	in.Live = slots(out.Live)
	in.Unserved = map[settings.Strategy]bool{}
	for strategy, resource := range render.Routes {
		in.Unserved[strategy] = !o.Available(resource)
	}
	in.Labels = o.labels(s.Namespace)
	in.Classes = list[*networkingv1.IngressClass](o.IngressClasses.List())
	o.gateways(&out)
	o.istioGateway(&out)
	o.pools(&out)
	if s := &in.Settings; s.Strategy == settings.Ingress || s.Strategy == settings.Auto && !s.GatewayAPI {
		out.Uses = append(out.Uses, uses.Object{Kind: uses.IngressClass})
	}
	return out
}

// list converts what a cache holds, and leaves out what could not be read.
func list[T any](objects []any) []T {
	out := make([]T, 0, len(objects))
	for _, obj := range objects {
		if typed, ok := obj.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

// strangers adds Services that have names of components and belong to somebody else.
func (o *Observer) strangers(in *plan.Input) {
	for _, r := range isvc.Roles {
		name := cache.ObjectName{Namespace: in.Service.Namespace, Name: backend.Name(in.Service.Name, r)}
		obj, found := o.Services.Get(name)
		service, ok := obj.(*corev1.Service)
		if found && ok && !slices.Contains(in.Services, service) {
			in.Services = append(in.Services, service)
		}
	}
}

// live returns the objects of ours that a service has, by kind.
func (o *Observer) live(name cache.ObjectName) []Live {
	var all []Live
	for _, resource := range informers.Written {
		for _, u := range list[*unstructured.Unstructured](informers.OwnedBy(o.Ours[resource], name)) {
			if u.GetDeletionTimestamp() == nil {
				all = append(all, Live{Resource: resource, Object: u, Slot: plan.Slot(u.GetLabels()[render.LabelSlot])})
			}
		}
	}
	return all
}

// slots returns the components that live objects point at, by slot.
func slots(live []Live) map[plan.Slot][]isvc.Role {
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

// labels returns those of a namespace, nil if they are not known.
func (o *Observer) labels(namespace string) map[string]string {
	obj, found := o.Namespaces.Get(cache.ObjectName{Name: namespace})
	if n, ok := obj.(*metav1.PartialObjectMetadata); found && ok {
		if n.Labels == nil {
			return map[string]string{}
		}
		return n.Labels
	}
	return nil
}

// gateways adds the Gateways that the settings name.
func (o *Observer) gateways(out *Observation) {
	in := &out.Input
	in.Gateways = map[types.NamespacedName]gateway.Gateway{}
	for _, p := range in.Settings.Gateways {
		name := cache.ObjectName{Namespace: p.Namespace, Name: p.Name}
		in.Gateways[types.NamespacedName(name)] = o.gateway(name)
		out.Uses = append(out.Uses, uses.Object{Kind: uses.Gateway, Name: name})
	}
}

// istioGateway adds the Istio Gateway that the settings name, if the kind is known.
func (o *Observer) istioGateway(out *Observation) {
	in := &out.Input
	if in.Settings.IstioGateway == "" || !o.IstioGateways.Listed() {
		return
	}
	namespace, name := istiogateway.ParseName(in.Settings.IstioGateway, in.Service.Namespace)
	key := cache.ObjectName{Namespace: namespace, Name: name}
	in.Istio = map[types.NamespacedName]*istiogateway.Gateway{}
	obj, _ := o.IstioGateways.Get(key)
	if g, ok := obj.(*istiogateway.Gateway); ok {
		in.Istio[types.NamespacedName(key)] = g
	}
	out.Uses = append(out.Uses, uses.Object{Kind: uses.IstioGateway, Name: key})
}

func (o *Observer) gateway(name cache.ObjectName) gateway.Gateway {
	var g gateway.Gateway
	obj, found := o.Gateways.Get(name)
	if !found {
		return g
	}
	if g.Gateway, _ = obj.(*gatewayv1.Gateway); g.Gateway == nil {
		return g
	}
	class, _ := o.GatewayClasses.Get(cache.ObjectName{Name: string(g.Gateway.Spec.GatewayClassName)})
	g.Class, _ = class.(*gatewayv1.GatewayClass)
	return g
}

// pools adds the InferencePool that the settings name, and the Service of the endpoint picker.
func (o *Observer) pools(out *Observation) {
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
			in.Pools[name] = &inferencev1.InferencePool{} // not readable: its selector and picker are not known
		}
		out.Uses = append(out.Uses, uses.Object{Kind: uses.InferencePool, Name: pool})
	}
	if name, ok := plan.PickerService(in); ok {
		picker := cache.ObjectName{Namespace: in.Service.Namespace, Name: name}
		obj, _ := o.Services.Get(picker)
		if s, ok := obj.(*corev1.Service); ok && s.DeletionTimestamp == nil {
			in.Pickers = map[string]*corev1.Service{name: s}
		}
		out.Uses = append(out.Uses, uses.Object{Kind: uses.Service, Name: picker})
	}
}
