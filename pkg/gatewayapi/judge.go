package gatewayapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Acceptance is the state of an object in the data plane that serves it.
type Acceptance int

// A data plane has not decided yet, serves the object, or refuses it.
const (
	Pending Acceptance = iota
	Accepted
	Refused
)

// Verdict is an Acceptance with its cause.
type Verdict struct {
	Acceptance Acceptance
	Reason     string // empty if accepted
	Message    string
}

// Unseen is the verdict on an object without a report from a controller.
var Unseen = Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has reported a status yet"}

// Reasons of verdicts for which the Gateways' controllers have no reason.
const (
	ReasonParentStatusNotAvailable = "ParentStatusNotAvailable"
	ReasonStaleParentStatus        = "StaleParentStatus"
)

// Judge reads the status that controllers wrote into a route. The route is accepted if each of its parents accepted it and
// resolved its references, for the current generation. Only entries of the named controller count; without a name, entries
// of all controllers. Policy controllers write entries, too: those have no condition Accepted, and are skipped.
func Judge(route *gatewayv1.HTTPRoute, controller string) Verdict {
	if len(route.Spec.ParentRefs) == 0 {
		return Unseen
	}
	for i := range route.Spec.ParentRefs {
		if v := judgeParent(route, &route.Spec.ParentRefs[i], controller); v.Acceptance != Accepted {
			return v
		}
	}
	return Verdict{Acceptance: Accepted}
}

func judgeParent(route *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference, controller string) Verdict {
	for i := range route.Status.Parents {
		p := &route.Status.Parents[i]
		if !sameParent(route.Namespace, &p.ParentRef, ref) || controller != "" && string(p.ControllerName) != controller {
			continue
		}
		if meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionAccepted)) == nil {
			continue
		}
		return judgeConditions(p.Conditions, route.Generation)
	}
	return Unseen
}

// judgeConditions decides by Accepted, then by ResolvedRefs, which some controllers omit if there is nothing to report.
func judgeConditions(conditions []metav1.Condition, generation int64) Verdict {
	for _, kind := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
		c := meta.FindStatusCondition(conditions, string(kind))
		switch {
		case c == nil:
		case c.ObservedGeneration < generation:
			return Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has not reported about the latest generation of the route yet"}
		case c.Status == metav1.ConditionUnknown: // the controller will decide later
			return Verdict{Reason: c.Reason, Message: strings.TrimSpace(c.Message)}
		case c.Status != metav1.ConditionTrue:
			return Verdict{Acceptance: Refused, Reason: c.Reason, Message: strings.TrimSpace(c.Message)}
		}
	}
	return Verdict{Acceptance: Accepted}
}

// sameParent compares references with the defaults of the API server.
func sameParent(namespace string, a, b *gatewayv1.ParentReference) bool {
	home, kind := gatewayv1.Namespace(namespace), gatewayv1.Kind("Gateway")
	return a.Name == b.Name && ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") && ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0) &&
		ptr.Deref(a.Namespace, home) == ptr.Deref(b.Namespace, home) && ptr.Deref(a.Kind, kind) == ptr.Deref(b.Kind, kind)
}
