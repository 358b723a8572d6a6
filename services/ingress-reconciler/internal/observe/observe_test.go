package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))}
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       time.Time
	}{
		{name: "never", give: "{}"},
		{name: "at a time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: '2026-05-04T12:00:00+02:00'}}}", want: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)},
		{name: "at no time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: yesterday}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := Live{Object: object(t, tt.give)}
			assert.True(t, l.Superseded().Equal(tt.want))
			assert.Equal(t, tt.want.IsZero(), l.Superseded().IsZero())
		})
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	live := func(slot, role string) Live {
		return Live{Slot: plan.Slot(slot), Object: object(t, "{metadata: {labels: {fairlead.dev/component: '"+role+"'}}}")}
	}
	assert.Equal(t, map[plan.Slot][]isvc.Role{plan.Entry: {isvc.Router, isvc.Engine}, "decoder": {isvc.Decoder}}, slots([]Live{
		live("entry", "router"), live("entry", "engine"), live("entry", "router"), live("entry", ""), live("decoder", "decoder"), live("engine", ""),
	}), "each once, and none of an object that takes no requests")
	assert.Empty(t, slots(nil))
}

func TestClaims(t *testing.T) {
	t.Parallel()
	route := func(kind, name, owner, claim, more string) *unstructured.Unstructured {
		versions := map[string]string{"HTTPRoute": "gateway.networking.k8s.io/v1", "VirtualService": "networking.istio.io/v1beta1", "Middleware": "traefik.io/v1alpha1"}
		return object(t, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: models, name: %s, creationTimestamp: "2026-05-04T12:00:00Z",
			labels: {fairlead.dev/managed-by: ingress-reconciler}, annotations: {fairlead.dev/claim: %q%s},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: %s, uid: u, controller: true}]}}`, versions[kind], kind, name, claim, more, owner))
	}
	caches, err := informers.Snapshot([]*unstructured.Unstructured{
		route("HTTPRoute", "a", "chat", "x.example.com/a/", ""),
		route("HTTPRoute", "b", "chat", "y.example.com/", ", fairlead.dev/superseded-at: '2026-05-04T12:00:00Z'"),
		route("HTTPRoute", "c", "chat", "no claim", ""),
		route("HTTPRoute", "d", "gone", "z.example.com/", ""),
		route("VirtualService", "e", "chat", "x.example.com/ X-Model=chat", ""),
		route("Middleware", "f", "chat", "w.example.com/", ""),
	}, func(schema.GroupVersionResource) bool { return true })
	require.NoError(t, err)
	o, at := New(caches), time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	got := o.Claims(cache.ObjectName{Namespace: "models", Name: "chat"})
	for i := range got {
		assert.True(t, got[i].Live.Equal(at))
		got[i].Live = time.Time{}
	}
	assert.ElementsMatch(t, []ownership.Ask{
		{Claim: ownership.Claim{Host: "x.example.com", Path: "/a/"}},
		{Claim: ownership.Claim{Host: "y.example.com", Path: "/"}},
		{Claim: ownership.Claim{Host: "x.example.com", Path: "/", Header: "X-Model", Value: "chat", Unordered: true}},
	}, got, "also of objects that wait for their end; Istio orders by age")
	assert.Len(t, o.Claims(cache.ObjectName{Namespace: "models", Name: "gone"}), 1, "of a service that is gone")
	assert.ElementsMatch(t, []cache.ObjectName{{Namespace: "models", Name: "chat"}, {Namespace: "models", Name: "gone"}}, o.Owners())
}

// What a cache could not read as its type is there, and says nothing.
func TestList(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{}
	assert.Equal(t, []*corev1.Service{s}, list[*corev1.Service]([]any{nil, s, &unstructured.Unstructured{}}))
	assert.NotNil(t, list[*corev1.Service](nil))
}
