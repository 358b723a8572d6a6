// buildEndpoints computes the endpoints of a pool's pods: each port of each ready pod that the pool selects. It is pure. It
// returns problems of pods, for the caller to report.
//
// An annotation of a pod can restrict it to some of the pool's ports:
//
//	llm-d.ai/active-ports           endpoints
//	absent                          all ports of the pool
//	"8000,8002"                     these, as far as they are ports of the pool; the rest of the list is ignored
//	"9999", not one of the pool's   none, and a problem: the pod said clearly that its ports are others
//	"", or no number in it          all, and a problem
//
// The last line is the lesser evil. A port without a listener fails only the requests that are sent there, which the picker
// detects. If an error in a template meant "none", it would empty a pool of ready pods.

package discovery

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Annotations that restrict a pod's ports. The first takes precedence.
const (
	activePortsAnnotation = "llm-d.ai/active-ports"
	legacyPortsAnnotation = "inference.networking.k8s.io/active-ports"
)

// metricsPortAnnotation is the annotation of a pod with the port of its metrics page, for all of its model servers.
const metricsPortAnnotation = "llm-d.ai/metrics-port"

// podAnnotations are those that endpoints depend on.
var podAnnotations = []string{activePortsAnnotation, legacyPortsAnnotation, metricsPortAnnotation}

// A Selection selects the pods of a pool in a namespace, and their ports.
type Selection struct {
	Selector labels.Selector // of its pods; nil selects none
	Ports    []uint16        // of its model servers, one for each server in a pod
}

// A podProblem is a problem with a pod's annotation.
type podProblem struct {
	Pod     *corev1.Pod
	Value   string // of the annotation
	Message string // how the annotation is interpreted
}

// buildEndpoints returns the endpoints of the selected pods, sorted by address. If two pods have the same address, as they may while
// an address is reassigned, the younger one gets it.
func buildEndpoints(s Selection, pods []*corev1.Pod) ([]endpoint.Description, []podProblem) {
	endpoints, owners := map[netip.AddrPort]endpoint.Description{}, map[netip.AddrPort]*corev1.Pod{}
	var problems []podProblem
	for _, pod := range pods {
		if s.Selector == nil || !s.Selector.Matches(labels.Set(pod.Labels)) || !isReady(pod) {
			continue
		}
		ip, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			continue // no address yet
		}
		active, problem := activePorts(pod, s.Ports)
		if problem != nil {
			problems = append(problems, *problem)
		}
		metrics, problem := metricsPort(pod)
		if problem != nil {
			problems = append(problems, *problem)
		}
		for rank, port := range s.Ports {
			if !slices.Contains(active, port) {
				continue
			}
			address := netip.AddrPortFrom(ip.Unmap(), port)
			if other := owners[address]; other == nil || isYounger(pod, other) {
				id := endpoint.Identity{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Address: address}
				owners[address] = pod
				endpoints[address] = endpoint.Description{Identity: id, Rank: rank, Labels: pod.Labels, MetricsPort: metrics}
			}
		}
	}
	all := slices.AppendSeq(make([]endpoint.Description, 0, len(endpoints)), maps.Values(endpoints))
	slices.SortFunc(all, func(a, b endpoint.Description) int { return a.Address.Compare(b.Address) })
	return all, problems
}

// annotatedPorts returns the pod's annotation of its ports, and whether it exists.
func annotatedPorts(pod *corev1.Pod) (value string, said bool) {
	if value, said = pod.Annotations[activePortsAnnotation]; said {
		return value, true
	}
	value, said = pod.Annotations[legacyPortsAnnotation]
	return value, said
}

// activePorts returns those of the pool's ports that are active by the pod's annotation.
func activePorts(pod *corev1.Pod, ports []uint16) (active []uint16, problem *podProblem) {
	value, said := annotatedPorts(pod)
	if !said {
		return ports, nil
	}
	numbers := 0
	for entry := range strings.SplitSeq(value, ",") {
		number, err := strconv.ParseUint(strings.TrimSpace(entry), 10, 64)
		if err != nil {
			continue
		}
		numbers++
		if number <= 65535 && slices.Contains(ports, uint16(number)) {
			active = append(active, uint16(number))
		}
	}
	switch {
	case numbers == 0:
		return ports, &podProblem{Pod: pod, Value: value, Message: "names no port, taken for all ports of the pool"}
	case len(active) == 0:
		return active, &podProblem{Pod: pod, Value: value, Message: "names no port of the pool, the pod gets no requests"}
	}
	return active, nil
}

// metricsPort returns the port of the metrics page from the pod's annotation, 0 without the annotation.
func metricsPort(pod *corev1.Pod) (uint16, *podProblem) {
	value, said := pod.Annotations[metricsPortAnnotation]
	if !said {
		return 0, nil
	}
	port, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
	if err != nil || port == 0 {
		return 0, &podProblem{Pod: pod, Value: value, Message: "names no port, metrics are read from the default one"}
	}
	return uint16(port), nil
}

// isReady reports whether the pod accepts requests: it is ready and not being deleted.
func isReady(pod *corev1.Pod) bool {
	c := readyCondition(pod)
	return pod.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue
}

func isYounger(a, b *corev1.Pod) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return cmp.Compare(a.UID, b.UID) > 0
}
