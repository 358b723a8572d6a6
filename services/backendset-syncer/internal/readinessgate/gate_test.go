package readinessgate

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	now     = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	name    = cache.ObjectName{Namespace: "models", Name: "chat-1"}
	address = netip.MustParseAddrPort("10.0.0.1:8000")
)

const timeout = 5 * time.Minute

// podOf returns a pod with the gate whose containers became ready some time ago.
func podOf(ready time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "u1"},
		Spec:       corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1alpha1.ReadinessGate}}},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ready))},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// use returns a binding with the reason of its condition.
func use(set, reason string, addresses ...netip.AddrPort) observe.PodBinding {
	b := &v1alpha1.BackendSetBinding{Spec: v1alpha1.BackendSetBindingSpec{LoadBalancerID: "lb", BackendSetName: set}}
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSynced, Reason: reason}}
	return observe.PodBinding{Binding: b, Addresses: addresses}
}

// routed are the backend sets of routes.
type routed struct {
	sets    []observe.Registration
	unknown bool
}

func (r routed) SetsOf(*corev1.Pod) ([]observe.Registration, bool) { return r.sets, !r.unknown }

// inSets returns sets of routes of load balancer lb that have the pod.
func inSets(names ...string) routed {
	var r routed
	for _, n := range names {
		r.sets = append(r.sets, observe.Registration{LoadBalancer: "lb", Set: n, Addresses: []netip.AddrPort{address}, Routed: true})
	}
	return r
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	serving := map[string]*actor.Report{
		"chat": {Serving: map[netip.AddrPort]bool{address: true}, Used: true}, "embed": {Used: true},
		"unused": {Serving: map[netip.AddrPort]bool{address: true}},
	}
	tests := []struct {
		name   string
		pod    *corev1.Pod
		uses   []observe.PodBinding
		routes routed
		want   string // status and reason, empty if nothing is written
		wait   time.Duration
	}{
		{name: "a set of a route, in service", pod: podOf(time.Second), routes: inSets("chat"), want: "True InService"},
		{
			name: "a set of a route, not in service yet", pod: podOf(time.Minute), routes: inSets("embed"),
			want: "False WaitingForLoadBalancer", wait: timeout - time.Minute,
		},
		{
			name: "a set that no rule uses yet", pod: podOf(time.Second), routes: inSets("unused"), want: "False WaitingForLoadBalancer",
			wait: timeout - time.Second,
		},
		{
			name: "a binding of a set that no listener uses", pod: podOf(time.Second),
			uses: []observe.PodBinding{use("unused", "Synced", address)}, want: "True InService",
		},
		{name: "a set of a route, too late", pod: podOf(timeout), routes: inSets("embed"), want: "True Timeout"},
		{
			name: "of two sets of routes, one is not in service", pod: podOf(time.Second), routes: inSets("chat", "embed"),
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second,
		},
		{name: "a binding in service and a route that is not", pod: podOf(time.Second),
			uses: []observe.PodBinding{use("chat", "Synced", address)}, routes: inSets("embed"),
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second},
		{
			name: "a binding without hope and a route in service", pod: podOf(time.Second),
			uses: []observe.PodBinding{use("embed", "Conflict", address)}, routes: inSets("chat"), want: "True InService",
		},
		{
			name: "routes that are not known yet", pod: podOf(time.Minute), routes: routed{unknown: true},
			want: "False WaitingForLoadBalancer", wait: time.Second,
		},
		{name: "a binding in service, and routes that are not known yet", pod: podOf(time.Minute),
			uses: []observe.PodBinding{use("chat", "Synced", address)}, routes: routed{unknown: true},
			want: "False WaitingForLoadBalancer", wait: time.Second},
		{name: "routes that are not known for too long", pod: podOf(timeout), routes: routed{unknown: true}, want: "True Timeout"},
		{name: "no pod"},
		{
			name: "containers that are not ready",
			pod:  podOf(0, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		},
		{name: "a pod that is being deleted", pod: podOf(time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })},
		{name: "in service", pod: podOf(time.Second), uses: []observe.PodBinding{use("chat", "Synced", address)}, want: "True InService"},
		{
			name: "not in service yet", pod: podOf(time.Second), uses: []observe.PodBinding{use("embed", "Pending", address)},
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second,
		},
		{name: "of two, one is not in service", pod: podOf(time.Second), uses: []observe.PodBinding{
			use("chat", "Synced", address), use("embed", "Pending", address),
		},
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second},
		{
			name: "without a report", pod: podOf(time.Second), uses: []observe.PodBinding{use("other", "Pending", address)},
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second,
		},
		{
			name: "without an address", pod: podOf(time.Second), uses: []observe.PodBinding{use("chat", "Synced")},
			want: "False WaitingForLoadBalancer", wait: timeout - time.Second,
		},
		{name: "too late", pod: podOf(timeout), uses: []observe.PodBinding{use("embed", "Pending", address)}, want: "True Timeout"},
		{name: "no binding, at first", pod: podOf(4 * time.Second), want: "False NoBinding", wait: 6 * time.Second},
		{name: "no binding", pod: podOf(unboundDelay), want: "True NoBinding"},
		{
			name: "a binding without hope", pod: podOf(time.Minute), uses: []observe.PodBinding{use("embed", "Conflict", address)},
			want: "True NoBinding",
		},
		{
			name: "a binding without hope beside another", pod: podOf(time.Minute),
			uses: []observe.PodBinding{use("embed", "NotAllowed", address), use("chat", "Synced", address)}, want: "True InService",
		},
		{name: "open gates stay open", pod: podOf(time.Minute, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: v1alpha1.ReadinessGate, Status: corev1.ConditionTrue})
		}), uses: []observe.PodBinding{use("embed", "Pending", address)}},
		{name: "nothing new", pod: podOf(time.Minute, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: v1alpha1.ReadinessGate, Status: corev1.ConditionFalse, Reason: reasonWaiting,
				Message: "backend set embed does not send requests to the pod yet",
			})
		}), uses: []observe.PodBinding{use("embed", "Pending", address)}, wait: timeout - time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			observer := newMockObserver(t)
			observer.EXPECT().FindGatedPod(name).Return(tt.pod)
			observer.EXPECT().BindingsOfPod(tt.pod).Return(tt.uses).Maybe()
			report := func(key actor.Key) *actor.Report {
				assert.Equal(t, "lb", key.LoadBalancer)
				return serving[key.Set]
			}
			client := fake.NewClientset()
			if tt.pod != nil {
				client = fake.NewClientset(tt.pod)
			}
			r := New(Params{
				Observer: observer, SetsOf: tt.routes.SetsOf, Report: report, Pods: client.CoreV1(), Timeout: timeout,
				Clock: clocktesting.NewFakePassiveClock(now),
			})
			err := r.Reconcile(t.Context(), name)
			if tt.wait > 0 {
				require.ErrorContains(t, err, tt.wait.String())
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, writtenTo(t, client))
		})
	}
}

