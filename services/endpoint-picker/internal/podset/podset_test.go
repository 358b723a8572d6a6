package datastore

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

type podOption func(*corev1.Pod)

// readyPod is a pod with that name and address that takes requests.
func readyPod(name, ip string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon)},
		Status:     corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func condition(s corev1.ConditionStatus) podOption {
	return func(p *corev1.Pod) { p.Status.Conditions[0].Status = s }
}

func noConditions(p *corev1.Pod) { p.Status.Conditions = nil }
func deleted(p *corev1.Pod)      { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func uid(u types.UID) podOption  { return func(p *corev1.Pod) { p.UID = u } }
func madeLater(p *corev1.Pod)    { p.CreationTimestamp = metav1.NewTime(noon.Add(time.Second)) }
func labelled(p *corev1.Pod)     { p.Labels = map[string]string{"role": "decode"} }

func described(name, address string, rank int, labels map[string]string) endpoint.Description {
	id := endpoint.Identity{Namespace: "ns", Pod: name, UID: "uid-" + name, Address: netip.MustParseAddrPort(address)}
	return endpoint.Description{Identity: id, Rank: rank, Labels: labels}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		ports []uint16
		pods  []*corev1.Pod
		want  []endpoint.Description
	}{
		{name: "no pods", ports: []uint16{8000}, want: []endpoint.Description{}},
		{name: "no ports", pods: []*corev1.Pod{readyPod("a", "10.0.0.1")}, want: []endpoint.Description{}},
		{
			name:  "each port of each pod, by address",
			ports: []uint16{8001, 8000},
			pods:  []*corev1.Pod{readyPod("b", "10.0.0.10"), readyPod("a", "10.0.0.9")},
			want: []endpoint.Description{
				described("a", "10.0.0.9:8000", 1, nil), described("a", "10.0.0.9:8001", 0, nil),
				described("b", "10.0.0.10:8000", 1, nil), described("b", "10.0.0.10:8001", 0, nil),
			},
		},
		{
			name:  "labels",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "10.0.0.9", labelled)},
			want:  []endpoint.Description{described("a", "10.0.0.9:8000", 0, map[string]string{"role": "decode"})},
		},
		{
			name:  "IPv6",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "2001:db8::1")},
			want:  []endpoint.Description{described("a", "[2001:db8::1]:8000", 0, nil)},
		},
		{
			name:  "pods that take no requests",
			ports: []uint16{8000},
			pods: []*corev1.Pod{
				readyPod("unready", "10.0.0.1", condition(corev1.ConditionFalse)), readyPod("unknown", "10.0.0.2", condition(corev1.ConditionUnknown)),
				readyPod("going", "10.0.0.3", deleted), readyPod("new", "10.0.0.4", noConditions), readyPod("unscheduled", ""),
				readyPod("good", "10.0.0.5"),
			},
			want: []endpoint.Description{described("good", "10.0.0.5:8000", 0, nil)},
		},
		{
			name:  "of two pods with one address the younger has it",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("new", "10.0.0.1", madeLater), readyPod("old", "10.0.0.1")},
			want:  []endpoint.Description{described("new", "10.0.0.1:8000", 0, nil)},
		},
		{
			name:  "of two as old the choice is always the same",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "10.0.0.1"), readyPod("b", "10.0.0.1")},
			want:  []endpoint.Description{described("b", "10.0.0.1:8000", 0, nil)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, describe(&Pool{Ports: tt.ports}, tt.pods))
			slices.Reverse(tt.pods)
			assert.Equal(t, tt.want, describe(&Pool{Ports: tt.ports}, tt.pods), "whatever the order of pods")
		})
	}
}
