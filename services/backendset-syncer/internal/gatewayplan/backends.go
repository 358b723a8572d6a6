package gatewayplan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Kinds of backends.
const (
	kindService = "Service"
	kindPool    = "InferencePool"
)

// ProxyProtocol is the appProtocol of a port of an endpoint picker's Service that takes HTTP requests, picks, and forwards them.
const ProxyProtocol = "fairlead.dev/http-proxy"

// reasonNoProxy is why a route cannot use an InferencePool.
const reasonNoProxy = "NoEndpointPickerProxy"

// resolveBackend returns the backend of a reference, or its problem.
func (b *planBuilder) resolveBackend(namespace string, ref *gatewayv1.BackendRef) (routing.Backend, plan.Problem) {
	group, kind := string(ptr.Deref(ref.Group, "")), string(ptr.Deref(ref.Kind, kindService))
	backend := routing.Backend{
		Kind: kind, Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name),
	}
	switch {
	case group == "" && kind == kindService:
		backend.Port = ptr.Deref(ref.Port, 0)
	case group == informers.PoolGroup && kind == kindPool:
	default:
		return backend, plan.NewProblem(gatewayv1.RouteReasonInvalidKind,
			"%.60s of group %.60q is not supported: use a Service or an InferencePool", kind, group)
	}
	from := reference{group: gatewayv1.GroupName, kind: "HTTPRoute", namespace: namespace}
	if !b.permitsReference(from, reference{group: group, kind: kind, namespace: backend.Namespace, name: backend.Name}) {
		return backend, plan.NewProblem(gatewayv1.RouteReasonRefNotPermitted, "no ReferenceGrant in namespace %s permits it",
			backend.Namespace)
	}
	return backend, b.findEndpoints(backend).problem
}

// backendEndpoints is the endpoints of a backend, or its problem.
type backendEndpoints struct {
	endpoints []plan.Endpoint
	service   string // that has them, with its namespace; empty: not known
	refused   string // endpoints that cannot become backends
	problem   plan.Problem
}

// findEndpoints returns the endpoints of a backend.
func (b *planBuilder) findEndpoints(backend routing.Backend) backendEndpoints {
	f, known := b.endpoints[backend]
	if !known {
		name := cache.ObjectName{Namespace: backend.Namespace, Name: backend.Name}
		if backend.Kind == kindPool {
			f = b.poolEndpoints(name)
		} else {
			f = b.serviceEndpoints(name, intstr.FromInt32(backend.Port))
		}
		b.endpoints[backend] = f
	}
	return f
}

func (b *planBuilder) serviceEndpoints(name cache.ObjectName, port intstr.IntOrString) backendEndpoints {
	b.Services[name] = true
	e, err := b.planner.observer.ServiceEndpoints(name, port, b.isPod)
	switch {
	case e.Missing:
		return backendEndpoints{
			service: name.String(),
			problem: plan.NewProblem(gatewayv1.RouteReasonBackendNotFound, "Service %s does not exist", name),
		}
	case err != nil:
		return backendEndpoints{service: name.String(), problem: plan.NewProblem(gatewayv1.RouteReasonBackendNotFound, "%v", err)}
	}
	return backendEndpoints{endpoints: e.Endpoints, service: name.String(), refused: e.Refused}
}

// poolEndpoints returns the endpoints of an InferencePool: the proxy listeners of its endpoint picker or, without a ready one, its own pods
// if it fails open.
func (b *planBuilder) poolEndpoints(name cache.ObjectName) backendEndpoints {
	b.Pools[name] = true
	pool := informers.FindObject[informers.Pool](b.planner.caches.Pools, name)
	if pool == nil {
		return backendEndpoints{problem: plan.NewProblem(gatewayv1.RouteReasonBackendNotFound, "InferencePool %s does not exist", name)}
	}
	proxies, problem := b.proxyEndpoints(pool)
	picker := pool.Namespace + "/" + pool.Spec.EndpointPickerRef.Name
	failOpen := pool.Spec.EndpointPickerRef.FailureMode == informers.FailOpen
	switch {
	case problem == "" &&
		(!failOpen || slices.ContainsFunc(proxies.Endpoints, func(e plan.Endpoint) bool { return e.State >= plan.Finishing })):
		return backendEndpoints{endpoints: proxies.Endpoints, service: picker, refused: proxies.Refused}
	case !failOpen:
		return backendEndpoints{
			service: picker,
			problem: plan.NewProblem(reasonNoProxy,
				"InferencePool %s: %s. A load balancer cannot ask an endpoint picker: give the picker's Service such a port, or set "+
					"failureMode FailOpen to send requests to the pods directly",
				name, problem),
		}
	}
	return backendEndpoints{endpoints: mergeEndpoints(proxies.Endpoints, b.podEndpoints(pool)), service: picker}
}

