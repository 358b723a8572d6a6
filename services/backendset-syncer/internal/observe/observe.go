// Package observe reads what bindings refer to: their Services, EndpointSlices and pods. It decides nothing about backend sets.
package observe

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// maxEndpoints limits the endpoints of a Service that are considered: eight times the limit of a backend set. Slices are written by
// tenants, too.
const maxEndpoints = 4096

// maxListed bounds lists of addresses in messages.
const maxListed = 3

// Observer reads caches.
type Observer struct{ caches informers.Caches }

// New returns an Observer.
func New(c informers.Caches) *Observer { return &Observer{caches: c} }

// ServiceEndpoints are the endpoints of a port of a Service.
type ServiceEndpoints struct {
	Endpoints []plan.Endpoint // sorted, each address once
	// Refused explains which endpoints cannot become backends, and is empty if all can.
	Refused string
	// Missing means that the Service does not exist.
	Missing bool
}

// ServiceEndpoints returns the endpoints of a port of a Service, with the ports of the slices, or an error if the Service does not have the
// port. isPod reports whether an address may be that of a pod.
func (o *Observer) ServiceEndpoints(name cache.ObjectName, ref intstr.IntOrString, isPod func(netip.Addr) bool) (ServiceEndpoints, error) {
	service := informers.FindObject[corev1.Service](o.caches.Services, name)
	if service == nil {
		return ServiceEndpoints{Missing: true}, nil
	}
	port, err := portOf(service, ref)
	if err != nil {
		return ServiceEndpoints{}, err
	}
	c := collector{
		observer: o, namespace: name.Namespace, port: port, isPod: isPod, endpoints: map[netip.AddrPort]plan.Endpoint{},
		refused: map[string]bool{},
	}
	for _, s := range informers.SlicesOfService(o.caches.EndpointSlices, name) {
		c.addSlice(s)
	}
	return c.buildEndpoints(), nil
}

// portOf returns the port of a Service.
func portOf(s *corev1.Service, ref intstr.IntOrString) (*corev1.ServicePort, error) {
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		if ref.Type == intstr.String {
			return p.Name == ref.StrVal
		}
		return p.Port == ref.IntVal
	})
	if i < 0 {
		var has []string
		for _, p := range s.Spec.Ports {
			has = append(has, strings.Trim(fmt.Sprintf("%s/%d", p.Name, p.Port), "/"))
		}
		return nil, fmt.Errorf("Service %s has no port %s; it has %s", //nolint:staticcheck // kind
			s.Name, ref.String(), strings.Join(has, ", "))
	}
	p := &s.Spec.Ports[i]
	if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
		return nil, fmt.Errorf("port %s of Service %s has the protocol %s, and load balancers forward TCP", ref.String(), s.Name,
			p.Protocol)
	}
	return p, nil
}

// collector merges the slices of a Service.
type collector struct {
	observer  *Observer
	namespace string
	port      *corev1.ServicePort
	isPod     func(netip.Addr) bool
	endpoints map[netip.AddrPort]plan.Endpoint
	refused   map[string]bool // addresses
	ipv6      bool
	surplus   bool
}

// addSlice adds a slice.
func (c *collector) addSlice(s *discoveryv1.EndpointSlice) {
	port, found := c.portIn(s)
	if !found {
		return
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		if s.AddressType != discoveryv1.AddressTypeIPv4 {
			c.ipv6 = true
			continue
		}
		text := e.Addresses[0] // the API specifies no meaning of more
		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is4() || IsSpecial(address) || !c.isPod(address) {
			c.refuseAddress(text)
			continue
		}
		c.mergeEndpoint(plan.Endpoint{Address: netip.AddrPortFrom(address, port), State: c.stateOf(e), Pod: podOf(e)})
	}
}

func (c *collector) refuseAddress(address string) {
	if len(c.refused) < maxEndpoints {
		c.refused[address] = true
	}
}

// podOf returns the UID of the pod of an endpoint, empty if it is not known.
func podOf(e *discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return string(e.TargetRef.UID)
}

func (c *collector) mergeEndpoint(e plan.Endpoint) {
	before, known := c.endpoints[e.Address]
	switch {
	case known && before.State >= e.State:
	case !known && len(c.endpoints) == maxEndpoints:
		c.surplus = true
	default:
		c.endpoints[e.Address] = e
	}
}

