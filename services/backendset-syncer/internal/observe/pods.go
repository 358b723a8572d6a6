package observe

import (
	"math"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/informers"
)

// FindGatedPod returns a pod with the readiness gate, nil if it does not exist or has no gate.
func (o *Observer) FindGatedPod(name cache.ObjectName) *corev1.Pod {
	pod := informers.FindObject[corev1.Pod](o.caches.Pods, name)
	if pod == nil || !informers.HasGate(pod) {
		return nil
	}
	return pod
}

// ListGatedPods returns all pods with the readiness gate.
func (o *Observer) ListGatedPods() []*corev1.Pod {
	return slices.DeleteFunc(informers.ListAll[corev1.Pod](o.caches.Pods), func(p *corev1.Pod) bool { return !informers.HasGate(p) })
}

// Registration is a backend set that has, or is about to have, backends of a pod.
type Registration struct {
	LoadBalancer, Set string
	Addresses         []netip.AddrPort // of the pod
	// Routed means that the set counts only when requests can reach it.
	Routed bool
}

// PodAddresses returns the addresses that a pod has in EndpointSlices.
func (o *Observer) PodAddresses(pod *corev1.Pod) map[netip.AddrPort]bool {
	addresses := map[netip.AddrPort]bool{}
	for _, s := range informers.SlicesOfPod(o.caches.EndpointSlices, cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}) {
		for _, address := range addressesOfPod(s, pod) {
			for _, p := range s.Ports {
				if n := ptr.Deref(p.Port, 0); n > 0 && n <= math.MaxUint16 {
					addresses[netip.AddrPortFrom(address, uint16(n))] = true
				}
			}
		}
	}
	return addresses
}

// addressesOfPod returns the addresses that a pod has in an EndpointSlice.
func addressesOfPod(s *discoveryv1.EndpointSlice, pod *corev1.Pod) []netip.Addr {
	var addresses []netip.Addr
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if podOf(e) != string(pod.UID) || len(e.Addresses) == 0 {
			continue
		}
		if address, err := netip.ParseAddr(e.Addresses[0]); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// PodBinding is a binding that a pod is an endpoint of.
type PodBinding struct {
	Binding   *v1alpha1.BackendSetBinding
	Addresses []netip.AddrPort // of the pod
}

// BindingsOfPod returns the bindings that a pod is an endpoint of.
func (o *Observer) BindingsOfPod(pod *corev1.Pod) []PodBinding {
	var uses []PodBinding
	seen := map[string]bool{}
	for _, s := range informers.SlicesOfPod(o.caches.EndpointSlices, cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}) {
		service := cache.ObjectName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if seen[service.Name] {
			continue
		}
		seen[service.Name] = true
		for _, b := range informers.BindingsOfService(o.caches.Bindings, service) {
			uses = append(uses, PodBinding{Binding: b, Addresses: o.addressesInSet(b, service, pod)})
		}
	}
	return uses
}

// addressesInSet returns the addresses that a pod has in the backend set of a binding.
func (o *Observer) addressesInSet(b *v1alpha1.BackendSetBinding, name cache.ObjectName, pod *corev1.Pod) []netip.AddrPort {
	service := informers.FindObject[corev1.Service](o.caches.Services, name)
	if service == nil {
		return nil
	}
	servicePort, err := portOf(service, b.Spec.ServiceRef.Port)
	if err != nil {
		return nil
	}
	c := collector{port: servicePort}
	var addresses []netip.AddrPort
	for _, s := range informers.SlicesOfService(o.caches.EndpointSlices, name) {
		port, found := c.portIn(s)
		if !found || s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, address := range addressesOfPod(s, pod) {
			addresses = append(addresses, netip.AddrPortFrom(address, port))
		}
	}
	return addresses
}
