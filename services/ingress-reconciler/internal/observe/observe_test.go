package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/gateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
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
	}), "each once, and none of what takes no requests")
	assert.Empty(t, slots(nil))
}

// What a cache could not read as its type is there, and says nothing.
func TestList(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{}
	assert.Equal(t, []*corev1.Service{s}, list[*corev1.Service]([]any{nil, s, &unstructured.Unstructured{}}))
	assert.NotNil(t, list[*corev1.Service](nil))
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	const route = "metadata: {namespace: models, generation: 2}, spec: {parentRefs: [{name: public}]}"
	accepted := "status: {parents: [{parentRef: {name: public}, controllerName: example.com/gateway, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}]}]}"
	tests := []struct {
		name       string
		resource   schema.GroupVersionResource
		give       string
		controller string
		want       gateway.Acceptance
		reason     string
	}{
		{name: "a VirtualService is stored", resource: render.VirtualServices, give: "{}", want: gateway.Accepted},
		{name: "an Ingress without an address", resource: render.Ingresses, give: "{status: {loadBalancer: {}}}", reason: "LoadBalancerPending"},
		{name: "an Ingress without a status", resource: render.Ingresses, give: "{}", reason: "LoadBalancerPending"},
		{name: "an Ingress with an address", resource: render.Ingresses, give: "{status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}}", want: gateway.Accepted},
		{name: "an Ingress of another form", resource: render.Ingresses, give: "{status: {loadBalancer: {ingress: x}}}", reason: "LoadBalancerPending"},
		{name: "a route that nobody has seen", resource: render.HTTPRoutes, give: "{" + route + "}", reason: "ParentStatusNotAvailable"},
		{name: "a route that is accepted", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}", want: gateway.Accepted},
		{name: "by the controller of the class", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}", controller: "example.com/gateway", want: gateway.Accepted},
		{name: "by another controller", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}", controller: "example.com/other", reason: "ParentStatusNotAvailable"},
		{name: "a route of another form", resource: render.HTTPRoutes, give: "{spec: {hostnames: x}}", reason: "ParentStatusNotAvailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var g gateway.Gateway
			if tt.controller != "" {
				g.Class = &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(tt.controller)}}
			}
			got := Verdict(tt.resource, object(t, tt.give), g)
			assert.Equal(t, tt.want, got.Acceptance)
			assert.Equal(t, tt.reason, got.Reason)
			assert.Equal(t, tt.reason == "", got.Message == "")
		})
	}
}
