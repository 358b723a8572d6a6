package datastore

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// A Pool is what is read of an InferencePool.
type Pool struct {
	Selector labels.Selector // of its pods; nil selects none
	Ports    []uint16        // of its model servers, one for each server in a pod
}

// identities returns who the endpoints of a pool are: each port of each ready pod, sorted by address. Of two pods that
// claim one address, as they may for a moment while an address changes hands, the younger has it.
func identities(pool *Pool, pods []*corev1.Pod) []endpoint.Identity {
	byAddress := map[netip.AddrPort]*corev1.Pod{}
	for _, pod := range pods {
		if !ready(pod) {
			continue
		}
		ip, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			continue // no address yet
		}
		for _, port := range pool.Ports {
			address := netip.AddrPortFrom(ip.Unmap(), port)
			if other := byAddress[address]; other == nil || younger(pod, other) {
				byAddress[address] = pod
			}
		}
	}
	ids := make([]endpoint.Identity, 0, len(byAddress))
	for address, pod := range byAddress {
		ids = append(ids, endpoint.Identity{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Address: address})
	}
	slices.SortFunc(ids, func(a, b endpoint.Identity) int { return a.Address.Compare(b.Address) })
	return ids
}

// ready reports whether the pod takes requests: its readiness gates hold and it is not about to go.
func ready(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func younger(a, b *corev1.Pod) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return cmp.Compare(a.UID, b.UID) > 0
}
