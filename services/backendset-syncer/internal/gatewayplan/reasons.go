package gatewayplan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/notify"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// A summary is the condition that says most about an object: the first one that is not as it should be, and otherwise the last one. Metrics
// count objects by the reasons of their summaries, and Events report their changes.

// summarize returns the first condition that is not True, or the last one. The zero value means that the object has none of them.
func summarize(conditions []metav1.Condition, kinds ...string) plan.Problem {
	var last plan.Problem
	for _, kind := range kinds {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			continue
		}
		if last = (plan.Problem{Reason: c.Reason, Message: c.Message}); c.Status != metav1.ConditionTrue {
			return last
		}
	}
	return last
}

// ClassSummary returns the summary of a GatewayClass.
func ClassSummary(s *gatewayv1.GatewayClassStatus) plan.Problem {
	return summarize(s.Conditions, string(gatewayv1.GatewayClassConditionStatusAccepted))
}

// GatewaySummary returns the summary of a Gateway.
func GatewaySummary(s *gatewayv1.GatewayStatus) plan.Problem {
	return summarize(s.Conditions, string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayConditionProgrammed))
}

// ListenerSummaries returns the summaries of the listeners of a Gateway by their names.
func ListenerSummaries(s *gatewayv1.GatewayStatus) map[gatewayv1.SectionName]plan.Problem {
	summaries := map[gatewayv1.SectionName]plan.Problem{}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		p := summarize(l.Conditions, string(gatewayv1.ListenerConditionAccepted), string(gatewayv1.ListenerConditionResolvedRefs),
			string(gatewayv1.ListenerConditionProgrammed))
		p.Message = fmt.Sprintf("listener %s: %s", l.Name, p.Message)
		summaries[l.Name] = p
	}
	return summaries
}

// ParentSummary returns the summary of a route for one of its parents.
func ParentSummary(s *gatewayv1.RouteParentStatus) plan.Problem {
	accepted := summarize(s.Conditions, string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteConditionResolvedRefs))
	if accepted.Reason != string(gatewayv1.RouteReasonAccepted) && accepted.Reason != string(gatewayv1.RouteReasonResolvedRefs) {
		return accepted
	}
	if c := meta.FindStatusCondition(s.Conditions, string(gatewayv1.RouteConditionPartiallyInvalid)); c != nil &&
		c.Status == metav1.ConditionTrue {
		return plan.Problem{Reason: string(gatewayv1.RouteConditionPartiallyInvalid), Message: c.Message}
	}
	return summarize(s.Conditions, ConditionBackendsSynced)
}

// RouteSummary returns the summary of a route for the parents of one load balancer: the first with a problem, or the first.
func RouteSummary(parents []gatewayv1.RouteParentStatus) plan.Problem {
	var first plan.Problem
	for i := range parents {
		p := ParentSummary(&parents[i])
		switch {
		case !p.IsSet():
		case !notify.IsGood(p.Reason) && p.Reason != v1alpha1.ReasonPending:
			return p
		case !first.IsSet() || notify.IsGood(first.Reason):
			first = p
		}
	}
	return first
}

// PreviousParents returns the entries that a route has for the parents of a load balancer.
func (s *RouteStatus) PreviousParents() []gatewayv1.RouteParentStatus {
	var parents []gatewayv1.RouteParentStatus
	for i := range s.Parents {
		if at := indexOfParent(s.Route.Status.Parents, &s.Parents[i]); at >= 0 {
			parents = append(parents, s.Route.Status.Parents[at])
		}
	}
	return parents
}
