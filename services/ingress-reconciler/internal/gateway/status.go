package gateway

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Acceptance is how far a data plane is with an object.
type Acceptance int

// What a data plane says of an object: nothing yet, that it takes it, or that it does not.
const (
	Pending Acceptance = iota
	Accepted
	Refused
)

// Verdict is what is known of one object.
type Verdict struct {
	Acceptance Acceptance
	Reason     string // empty if accepted
	Message    string
}

// Unseen is the verdict of what no data plane has taken up.
var Unseen = Verdict{Reason: ReasonParentStatusNotAvailable, Message: "no controller has looked at it yet"}

// Reasons of verdicts that have none of their own.
const (
	ReasonParentStatusNotAvailable = "ParentStatusNotAvailable"
	ReasonStaleParentStatus        = "StaleParentStatus"
)

// Judge reads what the controllers of a route's Gateways say of it. Each parent must be accepted, with its references
// resolved, for the route as it is now. controller, if it is known, is whose word counts; policy controllers write entries,
// too, which have no condition Accepted.
func Judge(route *gatewayv1.HTTPRoute, controller string) Verdict {
	for i := range route.Spec.ParentRefs {
		if v := judge(route, &route.Spec.ParentRefs[i], controller); v.Acceptance != Accepted {
			return v
		}
	}
	return Verdict{Acceptance: Accepted}
}

func judge(route *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference, controller string) Verdict {
	for i := range route.Status.Parents {
		p := &route.Status.Parents[i]
		if !sameParent(route.Namespace, &p.ParentRef, ref) || controller != "" && string(p.ControllerName) != controller {
			continue
		}
		accepted := meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionAccepted))
		if accepted == nil {
			continue
		}
		for _, c := range []*metav1.Condition{accepted, meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionResolvedRefs))} {
			switch {
			case c == nil: // not all controllers write ResolvedRefs where there is nothing to say
			case c.ObservedGeneration < route.Generation:
				return Verdict{Reason: ReasonStaleParentStatus, Message: "the controller has yet to look at the latest route"}
			case c.Status == metav1.ConditionUnknown: // it waits for something, and will decide
				return Verdict{Reason: c.Reason, Message: strings.TrimSpace(c.Message)}
			case c.Status != metav1.ConditionTrue:
				return Verdict{Acceptance: Refused, Reason: c.Reason, Message: strings.TrimSpace(c.Message)}
			}
		}
		return Verdict{Acceptance: Accepted}
	}
	return Unseen
}

// sameParent compares references as the API server completes them.
func sameParent(namespace string, a, b *gatewayv1.ParentReference) bool {
	home, usual := gatewayv1.Namespace(namespace), gatewayv1.Kind("Gateway")
	return a.Name == b.Name && ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") &&
		ptr.Deref(a.Namespace, home) == ptr.Deref(b.Namespace, home) && ptr.Deref(a.Kind, usual) == ptr.Deref(b.Kind, usual)
}