// IsSpecial reports whether an address reaches the load balancer itself, or a service of the cloud.
func IsSpecial(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// portIn returns the port of the endpoints of a slice.
func (c *collector) portIn(s *discoveryv1.EndpointSlice) (uint16, bool) {
	for _, p := range s.Ports {
		if ptr.Deref(p.Name, "") == c.port.Name && ptr.Deref(p.Port, 0) > 0 && isTCP(&p) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func isTCP(p *discoveryv1.EndpointPort) bool {
	return cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP) == corev1.ProtocolTCP
}

// stateOf returns the state of an endpoint. Absent conditions mean that it is ready, serves as it is ready, and does not terminate.
func (c *collector) stateOf(e *discoveryv1.Endpoint) plan.State {
	ready := ptr.Deref(e.Conditions.Ready, true)
	serving := ptr.Deref(e.Conditions.Serving, ready)
	switch {
	case ptr.Deref(e.Conditions.Terminating, false) && serving:
		return plan.Finishing
	case ptr.Deref(e.Conditions.Terminating, false):
		return plan.Terminating
	case ready || c.waitsForGate(e):
		return plan.Ready
	}
	return plan.NotReady
}

// gatesNotReady is the kubelet's reason of pods whose containers are ready, and a readiness gate is not.
const gatesNotReady = "ReadinessGatesNotReady"

// waitsForGate reports whether only the readiness gate keeps an endpoint from being ready: the gate is closed, or it has opened, and the
// kubelet or the EndpointSlice is late. An endpoint whose pod is not ready for another reason, such as a dead node, does not wait.
func (c *collector) waitsForGate(e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil {
		return false
	}
	pod := informers.FindObject[corev1.Pod](c.observer.caches.Pods, cache.ObjectName{Namespace: c.namespace, Name: e.TargetRef.Name})
	return pod != nil && pod.UID == e.TargetRef.UID && WaitsForGate(pod)
}

// WaitsForGate reports whether only the readiness gate keeps a pod from being ready.
func WaitsForGate(pod *corev1.Pod) bool {
	switch {
	case pod.DeletionTimestamp != nil || !informers.HasGate(pod):
		return false
	// the cache keeps other gates only if they are closed
	case len(pod.Spec.ReadinessGates) > 1 || !informers.IsTrue(pod, corev1.ContainersReady):
		return false
	case !informers.IsTrue(pod, v1alpha1.ReadinessGate):
		return true
	}
	ready := informers.FindCondition(pod, corev1.PodReady)
	return ready == nil || ready.Status == corev1.ConditionTrue || ready.Reason == gatesNotReady
}

func (c *collector) buildEndpoints() ServiceEndpoints {
	e := ServiceEndpoints{Endpoints: slices.AppendSeq(make([]plan.Endpoint, 0, len(c.endpoints)), maps.Values(c.endpoints))}
	slices.SortFunc(e.Endpoints, func(a, b plan.Endpoint) int { return a.Address.Compare(b.Address) })
	switch {
	case len(c.refused) > 0:
		e.Refused = fmt.Sprintf(
			"EndpointSlices of the Service have addresses that are not those of pods: %s; correct the slices, or the podRanges of the "+
				"configuration",
			c.formatRefused())
	case c.surplus:
		e.Refused = fmt.Sprintf("the Service has more than %d endpoints; the others are ignored", maxEndpoints)
	case c.ipv6 && len(c.endpoints) == 0:
		e.Refused = "the Service has no IPv4 endpoints, and load balancers connect to backends by IPv4 only; make the Service dual-stack " +
			"(ipFamilyPolicy: PreferDualStack)"
	}
	return e
}

// formatRefused returns the first of the refused addresses.
func (c *collector) formatRefused() string {
	addresses := slices.Sorted(maps.Keys(c.refused))
	if len(addresses) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(addresses[:maxListed], ", "), len(addresses)-maxListed)
	}
	return strings.Join(addresses, ", ")
}

// FindOccupants returns the ready endpoints of other Services at the IP address of a backend, whatever their port: two pods that share the
// address of their node differ by it. own are the Services of the backend set, with their namespaces.
func (o *Observer) FindOccupants(backend netip.AddrPort, own []string) []plan.Occupant {
	ip := backend.Addr().Unmap().String()
	var occupants []plan.Occupant
	for _, s := range informers.SlicesOfAddress(o.caches.EndpointSlices, ip) {
		service := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		if slices.Contains(own, service) {
			continue
		}
		samePort := slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Port, 0) == int32(backend.Port()) && isTCP(&p)
		})
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			ready := ptr.Deref(e.Conditions.Ready, true)
			if ready && !ptr.Deref(e.Conditions.Terminating, false) && informers.AddressOf(e) == ip {
				occupants = append(occupants, plan.Occupant{Service: service, Pod: podOf(e), SamePort: samePort})
			}
		}
	}
	return occupants
}
