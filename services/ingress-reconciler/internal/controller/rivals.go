package controller

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/semantics"
)

// apiRequests are the requests that clients of model servers send to paths below a URL.
var apiRequests = []struct{ method, path string }{
	{"POST", ""}, {"POST", "v1/chat/completions"}, {"POST", "v1/completions"}, {"POST", "v1/embeddings"}, {"GET", "v1/models"},
}

// contestedVerdict returns the verdict on an accepted route. The data plane may send its requests to a route of another owner:
//
//	a route of another owner wins        verdict
//	all requests for the URL             Refused, HostConflict
//	those for the API below the URL      that of the data plane, with a warning
//	all, and it is OME's left-over       that of the data plane, with a warning: adopt deletes it
func (r *run) contestedVerdict(o *render.Object, stored *unstructured.Unstructured, v gatewayapi.Verdict) gatewayapi.Verdict {
	rivals := r.findRivals(o)
	if v.Acceptance == gatewayapi.Refused || o.Exposure.Attachment.Reason != "" || len(rivals) == 0 {
		return v
	}
	stored = r.withCreationTime(stored)
	world, err := semantics.FromObjects(r.routingObjects(o.Exposure, append(slices.Clone(rivals), stored)))
	if err != nil {
		return v // an object of the data plane cannot be read
	}
	c := contest{
		exposure: o.Exposure, stored: stored, rivals: rivals, withRoute: world,
		withoutRoute: sync.OnceValues(func() (*semantics.World, error) {
			return semantics.FromObjects(r.routingObjects(o.Exposure, rivals))
		}),
	}
	for _, a := range apiRequests {
		path := o.Exposure.Path + a.path
		request := semantics.Request{Entrance: r.requestEntrance(o), Host: o.Exposure.Host, Path: path, Method: a.method}
		if m := o.Exposure.Model; m.Header != "" {
			request.Header = map[string]string{m.Header: m.Name}
		}
		winner, reason := c.findWinner(request)
		switch {
		case winner == nil:
			continue
		case metav1.IsControlledBy(winner, &metav1.ObjectMeta{UID: r.observed.Input.Service.UID}):
			r.warnOfConflict(o.Exposure, "%s of OME answers %s%s (%s): ingress-reconciler adopt deletes it", objectName(winner),
				o.Exposure.Host, path, reason)
		case path == o.Exposure.Path:
			return gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: plan.ReasonHostConflict, Message: fmt.Sprintf(
				"%s answers %s%s, not this program's route (%s): delete it, or choose another host", objectName(winner), o.Exposure.Host,
				path, reason)}
		default:
			r.warnOfConflict(o.Exposure, "%s answers %s%s (%s)", objectName(winner), o.Exposure.Host, path, reason)
		}
		return v
	}
	return v
}

// findRivals returns the routes of other owners for the host of an object. It omits routes that the data plane cannot read, although the
// API server accepts them: they receive no requests.
func (r *run) findRivals(o *render.Object) []*unstructured.Unstructured {
	rivals := r.reconciler.Observer.ForeignRoutes(o.Resource, o.Exposure.Host)
	if o.Exposure.OwnListener {
		rivals = append(rivals, r.reconciler.Observer.ForeignRoutes(o.Resource, informers.EveryHost)...)
	}
	return slices.DeleteFunc(rivals, func(u *unstructured.Unstructured) bool {
		_, err := semantics.FromObjects([]*unstructured.Unstructured{u})
		return err != nil
	})
}

func (r *run) warnOfConflict(e *plan.Exposure, format string, args ...any) {
	r.plan.Reasons = append(r.plan.Reasons,
		plan.Reason{Role: e.Role, Reason: plan.ReasonHostConflict, Message: fmt.Sprintf(format, args...), Warning: true})
}

