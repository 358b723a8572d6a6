package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	const route = "metadata: {namespace: models, generation: 2}, spec: {parentRefs: [{name: public}]}"
	accepted := "status: {parents: [{parentRef: {name: public}, controllerName: example.com/gateway, conditions: [{type: Accepted, " +
		"status: 'True', observedGeneration: 2}]}]}"
	tests := []struct {
		name       string
		resource   schema.GroupVersionResource
		give       string
		controller string
		class      string // spec.controller of the IngressClass
		age, wait  time.Duration
		want       gatewayapi.Acceptance
		predicted  gatewayapi.Attachment
		reason     string
		note       bool
	}{
		{name: "a VirtualService is stored", resource: render.VirtualServices, give: "{}", want: gatewayapi.Accepted},
		{
			name: "a VirtualService that no Gateway serves", resource: render.VirtualServices, give: "{}",
			predicted: gatewayapi.Attachment{Reason: "GatewayNotFound", Message: "x"},
			want:      gatewayapi.Refused, reason: "GatewayNotFound",
		},
		{
			name: "an Ingress without an address", resource: render.Ingresses, give: "{status: {loadBalancer: {}}}", class: "a",
			reason: "LoadBalancerPending", wait: 2 * time.Minute,
		},
		{
			name: "an Ingress without a status", resource: render.Ingresses, give: "{}", class: "a", reason: "LoadBalancerPending",
			wait: 2 * time.Minute,
		},
		{
			name: "an Ingress without an address, for a while", resource: render.Ingresses, give: "{}", class: "a", age: time.Minute,
			reason: "LoadBalancerPending", wait: time.Minute,
		},
		{
			name: "an Ingress whose controller publishes no address", resource: render.Ingresses, give: "{}", class: "a",
			age: 2 * time.Minute, want: gatewayapi.Accepted, note: true,
		},
		{
			name: "an Ingress with an address", resource: render.Ingresses, give: "{status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}}",
			want: gatewayapi.Accepted,
		},
		{
			name: "an Ingress without an address, of a class that does not exist", resource: render.Ingresses, give: "{}", age: time.Hour,
			reason: "LoadBalancerPending",
		},
		{
			name: "an Ingress of another form", resource: render.Ingresses, give: "{status: {loadBalancer: {ingress: x}}}", class: "a",
			reason: "LoadBalancerPending", wait: 2 * time.Minute,
		},
		{name: "a route without status", resource: render.HTTPRoutes, give: "{" + route + "}", reason: "ParentStatusNotAvailable"},
		{
			name: "a route that is accepted", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}",
			want: gatewayapi.Accepted,
		},
		{
			name: "by the controller of the class", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}",
			controller: "example.com/gateway", want: gatewayapi.Accepted,
		},
		{
			name: "by another controller", resource: render.HTTPRoutes, give: "{" + route + ", " + accepted + "}",
			controller: "example.com/other", reason: "ParentStatusNotAvailable",
		},
		{name: "a route of another form", resource: render.HTTPRoutes, give: "{spec: {hostnames: x}}", reason: "ParentStatusNotAvailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var g gatewayapi.Gateway
			if tt.controller != "" {
				g.Class = &gatewayv1.GatewayClass{
					Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(tt.controller)},
				}
			}
			now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
			stored := &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(tt.give))}
			stored.SetCreationTimestamp(metav1.NewTime(now.Add(-tt.age)))
			got, wait := objectVerdict(&render.Object{
				Resource: tt.resource,
				Exposure: &plan.Exposure{Attachment: tt.predicted, Class: ingressclass.Class{SpecController: tt.class}},
			}, stored, g, now)
			assert.Equal(t, tt.wait, wait)
			assert.Equal(t, tt.want, got.Acceptance)
			assert.Equal(t, tt.reason, got.Reason)
			assert.Equal(t, tt.reason == "" && !tt.note, got.Message == "")
		})
	}
}
