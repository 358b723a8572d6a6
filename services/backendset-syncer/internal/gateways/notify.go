package gateways

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/events"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/notify"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

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

// recordChange writes an Event about an object of the Gateway API, if a user can act on the change.
func (r *Reconciler) recordChange(kind string, o metav1.Object, before, after plan.Problem) {
	notify.RecordChange(r.p.Recorder, events.Reference(informers.Gateways.GroupVersion().WithKind(kind), o), before, after)
}

// notifyGateway writes Events about a Gateway and its listeners.
func (r *Reconciler) notifyGateway(g *gatewayv1.Gateway, next *gatewayv1.GatewayStatus) {
	r.recordChange("Gateway", g, gatewayplan.GatewaySummary(&g.Status), gatewayplan.GatewaySummary(next))
	before, after := gatewayplan.ListenerSummaries(&g.Status), gatewayplan.ListenerSummaries(next)
	gatewayReason := gatewayplan.GatewaySummary(next).Reason
	for i := range next.Listeners { // in their order
		name := next.Listeners[i].Name
		if after[name].Reason != gatewayReason { // the Event of the Gateway says it
			r.recordChange("Gateway", g, before[name], after[name])
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