func objectName(u *unstructured.Unstructured) string {
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// A contest is a route of this program, and the routes of others for its host.
type contest struct {
	exposure     *plan.Exposure
	stored       *unstructured.Unstructured // the route, as the API server has it
	rivals       []*unstructured.Unstructured
	withRoute    *semantics.World
	withoutRoute func() (*semantics.World, error) // without the route; created on first use, because rivals can be many
}

// findWinner returns the route of another owner that answers a request to an exposure, nil if none does, and the reason.
func (c *contest) findWinner(request semantics.Request) (*unstructured.Unstructured, string) {
	answer, err := c.withRoute.ExplainRequest(request)
	switch {
	case errors.Is(err, semantics.ErrAmbiguous):
		return c.rivalAnswer(request), "the data plane can choose either route"
	case answer.Winner == nil && !errors.Is(err, semantics.ErrNoRoute):
		created := c.stored.GetCreationTimestamp()
		return oldestWithPath(c.rivals, c.exposure, &created), "it has the same path and is older"
	case answer.Winner == nil:
		return nil, ""
	}
	i := indexOf(c.rivals, answer)
	if i < 0 {
		return nil, ""
	}
	for _, l := range answer.Losers {
		if l.Namespace == c.stored.GetNamespace() && l.Name == c.stored.GetName() {
			return c.rivals[i], "this program's route loses: " + l.Reason
		}
	}
	return c.rivals[i], answer.Winner.Rule
}

// indexOf returns the index of the route that wins, -1 if it is not in the list.
func indexOf(routes []*unstructured.Unstructured, answer semantics.Explanation) int {
	return slices.IndexFunc(routes, func(u *unstructured.Unstructured) bool {
		return answer.Winner != nil && u.GetNamespace() == answer.Winner.Namespace && u.GetName() == answer.Winner.Name
	})
}

// rivalAnswer returns the route that would answer without the route of this program.
func (c *contest) rivalAnswer(request semantics.Request) *unstructured.Unstructured {
	if world, err := c.withoutRoute(); err == nil {
		if answer, err := world.ExplainRequest(request); err == nil {
			if i := indexOf(c.rivals, answer); i >= 0 {
				return c.rivals[i]
			}
		}
	}
	return oldestWithPath(c.rivals, c.exposure, nil)
}

// oldestWithPath returns the oldest route with the path of an exposure, older than a time unless that is nil. It is the answer where the
// data plane is not modeled, or can choose.
func oldestWithPath(rivals []*unstructured.Unstructured, e *plan.Exposure, before *metav1.Time) *unstructured.Unstructured {
	var found *unstructured.Unstructured
	for _, u := range rivals {
		created := u.GetCreationTimestamp()
		if u.GetAnnotations()[annotationCanary] == "true" || !slices.Contains(render.PathPrefixes(u, e.Host), e.Path) ||
			before != nil && before.Before(&created) {
			continue
		}
		if first := found; first == nil || created.Time.Before(first.GetCreationTimestamp().Time) {
			found = u
		}
	}
	return found
}

// annotationCanary marks an Ingress that receives a part of the requests of another Ingress.
const annotationCanary = "nginx.ingress.kubernetes.io/canary"

// withCreationTime returns a route with a creation time. A route that is not stored yet is younger than all others.
func (r *run) withCreationTime(stored *unstructured.Unstructured) *unstructured.Unstructured {
	if created := stored.GetCreationTimestamp(); !created.IsZero() {
		return stored
	}
	next := stored.DeepCopy()
	next.SetCreationTimestamp(metav1.NewTime(r.reconciler.Clock.Now().Add(time.Second)))
	return next
}

// requestEntrance returns the entrance at which the requests of an exposure arrive.
func (r *run) requestEntrance(o *render.Object) semantics.Entrance {
	e := o.Exposure
	switch o.Resource {
	case render.HTTPRoutes:
		return semantics.Entrance{Gateway: gatewayName(e), Port: e.Attachment.Port}
	case render.Ingresses:
		return semantics.Entrance{IngressClass: e.Class.Name}
	}
	namespace, name := istiogateway.ParseName(r.observed.Input.Settings.IstioGateway, r.observed.Input.Service.Namespace)
	return semantics.Entrance{IstioGateway: namespace + "/" + name}
}

// routingObjects returns the objects on which the answers of routes depend, with the routes.
func (r *run) routingObjects(e *plan.Exposure, routes []*unstructured.Unstructured) []*unstructured.Unstructured {
	in := &r.observed.Input
	objects := slices.Clone(routes)
	add := func(typed any, kind string) {
		if content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err == nil {
			u := &unstructured.Unstructured{Object: content}
			u.SetAPIVersion(map[string]string{
				"Gateway": render.HTTPRoutes.GroupVersion().String(), "IngressClass": render.Ingresses.GroupVersion().String(),
				"Namespace": "v1",
			}[kind])
			u.SetKind(kind)
			objects = append(objects, u)
		}
	}
	if g := in.Gateways[gatewayName(e)]; g.Gateway != nil {
		add(g.Gateway, "Gateway")
		if g.ListenerSet {
			for i, u := range objects[:len(routes)] {
				objects[i] = withGatewayParents(u)
			}
		}
	}
	for _, c := range in.Classes {
		add(c, "IngressClass")
	}
	namespaces := map[string]bool{in.Service.Namespace: true}
	for _, u := range routes {
		namespaces[u.GetNamespace()] = true
	}
	for n := range namespaces {
		add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: r.reconciler.Observer.NamespaceLabels(n)}},
			"Namespace")
	}
	return objects
}

// withGatewayParents returns an HTTPRoute with Gateways as parents instead of ListenerSets, which attach routes in the same way.
func withGatewayParents(route *unstructured.Unstructured) *unstructured.Unstructured {
	next := route.DeepCopy()
	parents, _, _ := unstructured.NestedSlice(next.Object, "spec", "parentRefs")
	parents = slices.DeleteFunc(parents, func(p any) bool {
		ref, _ := p.(map[string]any)
		was := ref["kind"]
		ref["kind"] = "Gateway"
		return was != "ListenerSet"
	})
	_ = unstructured.SetNestedSlice(next.Object, parents, "spec", "parentRefs") // cannot fail: spec is an object
	return next
}
