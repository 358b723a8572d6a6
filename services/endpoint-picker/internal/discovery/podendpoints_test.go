package discovery

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// podLabels are the labels of every pod unless it says otherwise; the pool selects them.
var podLabels = map[string]string{"app": "model"}

func selection(ports ...uint16) Selection {
	return Selection{Selector: labels.SelectorFromSet(podLabels), Ports: ports}
}

type podOption func(*corev1.Pod)

// readyPod is a pod with that name and address that takes requests.
func readyPod(name, ip string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon), Labels: podLabels},
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
func madeLater(p *corev1.Pod)    { p.CreationTimestamp = metav1.NewTime(noon.Add(time.Second)) }
func labelled(key, value string) podOption {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": "model", key: value} }
}

func otherApp(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }

func annotated(pairs ...string) podOption {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func describePod(name, address string, rank int) endpoint.Description {
	id := endpoint.Identity{Namespace: "ns", Pod: name, UID: "uid-" + name, Address: netip.MustParseAddrPort(address)}
	return endpoint.Description{Identity: id, Rank: rank, Labels: podLabels}
}

func with(d endpoint.Description, labels map[string]string) endpoint.Description {
	d.Labels = labels
	return d
}

func TestBuild(t *testing.T) {
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
				describePod("a", "10.0.0.9:8000", 1), describePod("a", "10.0.0.9:8001", 0),
				describePod("b", "10.0.0.10:8000", 1), describePod("b", "10.0.0.10:8001", 0),
			},
		},
		{
			name:  "labels",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "10.0.0.9", labelled("role", "decode"))},
			want:  []endpoint.Description{with(describePod("a", "10.0.0.9:8000", 0), map[string]string{"app": "model", "role": "decode"})},
		},
		{
			name:  "pods of others",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "10.0.0.9"), readyPod("b", "10.0.0.10", otherApp)},
			want:  []endpoint.Description{describePod("a", "10.0.0.9:8000", 0)},
		},
		{
			name:  "IPv6",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "2001:db8::1")},
			want:  []endpoint.Description{describePod("a", "[2001:db8::1]:8000", 0)},
		},
		{
			name:  "pods that take no requests",
			ports: []uint16{8000},
			pods: []*corev1.Pod{
				readyPod("unready", "10.0.0.1", condition(corev1.ConditionFalse)), readyPod("unknown", "10.0.0.2", condition(corev1.ConditionUnknown)),
				readyPod("going", "10.0.0.3", deleted), readyPod("new", "10.0.0.4", noConditions), readyPod("unscheduled", ""),
				readyPod("good", "10.0.0.5"),
			},
			want: []endpoint.Description{describePod("good", "10.0.0.5:8000", 0)},
		},
		{
			name:  "of two pods with one address the younger has it",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("new", "10.0.0.1", madeLater), readyPod("old", "10.0.0.1")},
			want:  []endpoint.Description{describePod("new", "10.0.0.1:8000", 0)},
		},
		{
			name:  "of two as old the choice is always the same",
			ports: []uint16{8000},
			pods:  []*corev1.Pod{readyPod("a", "10.0.0.1"), readyPod("b", "10.0.0.1")},
			want:  []endpoint.Description{describePod("b", "10.0.0.1:8000", 0)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, problems := buildEndpoints(selection(tt.ports...), tt.pods)
			assert.Equal(t, tt.want, got)
			assert.Empty(t, problems)
			slices.Reverse(tt.pods)
			got, _ = buildEndpoints(selection(tt.ports...), tt.pods)
			assert.Equal(t, tt.want, got, "whatever the order of pods")
		})
	}
}

