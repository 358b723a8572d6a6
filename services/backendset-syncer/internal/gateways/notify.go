package gateways

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// recorder writes Events.
type recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// Counts are numbers of objects by the reasons of their conditions.
type Counts map[string]int

// meter counts the objects of load balancers.
type meter interface {
	// SetGatewayCounts replaces the numbers of a load balancer. That of Gateways without a load balancer is empty.
	SetGatewayCounts(loadBalancer string, gateways, listeners, routes map[string]int)
	// ForgetGateways removes those of a load balancer, ClearGateways all.
	ForgetGateways(loadBalancer string)
	ClearGateways()
}

// objectReference returns a reference to an object of the Gateway API.
func objectReference(kind string, m *metav1.ObjectMeta) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		ResourceVersion: m.ResourceVersion,
	}
}

// notifyChange writes an Event about a change that a user can act on: a new problem, or its end. Changes that wait are normal.
func (r *Reconciler) notifyChange(about *corev1.ObjectReference, before, after plan.Problem) {
	switch {
	case after.Reason == before.Reason || after.Reason == "" || after.Reason == v1alpha1.ReasonPending:
	case !gatewayplan.IsGood(after.Reason):
		r.p.Recorder.Event(about, corev1.EventTypeWarning, after.Reason, after.Message)
	case before.Reason != "" && before.Reason != v1alpha1.ReasonPending && !gatewayplan.IsGood(before.Reason):
		r.p.Recorder.Event(about, corev1.EventTypeNormal, after.Reason, after.Message)
	}
}

// notifyGateway writes Events about a Gateway and its listeners.
func (r *Reconciler) notifyGateway(g *gatewayv1.Gateway, next *gatewayv1.GatewayStatus) {
	about := objectReference("Gateway", &g.ObjectMeta)
	r.notifyChange(about, gatewayplan.GatewaySummary(&g.Status), gatewayplan.GatewaySummary(next))
	before, after := gatewayplan.ListenerSummaries(&g.Status), gatewayplan.ListenerSummaries(next)
	gatewayReason := gatewayplan.GatewaySummary(next).Reason
	for i := range next.Listeners { // in their order
		name := next.Listeners[i].Name
		if after[name].Reason != gatewayReason { // the Event of the Gateway says it
			r.notifyChange(about, before[name], after[name])
		}
	}
}

// countReasons adds the reasons of a Gateway and its listeners.
func countReasons(gateways, listeners Counts, s *gatewayv1.GatewayStatus) {
	gateways[gatewayplan.GatewaySummary(s).Reason]++
	for _, p := range gatewayplan.ListenerSummaries(s) {
		listeners[p.Reason]++
	}
}
