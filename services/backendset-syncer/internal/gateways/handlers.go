package gateways

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/controller"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// AddHandlers registers event handlers that enqueue what a changed object affects:
//
//	a Service, an EndpointSlice         the load balancers whose routes refer to the Service
//	a Pod                               the load balancers whose routes refer to an InferencePool with the pod, or, if it has a
//	                                    readiness gate, to one of its Services
//	a BackendSetBinding                 its load balancer: the set is no longer free
//	a record                            its load balancer
//	other kinds                         everything: how parameters, grants, labels and certificates affect routes depends on all of them
func AddHandlers(i *informers.Informers, r *Reconciler) {
	sweep := controller.Handler(r.p.Enqueue, func(any) []cache.ObjectName { return []cache.ObjectName{{Name: sweepKey}} })
	for _, informer := range []kit.Informer{i.GatewayClasses, i.Gateways, i.Grants, i.Pools, i.GatewayConfigs, i.Secrets} {
		informer.AddEventHandler(sweep)
	}
	i.Routes.AddEventHandler(controller.Handler(r.p.Enqueue, func(obj any) []cache.ObjectName {
		if route, ok := obj.(*gatewayv1.HTTPRoute); ok && !r.isOwnRoute(route) {
			return nil
		}
		return []cache.ObjectName{{Name: sweepKey}}
	}))
	i.Namespaces.AddEventHandler(controller.UnlessSame(sameLabels, sweep))
	i.ConfigMaps.AddEventHandler(controller.TypedHandler(r.p.Enqueue, r.ofConfigMap))
	i.Services.AddEventHandler(controller.NameHandler(r.p.Enqueue, r.ofService))
	i.EndpointSlices.AddEventHandler(controller.TypedHandler(r.p.Enqueue, func(s *discoveryv1.EndpointSlice) []cache.ObjectName {
		return r.ofService(cache.ObjectName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
	}))
	i.Pods.AddEventHandler(controller.UnlessSame(informers.SamePod, controller.TypedHandler(r.p.Enqueue, r.ofPod)))
	i.Bindings.AddEventHandler(controller.TypedHandler(r.p.Enqueue, func(b *v1alpha1.BackendSetBinding) []cache.ObjectName {
		if r.knowsBalancer(b.Spec.LoadBalancerID) {
			return []cache.ObjectName{{Name: b.Spec.LoadBalancerID}}
		}
		return nil
	}))
}

func (r *Reconciler) knowsBalancer(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[id] != nil
}

// isOwnRoute reports whether a route has a Gateway of the program, an entry of it, or a finalizer that it may have to remove now.
func (r *Reconciler) isOwnRoute(route *gatewayv1.HTTPRoute) bool {
	return slices.ContainsFunc(route.Status.Parents, func(s gatewayv1.RouteParentStatus) bool {
		return r.p.Planner.IsOwnController(s.ControllerName)
	}) || slices.ContainsFunc(route.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
		return r.p.Planner.IsOwnGateway(&ref, route.Namespace)
	}) || r.p.OKE && route.DeletionTimestamp != nil && slices.Contains(route.Finalizers, okeFinalizer)
}

// ofService returns the load balancers whose routes refer to a Service, and notes the time of the event.
func (r *Reconciler) ofService(name cache.ObjectName) []cache.ObjectName {
	return r.matchBalancers(func(b *balancerState) bool { return b.services[name] })
}

func (r *Reconciler) ofPod(p *corev1.Pod) []cache.ObjectName {
	var services []cache.ObjectName
	if informers.HasGate(p) { // its slice has no event when it begins to wait for its gate
		for _, s := range informers.SlicesOfPod(r.p.Caches.EndpointSlices, cache.MetaObjectToName(p)) {
			services = append(services, cache.ObjectName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
		}
	}
	return r.matchBalancers(func(b *balancerState) bool {
		if slices.ContainsFunc(services, func(name cache.ObjectName) bool { return b.services[name] }) {
			return true
		}
		for name := range b.pools {
			pool := informers.FindObject[informers.Pool](r.p.Caches.Pools, name)
			if pool != nil && pool.Spec.EndpointPickerRef.FailureMode == informers.FailOpen && gatewayplan.SelectsPod(pool, p) {
				return true
			}
		}
		return false
	})
}

func (r *Reconciler) matchBalancers(match func(*balancerState) bool) []cache.ObjectName {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []cache.ObjectName
	for id, b := range r.known {
		if !match(b) {
			continue
		}
		if b.since.IsZero() {
			b.since = r.p.Clock.Now()
		}
		names = append(names, cache.ObjectName{Name: id})
	}
	return names
}

// ofConfigMap returns what a ConfigMap affects. The record of a load balancer may have been changed by another client.
func (r *Reconciler) ofConfigMap(c *corev1.ConfigMap) []cache.ObjectName {
	id, ok := r.recordOf(c)
	if !ok {
		return []cache.ObjectName{{Name: sweepKey}}
	}
	version := c.ResourceVersion
	if current := informers.FindObject[corev1.ConfigMap](r.p.Caches.ConfigMaps,
		cache.ObjectName{Namespace: c.Namespace, Name: c.Name}); current == nil {
		version = ""
	}
	r.p.Records.InvalidateStale(id, version)
	return []cache.ObjectName{{Name: id}}
}

// recordOf returns the load balancer of a record.
func (r *Reconciler) recordOf(c *corev1.ConfigMap) (string, bool) {
	parsed, ok := lbrecord.FromNamespace(c, r.p.Namespace)
	if !ok {
		return "", false
	}
	return parsed.LoadBalancer, true
}

// sameLabels reports whether an update of a namespace leaves its labels.
func sameLabels(old, current metav1.Object) bool {
	return reflect.DeepEqual(old.GetLabels(), current.GetLabels())
}
