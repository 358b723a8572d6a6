package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func TestJudge(t *testing.T) {
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
			got := judge(tt.resource, &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(tt.give))}, g)
			assert.Equal(t, tt.want, got.Acceptance)
			assert.Equal(t, tt.reason, got.Reason)
			assert.Equal(t, tt.reason == "", got.Message == "")
		})
	}
}
