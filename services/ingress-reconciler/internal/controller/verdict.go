package controller

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// judge returns what is known of a way in that is there: whether those who read it have taken it up.
func judge(resource schema.GroupVersionResource, live *unstructured.Unstructured, g gateway.Gateway) gateway.Verdict {
	switch resource {
	case render.HTTPRoutes:
		return judgeRoute(live, g)
	case render.Ingresses:
		if addresses, _, _ := unstructured.NestedSlice(live.Object, "status", "loadBalancer", "ingress"); len(addresses) == 0 {
			return gateway.Verdict{Reason: reasonNoAddress, Message: "no controller has given it an address yet"}
		}
	}
	return gateway.Verdict{Acceptance: gateway.Accepted} // stored is all that a VirtualService can be
}

// reasonNoAddress is that of an Ingress that nobody has taken up.
const reasonNoAddress = "LoadBalancerPending"

func judgeRoute(live *unstructured.Unstructured, g gateway.Gateway) gateway.Verdict {
	var route gatewayv1.HTTPRoute
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &route); err != nil {
		return gateway.Verdict{Reason: gateway.ReasonParentStatusNotAvailable, Message: err.Error()}
	}
	var controller string
	if g.Class != nil {
		controller = string(g.Class.Spec.ControllerName)
	}
	return gateway.Judge(&route, controller)
}