// writtenTo returns the condition that was written.
func writtenTo(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	written := ""
	for _, a := range client.Actions() {
		patch, ok := a.(clienttesting.PatchAction)
		if !ok {
			continue
		}
		assert.Equal(t, "status", patch.GetSubresource())
		assert.Contains(t, string(patch.GetPatch()), `"uid":"u1"`)
		p, err := client.CoreV1().Pods(name.Namespace).Get(t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(t, err)
		c := informers.FindCondition(p, v1alpha1.ReadinessGate)
		require.NotNil(t, c)
		written = string(c.Status) + " " + c.Reason
	}
	return written
}

func TestWritesOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]error{
		"": apierrors.NewNotFound(pods, "chat-1"), "conflict": apierrors.NewConflict(pods, "chat-1", nil),
		"write readiness gate: ": apierrors.NewForbidden(pods, "chat-1", nil),
	}
	for want, failure := range tests {
		observer := newMockObserver(t)
		pod := podOf(time.Hour)
		observer.EXPECT().FindGatedPod(name).Return(pod)
		observer.EXPECT().BindingsOfPod(pod).Return(nil)
		client := fake.NewClientset(pod)
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failure })
		err := New(Params{
			Observer: observer, SetsOf: routed{}.SetsOf, Pods: client.CoreV1(), Timeout: timeout,
			Clock: clocktesting.NewFakePassiveClock(now),
		}).Reconcile(t.Context(), name)
		if strings.HasPrefix(want, "write") {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
	}
}