// proxyEndpoints returns the endpoints of the proxy port of a pool's endpoint picker, or why it has none.
func (b *planBuilder) proxyEndpoints(pool *informers.Pool) (observe.ServiceEndpoints, string) {
	ref := &pool.Spec.EndpointPickerRef
	if cmp.Or(ref.Kind, kindService) != kindService || ptr.Deref(ref.Group, "") != "" || ref.Name == "" {
		return observe.ServiceEndpoints{}, "its endpoint picker is not a Service"
	}
	name := cache.ObjectName{Namespace: pool.Namespace, Name: ref.Name}
	b.Services[name] = true
	service := informers.FindObject[corev1.Service](b.planner.caches.Services, name)
	if service == nil {
		return observe.ServiceEndpoints{}, fmt.Sprintf("Service %s of its endpoint picker does not exist", name.Name)
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return ptr.Deref(p.AppProtocol, "") == ProxyProtocol })
	if i < 0 {
		return observe.ServiceEndpoints{}, fmt.Sprintf("Service %s of its endpoint picker has no port with appProtocol %s", name.Name,
			ProxyProtocol)
	}
	e, err := b.planner.observer.ServiceEndpoints(name, intstr.FromInt32(service.Spec.Ports[i].Port), b.isPod)
	if err != nil {
		return observe.ServiceEndpoints{}, err.Error()
	}
	return e, ""
}

// podEndpoints returns the pods of a pool as endpoints.
func (b *planBuilder) podEndpoints(pool *informers.Pool) []plan.Endpoint {
	var endpoints []plan.Endpoint
	for _, p := range b.planner.PodsOf(pool) {
		for _, a := range addressesIn(pool, p) {
			if a.Addr().Is4() && !observe.IsSpecial(a.Addr()) && b.isPod(a.Addr()) {
				endpoints = append(endpoints, plan.Endpoint{Address: a, State: podState(p), Pod: string(p.UID)})
			}
		}
	}
	return mergeEndpoints(endpoints, nil)
}

// SelectsPod reports whether an InferencePool has a pod.
func SelectsPod(pool *informers.Pool, p *corev1.Pod) bool {
	match := pool.Spec.Selector.MatchLabels
	return pool.Namespace == p.Namespace && len(match) > 0 && labels.SelectorFromSet(match).Matches(labels.Set(p.Labels))
}

// PodsOf returns the pods of an InferencePool.
func (p *Planner) PodsOf(pool *informers.Pool) []*corev1.Pod {
	return slices.DeleteFunc(informers.PodsOfNamespace(p.caches.Pods, pool.Namespace),
		func(x *corev1.Pod) bool { return !SelectsPod(pool, x) })
}

// addressesIn returns the addresses of a pod of an InferencePool.
func addressesIn(pool *informers.Pool, p *corev1.Pod) []netip.AddrPort {
	address, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil {
		return nil
	}
	var addresses []netip.AddrPort
	for _, port := range pool.Spec.TargetPorts {
		if port.Number > 0 && port.Number <= maxPort {
			addresses = append(addresses, netip.AddrPortFrom(address, uint16(port.Number)))
		}
	}
	return addresses
}

// AddressesOf returns the addresses that a pod can have as a backend: those in EndpointSlices, and those in pools that fail open.
func (p *Planner) AddressesOf(pod *corev1.Pod) map[netip.AddrPort]bool {
	addresses := p.observer.PodAddresses(pod)
	for _, pool := range informers.ListAll[informers.Pool](p.caches.Pools) {
		if pool.Spec.EndpointPickerRef.FailureMode == informers.FailOpen && SelectsPod(pool, pod) {
			for _, a := range addressesIn(pool, pod) {
				addresses[a] = true
			}
		}
	}
	return addresses
}

// podState returns the state of a pod as an EndpointSlice would have it.
func podState(p *corev1.Pod) plan.State {
	switch ready := informers.IsTrue(p, corev1.PodReady) || observe.WaitsForGate(p); {
	case p.DeletionTimestamp != nil && ready:
		return plan.Finishing
	case p.DeletionTimestamp != nil:
		return plan.Terminating
	case ready:
		return plan.Ready
	}
	return plan.NotReady
}

// mergeEndpoints returns the endpoints of two lists, sorted, each address once: with the higher state.
func mergeEndpoints(a, b []plan.Endpoint) []plan.Endpoint {
	merged := slices.Concat(a, b)
	slices.SortFunc(merged, func(x, y plan.Endpoint) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(y.State, x.State))
	})
	return slices.CompactFunc(merged, func(x, y plan.Endpoint) bool { return x.Address == y.Address })
}
