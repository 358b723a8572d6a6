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

// owner is whose an address is.
type owner struct {
	pod  *corev1.Pod
	rank int
}

// describe returns the endpoints of a pool: each port of each ready pod, sorted by address. Of two pods that claim one
// address, as they may for a moment while an address changes hands, the younger has it.
func describe(pool *Pool, pods []*corev1.Pod) []endpoint.Description {
	byAddress := map[netip.AddrPort]owner{}
	for _, pod := range pods {
		if !ready(pod) {
			continue
		}
		ip, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			continue // no address yet
		}
		for rank, port := range pool.Ports {
			address := netip.AddrPortFrom(ip.Unmap(), port)
			if other := byAddress[address].pod; other == nil || younger(pod, other) {
				byAddress[address] = owner{pod, rank}
			}
		}
	}
	all := make([]endpoint.Description, 0, len(byAddress))
	for address, o := range byAddress {
		id := endpoint.Identity{Namespace: o.pod.Namespace, Pod: o.pod.Name, UID: string(o.pod.UID), Address: address}
		all = append(all, endpoint.Description{Identity: id, Rank: o.rank, Labels: o.pod.Labels})
	}
	slices.SortFunc(all, func(a, b endpoint.Description) int { return a.Address.Compare(b.Address) })
	return all
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
