package gatewayplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Route is an HTTPRoute with parents on the load balancer.
type Route struct {
	*gatewayv1.HTTPRoute

	parents  []*Parent
	resolved plan.Problem // of the condition ResolvedRefs
	route    *routing.Route
	claims   [][]claim       // of each rule
	sets     map[string]bool // names of the backend sets of its rules
}

// Parent is a parentRef of a route that refers to a Gateway of the load balancer.
type Parent struct {
	ref        gatewayv1.ParentReference
	gateway    *ResolvedGateway
	listeners  []*Listener  // that the route is attached to
	problem    plan.Problem // why it is attached to none
	acceptance routing.Acceptance
}

// attachedListeners returns the listeners that the route is attached to, each once.
func (r *Route) attachedListeners() []*Listener {
	var listeners []*Listener
	for _, p := range r.parents {
		for _, l := range p.listeners {
			if !slices.Contains(listeners, l) {
				listeners = append(listeners, l)
			}
		}
	}
	return listeners
}

// attachRoutes attaches routes to listeners.
func (b *planBuilder) attachRoutes() {
	gateways := map[cache.ObjectName]*ResolvedGateway{}
	for _, g := range b.Gateways {
		gateways[cache.MetaObjectToName(g)] = g
	}
	for _, r := range informers.ListAll[gatewayv1.HTTPRoute](b.planner.caches.Routes) {
		route := &Route{HTTPRoute: r, sets: map[string]bool{}}
		for i := range r.Spec.ParentRefs {
			ref := &r.Spec.ParentRefs[i]
			g := gateways[ParentName(ref, r.Namespace)]
			if g == nil {
				continue
			}
			route.parents = append(route.parents, b.newParent(route, ref, g))
		}
		if len(route.parents) > 0 && r.DeletionTimestamp == nil {
			b.addRoute(route)
		}
	}
	slices.SortFunc(b.Routes, ownership.CompareAge)
	for _, r := range b.Routes {
		for _, l := range r.attachedListeners() {
			l.routes = append(l.routes, r.route)
			l.attached++
		}
	}
}

// ParentName returns the Gateway that a parentRef refers to; the zero value if it refers to another kind.
func ParentName(ref *gatewayv1.ParentReference, namespace string) cache.ObjectName {
	if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || ptr.Deref(ref.Kind, "Gateway") != "Gateway" {
		return cache.ObjectName{}
	}
	return cache.ObjectName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name)}
}

// newParent decides which listeners take a route.
func (b *planBuilder) newParent(r *Route, ref *gatewayv1.ParentReference, g *ResolvedGateway) *Parent {
	p := &Parent{ref: *ref, gateway: g}
	p.problem = plan.NewProblem(gatewayv1.RouteReasonNoMatchingParent, "the Gateway has no such listener")
	closest := 0
	for _, l := range b.Listeners {
		if l.gateway != g || !gatewayapi.References(ref, r.Namespace, g.Gateway, l.Listener) {
			continue
		}
		reason, rank := b.listenerRefusal(l, r)
		if !reason.IsSet() {
			p.listeners = append(p.listeners, l)
		} else if rank > closest {
			p.problem, closest = reason, rank
		}
	}
	if len(p.listeners) > 0 {
		p.problem = plan.Problem{}
	}
	return p
}

// Ranks of refusals: of several listeners, the reason of the one that came closest counts.
const (
	rankInvalid = iota + 1
	rankNotAllowed
	rankHostname
)

// listenerRefusal returns why a listener does not take a route.
func (b *planBuilder) listenerRefusal(l *Listener, r *Route) (plan.Problem, int) {
	allowed, err := gatewayapi.AllowsNamespace(l.gateway.Gateway, l.Listener, r.Namespace, b.labelsOf(r.Namespace))
	switch {
	case !l.isValid():
		return plan.NewProblem(gatewayv1.RouteReasonNoMatchingParent, "listener %s is not accepted: see its conditions",
			l.Name), rankInvalid
	case err != nil || !allowed || !gatewayapi.AllowsHTTPRoutes(l.Listener):
		return plan.NewProblem(gatewayv1.RouteReasonNotAllowedByListeners,
			"listener %s does not take HTTPRoutes of namespace %s: check its allowedRoutes", l.Name, r.Namespace), rankNotAllowed
	}
	if len(r.Spec.Hostnames) == 0 || slices.ContainsFunc(r.Spec.Hostnames, func(h gatewayv1.Hostname) bool {
		return gatewayapi.HostnamesIntersect(string(h), l.lowerHostname())
	}) {
		return plan.Problem{}, 0
	}
	return plan.NewProblem(gatewayv1.RouteReasonNoMatchingListenerHostname, "listener %s has hostname %s", l.Name,
		l.lowerHostname()), rankHostname
}

// labelsOf returns the labels of a namespace, nil if it is not known.
func (b *planBuilder) labelsOf(namespace string) map[string]string {
	m := informers.FindObject[metav1.PartialObjectMetadata](b.planner.caches.Namespaces, cache.ObjectName{Name: namespace})
	if m == nil {
		return nil
	}
	if m.Labels == nil {
		return map[string]string{corev1.LabelMetadataName: namespace}
	}
	return m.Labels
}

// addRoute resolves the backends of a route.
func (b *planBuilder) addRoute(r *Route) {
	r.route = &routing.Route{HTTPRoute: r.HTTPRoute, Refused: map[int]plan.Problem{}}
	listeners := r.attachedListeners()
	for i := range r.Spec.Rules {
		members, problem := b.resolveMembers(r.HTTPRoute, &r.Spec.Rules[i])
		if problem.IsSet() && !r.resolved.IsSet() {
			r.resolved = plan.NewProblem(problem.Reason, "rules[%d].%s", i, problem.Message)
		}
		r.route.Members = append(r.route.Members, members)
		r.claims = append(r.claims, claimsOf(r.HTTPRoute, &r.Spec.Rules[i], listeners))
	}
	b.Routes = append(b.Routes, r)
}

// acceptRoutes notes the acceptance of all routes by their parents, and the backend sets of their rules.
func (b *planBuilder) acceptRoutes() {
	at := map[*Listener]*routing.Listener{}
	for i, l := range b.valid {
		at[l] = &b.input.Listeners[i]
	}
	problems := map[types.NamespacedName][]routing.Problem{}
	for _, p := range b.desired.Problems {
		problems[p.Route] = append(problems[p.Route], p)
	}
	for _, r := range b.Routes {
		own := problems[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}]
		for _, p := range r.parents {
			var listeners []*routing.Listener
			for _, l := range p.listeners {
				listeners = append(listeners, at[l])
			}
			if len(listeners) > 0 {
				p.acceptance = routing.AcceptRoute(r.route, listeners, own)
			} else {
				p.acceptance = routing.Acceptance{Reason: p.problem.Reason, Message: p.problem.Message}
			}
		}
		for i := range r.route.Members {
			if name := b.desired.SetOf(r.route.Members[i]); name != "" {
				r.sets[name] = true
			}
		}
	}
}
