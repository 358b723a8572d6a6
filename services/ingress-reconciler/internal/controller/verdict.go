package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// addressTimeout is the time after which an Ingress without an address counts as accepted: some controllers, for example on bare
// metal, never publish an address. A cloud takes up to 90 s to provision a load balancer. The timeout also delays the deletion of replaced
// objects.
const addressTimeout = 2 * time.Minute

// objectVerdict returns whether the data plane has accepted a route, and the time until the next check: 0 if an event reports every change.
func objectVerdict(o *render.Object, stored *unstructured.Unstructured, g gatewayapi.Gateway, now time.Time,
) (v gatewayapi.Verdict, wait time.Duration) {
	switch o.Resource {
	case render.HTTPRoutes:
		return routeVerdict(stored, g), 0
	case render.Ingresses:
		return ingressVerdict(stored, o.Exposure.Class, now)
	}
	return virtualServiceVerdict(o.Exposure), 0
}

// virtualServiceVerdict uses the prediction of the plan, because a VirtualService has no status.
func virtualServiceVerdict(e *plan.Exposure) gatewayapi.Verdict {
	if e != nil && e.Attachment.Reason != "" {
		return gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: e.Attachment.Reason, Message: e.Attachment.Message}
	}
	return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}
}

// ingressVerdict accepts an Ingress that has an address. It also accepts one that is older than addressTimeout, if its IngressClass
// exists: without a class and without an address, nothing shows that any controller serves the Ingress.
func ingressVerdict(stored *unstructured.Unstructured, class ingressclass.Class, now time.Time) (v gatewayapi.Verdict, wait time.Duration) {
	if addresses, _, _ := unstructured.NestedSlice(stored.Object, "status", "loadBalancer", "ingress"); len(addresses) > 0 {
		return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}, 0
	}
	if !class.Exists() {
		return noAddress, 0
	}
	created := stored.GetCreationTimestamp().Time
	if created.IsZero() {
		created = now
	}
	if wait = created.Add(addressTimeout).Sub(now); wait > 0 {
		return noAddress, wait
	}
	return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted, Message: "the ingress controller publishes no address"}, 0
}

// reasonNoAddress is the reason for an Ingress without an address.
const reasonNoAddress = "LoadBalancerPending"

// noAddress is the verdict on an Ingress without an address.
var noAddress = gatewayapi.Verdict{Reason: reasonNoAddress, Message: "the ingress controller has not published an address yet"}

func routeVerdict(live *unstructured.Unstructured, g gatewayapi.Gateway) gatewayapi.Verdict {
	var route gatewayv1.HTTPRoute
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &route); err != nil {
		return gatewayapi.Verdict{Reason: gatewayapi.ReasonParentStatusNotAvailable, Message: err.Error()}
	}
	var controller string
	if g.Class != nil {
		controller = string(g.Class.Spec.ControllerName)
	}
	return gatewayapi.Judge(&route, controller)
}
