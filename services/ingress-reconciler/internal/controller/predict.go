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

// Predict returns the condition that a reconcile would write after it has written the objects of a plan. It judges existing objects by
// their status. For new objects no data plane has reported a verdict yet.
func Predict(observer *observe.Observer, observed observe.Observation, p plan.Plan, objects []render.Object, c clock.PassiveClock) isvc.Condition {
	r := &run{Reconciler: &Reconciler{Params: Params{Clock: c, Observer: observer}}, observed: observed, plan: p}
	for _, o := range objects {
		r.wanted = append(r.wanted, wanted{Object: o, verdict: r.predict(&o)})
	}
	return condition.Build(r.state(), condition.Find(observed.Input.Service), c.Now())
}

// predict returns the verdict on an object immediately after it is written.
func (r *run) predict(o *render.Object) gatewayapi.Verdict {
	live := r.live(o.Resource, o.Object.GetName())
	switch {
	case !r.Observer.Available(o.Resource):
		return r.unavailable(o)
	case live != nil:
		return r.verdict(o, live, nil)
	case o.Exposure == nil:
		return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}
	case o.Resource == render.VirtualServices:
		return r.contested(o, o.Object, judgeVirtualService(o.Exposure))
	case o.Resource == render.Ingresses:
		return r.contested(o, o.Object, noAddress)
	}
	return r.contested(o, o.Object, gatewayapi.Unseen)
}
