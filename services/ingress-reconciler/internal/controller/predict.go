package controller

import (
	"k8s.io/utils/clock"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// Predict returns the condition that a reconcile would write after it has written the objects of a plan. It judges existing objects by
// their status. For new objects no data plane has reported a verdict yet.
func Predict(observed observe.Observation, p plan.Plan, objects []render.Object, c clock.PassiveClock) isvc.Condition {
	r := &run{Reconciler: &Reconciler{Params: Params{Clock: c}}, observed: observed, plan: p}
	for _, o := range objects {
		w := wanted{Object: o}
		if live := r.live(o.Resource, o.Object.GetName()); live != nil {
			w.verdict = r.verdict(&o, live, nil)
		} else {
			w.verdict = unwritten(&o)
		}
		r.wanted = append(r.wanted, w)
	}
	return condition.Build(r.state(), condition.Find(observed.Input.Service), c.Now())
}

// unwritten returns the verdict on an object immediately after its creation.
func unwritten(o *render.Object) gateway.Verdict {
	switch {
	case o.Exposure == nil, o.Resource == render.VirtualServices:
		return gateway.Verdict{Acceptance: gateway.Accepted}
	case o.Resource == render.Ingresses:
		return gateway.Verdict{Reason: reasonNoAddress, Message: "the ingress controller has not published an address yet"}
	}
	return gateway.Unseen
}