func TestActivePorts(t *testing.T) {
	t.Parallel()
	const all, none = "names no port, taken for all ports of the pool", "names no port of the pool, the pod gets no requests"
	tests := []struct {
		name        string
		annotations []string
		want        []uint16
		problem     string
	}{
		{name: "nothing said", want: []uint16{8000, 8001, 8002}},
		{name: "one", annotations: []string{activePortsAnnotation, "8001"}, want: []uint16{8001}},
		{name: "some, in any order and spacing", annotations: []string{activePortsAnnotation, " 8002 ,8000"}, want: []uint16{8000, 8002}},
		{name: "twice the same", annotations: []string{activePortsAnnotation, "8001,8001"}, want: []uint16{8001}},
		{name: "old annotation", annotations: []string{legacyPortsAnnotation, "8002"}, want: []uint16{8002}},
		{name: "of both the new one", annotations: []string{legacyPortsAnnotation, "8002", activePortsAnnotation, "8000"}, want: []uint16{8000}},
		{name: "of both the new one, empty as it is", annotations: []string{legacyPortsAnnotation, "8002", activePortsAnnotation, ""}, want: []uint16{8000, 8001, 8002}, problem: all},
		{name: "entries that are none of the pool's", annotations: []string{activePortsAnnotation, "8001,9000,web,-1,70000,,8001x"}, want: []uint16{8001}},
		{name: "a port that only looks like one of the pool's", annotations: []string{activePortsAnnotation, "73536"}, want: []uint16{}, problem: none},
		{name: "others than the pool's", annotations: []string{activePortsAnnotation, "9000,9001"}, want: []uint16{}, problem: none},
		{name: "empty", annotations: []string{activePortsAnnotation, ""}, want: []uint16{8000, 8001, 8002}, problem: all},
		{name: "only commas", annotations: []string{activePortsAnnotation, " , ,"}, want: []uint16{8000, 8001, 8002}, problem: all},
		{name: "nonsense", annotations: []string{activePortsAnnotation, "[8001]"}, want: []uint16{8000, 8001, 8002}, problem: all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := readyPod("a", "10.0.0.1", annotated(tt.annotations...))
			endpoints, problems := buildEndpoints(selection(8000, 8001, 8002), []*corev1.Pod{pod})
			got := []uint16{}
			for _, e := range endpoints {
				got = append(got, e.Address.Port())
				assert.Equal(t, int(e.Address.Port()-8000), e.Rank, "ranks are those of the pool's ports")
			}
			assert.Equal(t, tt.want, got)
			if tt.problem == "" {
				assert.Empty(t, problems)
				return
			}
			value, _ := annotatedPorts(pod)
			assert.Equal(t, []podProblem{{Pod: pod, Value: value, Message: tt.problem}}, problems)
		})
	}
}

func TestMetricsPort(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]uint16{"8002": 8002, " 9 ": 9, "": 0, "0": 0, "65536": 0, "metrics": 0, "8002,8003": 0} {
		pod := readyPod("a", "10.0.0.1", annotated(metricsPortAnnotation, value))
		endpoints, problems := buildEndpoints(Selection{Selector: labels.SelectorFromSet(podLabels), Ports: []uint16{8000, 8001}}, []*corev1.Pod{pod})
		require.Len(t, endpoints, 2, value)
		for _, e := range endpoints {
			assert.Equal(t, want, e.MetricsPort, value)
		}
		if want == 0 {
			assert.Equal(t, []podProblem{{Pod: pod, Value: value, Message: "names no port, metrics are read from the default one"}}, problems)
		} else {
			assert.Empty(t, problems)
		}
	}
}

func TestNoSelectorSelectsNothing(t *testing.T) {
	t.Parallel()
	endpoints, _ := buildEndpoints(Selection{Ports: []uint16{8000}}, []*corev1.Pod{readyPod("a", "10.0.0.1")})
	assert.Empty(t, endpoints)
}

// TestEndpointsAreWhatIsReadySelectedAndActive draws worlds and says of each pod and port, in the words of the
// promise, whether it is an endpoint.
func TestEndpointsAreWhatIsReadySelectedAndActive(t *testing.T) {
	t.Parallel()
	selector, err := labels.Parse("app in (model, other), role != prefill, gpu")
	require.NoError(t, err)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		chance := func(n int) bool { return random.IntN(n) == 0 }
		ports := []uint16{8000, 8001, 8002, 8003}[:1+random.IntN(4)]
		want := map[string]int{}
		var pods []*corev1.Pod
		for i := range random.IntN(20) {
			pod := readyPod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.0.0.%d", i))
			unready, leaving, addressless := chance(4), chance(6), chance(6)
			otherApp, prefill, gpuless := chance(4), chance(4), chance(6)
			pod.Labels = map[string]string{"app": "model", "gpu": "h100"}
			pod.Labels["app"] = map[bool]string{true: "web", false: []string{"model", "other"}[random.IntN(2)]}[otherApp]
			if prefill {
				pod.Labels["role"] = "prefill"
			}
			if gpuless {
				delete(pod.Labels, "gpu")
			}
			if unready {
				pod.Status.Conditions[0].Status = corev1.ConditionFalse
			}
			if leaving {
				deleted(pod)
			}
			if addressless {
				pod.Status.PodIP = ""
			}
			active := map[uint16]bool{}
			for _, port := range ports {
				active[port] = true
			}
			if chance(3) {
				only := ports[random.IntN(len(ports))]
				annotated(activePortsAnnotation, fmt.Sprintf("%d, 1", only))(pod)
				active = map[uint16]bool{only: true}
			}
			for rank, port := range ports {
				if !unready && !leaving && !addressless && !otherApp && !prefill && !gpuless && active[port] {
					want[fmt.Sprintf("p%d 10.0.0.%d:%d", i, i, port)] = rank
				}
			}
			pods = append(pods, pod)
		}
		endpoints, _ := buildEndpoints(Selection{Selector: selector, Ports: ports}, pods)
		got := map[string]int{}
		for _, e := range endpoints {
			got[e.Pod+" "+e.Address.String()] = e.Rank
		}
		require.Equal(t, want, got, "seed %d", seed)
		require.Len(t, endpoints, len(want), "none twice")
	}
}
