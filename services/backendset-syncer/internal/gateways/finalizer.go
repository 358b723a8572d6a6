package gateways

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// okeFinalizer is the finalizer of oke-gateway-api on HTTPRoutes. It stays when that controller is uninstalled, and then a deleted route
// never ends. A program that serves its GatewayClasses removes it, after the rules of the route have left the load balancer.
const okeFinalizer = "oke-gateway-api.gemyago.github.io/http-route-programmed"

// releaseFinalizers removes the finalizer of oke-gateway-api from deleted routes of a load balancer that has none of their rules any
// longer.
func (r *Reconciler) releaseFinalizers( //nolint:revive // current is part of the report
	ctx context.Context, plan *gatewayplan.Plan, report *actor.LayoutReport, current bool,
) error {
	if !r.p.OKE || report == nil || !current || report.Reason != "" {
		return nil
	}
	for ref := range report.Behind {
		if ref.Kind == lbrecord.RoutingPolicy || ref.Kind == lbrecord.Listener { // a listener loses its policy with the last rule
			return nil
		}
	}
	own := map[cache.ObjectName]bool{}
	for _, g := range plan.Gateways {
		own[cache.MetaObjectToName(g)] = true
	}
	return r.releaseRoutes(ctx, func(route *gatewayv1.HTTPRoute) bool {
		if slices.ContainsFunc(plan.Routes, func(planned *gatewayplan.Route) bool { return planned.UID == route.UID }) {
			return false // it was deleted after the plan, which has its rules
		}
		return slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
			return own[gatewayplan.ParentName(&ref, route.Namespace)]
		})
	})
}

// releaseOrphans removes the finalizer from deleted routes whose Gateways do not exist: no load balancer has their rules.
func (r *Reconciler) releaseOrphans(ctx context.Context) error {
	if !r.p.OKE {
		return nil
	}
	return r.releaseRoutes(ctx, func(route *gatewayv1.HTTPRoute) bool {
		return !slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
			return informers.FindObject[gatewayv1.Gateway](r.p.Caches.Gateways, gatewayplan.ParentName(&ref, route.Namespace)) != nil
		})
	})
}

func (r *Reconciler) releaseRoutes(ctx context.Context, may func(*gatewayv1.HTTPRoute) bool) error {
	var errs []error
	for _, route := range informers.ListAll[gatewayv1.HTTPRoute](r.p.Caches.Routes) {
		if route.DeletionTimestamp == nil || !slices.Contains(route.Finalizers, okeFinalizer) || !may(route) {
			continue
		}
		if err := r.p.Writer.RemoveFinalizer(ctx, route, okeFinalizer); err != nil {
			errs = append(errs, err)
			continue
		}
		logging.FromContext(ctx).Info("Removed finalizer of oke-gateway-api", zap.String("route", route.Namespace+"/"+route.Name))
	}
	return errors.Join(errs...)
}
