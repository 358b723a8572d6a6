package gateways

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/observe"
)

// SetsOf returns the backend sets that have a pod as an endpoint because of routes, as they were planned last. known is false while a load
// balancer was not planned: at the beginning of a term, and after a Gateway was created.
func (r *Reconciler) SetsOf(pod *corev1.Pod) (sets []observe.Registration, known bool) {
	if r.p.Namespace == "" || !r.p.Planner.IsReady() {
		return nil, true // the program serves no Gateways
	}
	addresses := r.p.Planner.AddressesOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, b := range r.known {
		own := map[string][]netip.AddrPort{}
		for a := range addresses {
			for _, set := range b.endpoints[a] {
				own[set] = append(own[set], a)
			}
		}
		for set, setAddresses := range own {
			sets = append(sets, observe.Registration{LoadBalancer: id, Set: set, Addresses: setAddresses, Routed: true})
		}
	}
	slices.SortFunc(sets, func(a, b observe.Registration) int {
		return strings.Compare(a.LoadBalancer+"/"+a.Set, b.LoadBalancer+"/"+b.Set)
	})
	return sets, r.swept && len(r.unplanned) == 0
}

// noteUnplanned notes the load balancers that have not been planned yet.
func (r *Reconciler) noteUnplanned(resolution *gatewayplan.Resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = true
	for id := range resolution.Balancers {
		if r.known[id] == nil {
			r.unplanned[id] = true
		}
	}
}

// endpointsOf returns the backend sets of a plan by their endpoints. Sets that only drain, and those of a load balancer that is not
// written, have none.
func (r *Reconciler) endpointsOf(plan *gatewayplan.Plan) map[netip.AddrPort][]string {
	if r.p.WakePod == nil || len(plan.Lost) > 0 {
		return nil
	}
	sets := map[netip.AddrPort][]string{}
	for name, s := range plan.Sets {
		if s.Wanted.Emptying {
			continue
		}
		for _, e := range s.Wanted.Endpoints {
			sets[e.Address] = append(sets[e.Address], name)
		}
	}
	return sets
}

// wakePods wakes the pods of the Services and pools of a plan that wait for their readiness gate.
func (r *Reconciler) wakePods(plan *gatewayplan.Plan) {
	if r.p.WakePod == nil {
		return
	}
	for service := range plan.Services {
		for _, name := range informers.ClosedGates(r.p.Caches.EndpointSlices, r.p.Caches.Pods, service) {
			r.p.WakePod(name)
		}
	}
	for name := range plan.Pools {
		pool := informers.FindObject[informers.Pool](r.p.Caches.Pools, name)
		if pool == nil || pool.Spec.EndpointPickerRef.FailureMode != informers.FailOpen {
			continue
		}
		for _, p := range r.p.Planner.PodsOf(pool) {
			if informers.GateIsClosed(p) {
				r.p.WakePod(cache.ObjectName{Namespace: p.Namespace, Name: p.Name})
			}
		}
	}
}
