package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/ingress-reconciler/internal/uses"
)

func newGateway(change func(*gatewayv1.Gateway)) *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public", UID: "1"}}
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80}}
	change(g)
	return g
}

// A Gateway counts its routes in its status: of 2 000 services each would concern all others.
func TestWhatOfAnUpdateNobodyLooksAt(t *testing.T) {
	t.Parallel()
	condition := func(kind, status string) func(*gatewayv1.Gateway) {
		return func(g *gatewayv1.Gateway) {
			g.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: "Test"}}
		}
	}
	tests := []struct {
		name         string
		old, current any
		want         bool
	}{
		{name: "attached routes", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(func(g *gatewayv1.Gateway) {
			g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: 7}}
		}), want: true},
		{name: "another condition", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(condition("Accepted", "True")), want: true},
		{name: "programmed", old: newGateway(condition("Programmed", "False")), current: newGateway(condition("Programmed", "True"))},
		{name: "a listener", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(func(g *gatewayv1.Gateway) { g.Spec.Listeners[0].Port = 81 })},
		{name: "made anew", old: newGateway(func(*gatewayv1.Gateway) {}), current: newGateway(func(g *gatewayv1.Gateway) { g.UID = "2" })},
		{name: "features of a class", old: &gatewayv1.GatewayClass{}, current: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
			SupportedFeatures: []gatewayv1.SupportedFeature{{Name: "HTTPRoutePathRewrite"}},
		}}},
		{name: "a class's condition", old: &gatewayv1.GatewayClass{}, current: &gatewayv1.GatewayClass{Status: gatewayv1.GatewayClassStatus{
			Conditions: []metav1.Condition{{Type: "Accepted"}},
		}}, want: true},
		{name: "a namespace's annotation", old: &metav1.PartialObjectMetadata{}, current: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}, want: true},
		{name: "a namespace's label", old: &metav1.PartialObjectMetadata{}, current: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}},
		{name: "one that could not be read before", old: &metav1.PartialObjectMetadata{}, current: newGateway(func(*gatewayv1.Gateway) {})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, unchanged(tt.old, tt.current))
		})
	}
}

func TestAGatewayConcernsThoseThatUseIt(t *testing.T) {
	t.Parallel()
	users := uses.New()
	public, other := cache.ObjectName{Namespace: "gateways", Name: "public"}, cache.ObjectName{Namespace: "gateways", Name: "other"}
	users.Set(cache.ObjectName{Namespace: "models", Name: "a"}, []uses.Object{{Kind: uses.Gateway, Name: public}})
	users.Set(cache.ObjectName{Namespace: "models", Name: "b"}, []uses.Object{{Kind: uses.Gateway, Name: other}, {Kind: uses.InferencePool, Name: public}})
	users.Set(cache.ObjectName{Namespace: "models", Name: "c"}, []uses.Object{{Kind: uses.Gateway, Name: other}, {Kind: uses.Gateway, Name: public}})
	h := handlers{users: users}
	got := h.named(uses.Gateway)(newGateway(func(*gatewayv1.Gateway) {}))
	assert.ElementsMatch(t, []cache.ObjectName{{Namespace: "models", Name: "a"}, {Namespace: "models", Name: "c"}}, got)
}

func TestOwner(t *testing.T) {
	t.Parallel()
	yes := true
	of := func(kind string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "chat", Controller: &yes}},
		}}
	}
	assert.Equal(t, []cache.ObjectName{chat}, owner(of("InferenceService")))
	assert.Empty(t, owner(of("Deployment")))
	assert.Empty(t, owner(&metav1.PartialObjectMetadata{}))
	assert.Empty(t, owner("nothing"))
}
