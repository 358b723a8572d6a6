package controller

import (
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// PredictCondition returns the condition that a reconcile would write after it has written the objects of a plan. It judges existing
// objects by their status. For new objects no data plane has reported a verdict yet.
func PredictCondition(observer *observe.Observer, observed observe.Observation, p plan.Plan, objects []render.Object, c clock.PassiveClock,
) isvc.Condition {
	r := &run{reconciler: &Reconciler{Params: Params{Clock: c, Observer: observer}}, observed: observed, plan: p}
	for _, o := range objects {
		r.planned = append(r.planned, plannedObject{Object: o, verdict: r.predictVerdict(&o)})
	}
	return condition.Build(r.conditionState(), condition.Find(observed.Input.Service), c.Now())
}

// predictVerdict returns the verdict on an object immediately after it is written.
func (r *run) predictVerdict(o *render.Object) gatewayapi.Verdict {
	live := r.findLive(o.Resource, o.Object.GetName())
	switch {
	case !r.reconciler.Observer.IsAvailable(o.Resource):
		return r.unavailableVerdict(o)
	case live != nil:
		return r.appliedVerdict(o, live, nil)
	case o.Exposure == nil:
		return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}
	case o.Resource == render.VirtualServices:
		return r.contestedVerdict(o, o.Object, virtualServiceVerdict(o.Exposure))
	case o.Resource == render.Ingresses:
		return r.contestedVerdict(o, o.Object, noAddress)
	}
	return r.contestedVerdict(o, o.Object, gatewayapi.Unseen)
}
