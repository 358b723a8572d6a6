package gatewayplan

import (
	"reflect"
	"slices"

	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// IsOwnGateway reports whether a parentRef refers to a Gateway of the program.
func (p *Planner) IsOwnGateway(ref *gatewayv1.ParentReference, namespace string) bool {
	g := informers.FindObject[gatewayv1.Gateway](p.caches.Gateways, ParentName(ref, namespace))
	if g == nil {
		return false
	}
	class := informers.FindObject[gatewayv1.GatewayClass](p.caches.GatewayClasses, cache.ObjectName{Name: string(g.Spec.GatewayClassName)})
	return class == nil || p.IsOwnController(class.Spec.ControllerName)
}

// OrphanedRoutes returns the routes with entries of the program for parents that they no longer have, or that are no longer Gateways of the
// program, with the entries that stay.
func (p *Planner) OrphanedRoutes() map[*gatewayv1.HTTPRoute][]gatewayv1.RouteParentStatus {
	orphans := map[*gatewayv1.HTTPRoute][]gatewayv1.RouteParentStatus{}
	for _, r := range informers.ListAll[gatewayv1.HTTPRoute](p.caches.Routes) {
		kept := slices.DeleteFunc(slices.Clone(r.Status.Parents), func(s gatewayv1.RouteParentStatus) bool {
			return p.IsOwnController(s.ControllerName) && (!hasParent(r, &s.ParentRef) || !p.IsOwnGateway(&s.ParentRef, r.Namespace))
		})
		if len(kept) < len(r.Status.Parents) {
			orphans[r] = kept
		}
	}
	return orphans
}

func hasParent(r *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference) bool {
	return slices.ContainsFunc(r.Spec.ParentRefs, func(x gatewayv1.ParentReference) bool { return reflect.DeepEqual(x, *ref) })
}

// maxParents is the limit of the CRD.
const maxParents = 32

// MergeParents returns the entries of a route with those of the program replaced. Entries of other controllers, and of other load
// balancers, stay in their order.
func MergeParents(r *gatewayv1.HTTPRoute, own []gatewayv1.RouteParentStatus) []gatewayv1.RouteParentStatus {
	merged := slices.Clone(r.Status.Parents)
	for i := range own {
		if at := indexOfParent(merged, &own[i]); at >= 0 {
			merged[at] = own[i]
		} else {
			merged = append(merged, own[i])
		}
	}
	merged = slices.DeleteFunc(merged, func(s gatewayv1.RouteParentStatus) bool {
		return len(own) > 0 && s.ControllerName == own[0].ControllerName && !hasParent(r, &s.ParentRef)
	})
	return merged[:min(len(merged), maxParents)]
}
