package gateways

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
)

// TestPodThatWaitsForItsGate: its containers become ready, and its slice does not change.
func TestPodThatWaitsForItsGate(t *testing.T) {
	t.Parallel()
	slice := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: chat-1, namespace: models, labels: {kubernetes.io/service-name: chat}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}, targetRef: {kind: Pod, namespace: models, name: gated, uid: u}}]
`), &slice))
	caches, err := options.Declare().Read(kit.Snapshot{Objects: []*unstructured.Unstructured{{Object: slice}}})
	require.NoError(t, err)
	r := New(Params{Caches: caches, Clock: clocktesting.NewFakePassiveClock(metav1.Now().Time)})
	r.known["with the Service"] = &balancerState{services: map[cache.ObjectName]bool{{Namespace: "models", Name: "chat"}: true}}
	r.known["another"] = &balancerState{services: map[cache.ObjectName]bool{{Namespace: "models", Name: "embed"}: true}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "gated"}, Spec: corev1.PodSpec{
		ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1alpha1.ReadinessGate}},
	}}
	assert.Equal(t, []cache.ObjectName{{Name: "with the Service"}}, r.ofPod(pod))
	pod.Spec.ReadinessGates = nil
	assert.Empty(t, r.ofPod(pod), "its slice says what it is")
}

// TestRouteWithAFinalizerOnly has lost its Gateway, and then the entries in its status: nothing but the finalizer is left to do.
func TestRouteWithAFinalizerOnly(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{okeFinalizer}, DeletionTimestamp: &now}}
	assert.True(t, New(Params{OKE: true}).isOwnRoute(route))
	assert.False(t, New(Params{}).isOwnRoute(route))
	route.DeletionTimestamp = nil
	assert.False(t, New(Params{OKE: true}).isOwnRoute(route))
}

// unlisted is a kind that the API server does not serve yet.
type unlisted struct{ kit.Informer }

func (unlisted) Listed() bool { return false }

// TestKindsThatComeLater: nothing is written before all kinds are listed, and a kind without objects sends no event.
func TestKindsThatComeLater(t *testing.T) {
	t.Parallel()
	caches, err := options.Declare().Read(kit.Snapshot{})
	require.NoError(t, err)
	caches.Routes = unlisted{caches.Routes}
	r := New(Params{Caches: caches, Planner: gatewayplan.NewPlanner(caches, nil, gatewayplan.Options{})})
	require.ErrorContains(t, r.Reconcile(t.Context(), cache.ObjectName{Name: sweepKey}), "not all kinds are listed")
	require.NoError(t, r.Reconcile(t.Context(), cache.ObjectName{Name: balancerID}))
}
