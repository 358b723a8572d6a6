package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
	"fairlead.dev/services/ingress-reconciler/internal/transition"
)

// run is one reconcile of one service.
type run struct {
	reconciler *Reconciler

	object       *isvc.Object
	observed     observe.Observation
	plan         plan.Plan
	refused      map[ownership.Claim]ownership.Conflict
	holdDuration time.Duration

	planned       []plannedObject
	notes         []string
	heldObjects   int           // number of replaced objects that exist until holdDuration has passed
	requeueDelay  time.Duration // when to reconcile again; 0: on the next event
	requeueReason string        // reported with requeueDelay
	errs          []error
}

// plannedObject is an object of the plan, and its verdict.
type plannedObject struct {
	render.Object

	verdict gatewayapi.Verdict
}

// applyObjects writes the wanted objects that differ.
func (r *run) applyObjects(ctx context.Context) {
	objects, err := render.Render(&r.plan, r.observed.RenderParams())
	if err != nil {
		r.plan.Reasons = append(r.plan.Reasons, plan.Reason{Reason: ReasonNotWritten, Message: err.Error()})
		r.plan.FrozenSlots = plan.Slots
		r.errs = append(r.errs, err)
	}
	for _, o := range objects {
		if !r.reconciler.Observer.IsAvailable(o.Resource) {
			r.planned = append(r.planned, plannedObject{Object: o, verdict: r.unavailableVerdict(&o)})
			continue
		}
		live := r.findLive(o.Resource, o.Object.GetName())
		stored, result, err := r.reconciler.Applier.Apply(ctx, o.Resource, o.Object, live)
		w := plannedObject{Object: o, verdict: r.appliedVerdict(&o, stored, err)}
		r.planned = append(r.planned, w)
		r.countWrite(ctx, o.Resource, o.Object.GetName(), string(result), err)
		if live != nil && err == nil && live.GetAnnotations()[observe.AnnotationSuperseded] != "" { // the object is wanted again
			r.markSuperseded(ctx, o.Resource, live, "")
		}
	}
}

// unavailableVerdict is the verdict on an object of a kind that cannot be written.
func (r *run) unavailableVerdict(o *render.Object) gatewayapi.Verdict {
	message := fmt.Sprintf("%s %s cannot be created: install the CRD, or add %s to --kinds", o.Object.GetKind(), o.Object.GetName(),
		o.Resource.Resource)
	r.requestRequeue(recheckInterval, message)
	return gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: plan.ReasonAPIUnavailable, Message: message}
}

// findLive returns an existing object of the service, nil if it does not exist.
func (r *run) findLive(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	if live := r.observed.FindLive(resource, name); live != nil {
		return live.Object
	}
	return nil
}

// appliedVerdict returns the verdict on an object that was applied.
func (r *run) appliedVerdict(o *render.Object, stored *unstructured.Unstructured, err error) gatewayapi.Verdict {
	switch {
	case errors.Is(err, apply.ErrForeign):
		r.requestRequeue(recheckInterval, "a foreign object with the name sends no event")
		return gatewayapi.Verdict{
			Acceptance: gatewayapi.Refused, Reason: plan.ReasonNameConflict,
			Message: fmt.Sprintf("%s %s exists and has another owner: delete or rename it", o.Object.GetKind(), o.Object.GetName()),
		}
	case err != nil:
		return gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: ReasonNotWritten, Message: err.Error()}
	case o.Exposure == nil:
		return gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}
	}
	v, wait := objectVerdict(o, stored, r.observed.Input.Gateways[gatewayName(o.Exposure)], r.reconciler.Clock.Now())
	if wait > 0 {
		r.requestRequeue(wait, v.Message)
	}
	return r.contestedVerdict(o, stored, v)
}

// ReasonNotWritten is the reason for an object that the API server rejected.
const ReasonNotWritten = "NotWritten"

func gatewayName(e *plan.Exposure) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Gateway.Namespace, Name: e.Gateway.Name}
}

// countWrite counts a write, or records its error. A foreign object is not an error: the condition reports it.
func (r *run) countWrite(ctx context.Context, resource schema.GroupVersionResource, name, result string, err error) {
	switch {
	case errors.Is(err, apply.ErrForeign):
	case err != nil:
		r.reconciler.Meter.CountWrite(resource.Resource, "failed")
		r.errs = append(r.errs, err)
	case result != string(apply.Unchanged):
		r.reconciler.Meter.CountWrite(resource.Resource, result)
		logging.FromContext(ctx).Info("Wrote object", zap.String(logging.KeyResource, resource.Resource), zap.String("object", name),
			zap.String("result", result))
	}
}

// replacedObjects returns the objects that are no longer in the plan, and the input of package transition for them.
func (r *run) replacedObjects(ctx context.Context) (old []observe.Live, in []transition.Old) {
	served := true // all routes
	for _, l := range r.observed.Live {
		if slices.ContainsFunc(r.planned, func(w plannedObject) bool {
			return w.Resource == l.Resource && w.Object.Object.GetName() == l.Object.GetName()
		}) {
			continue
		}
		next := transition.Old{Slot: l.Slot, Superseded: l.SupersededAt(), Lost: r.isLost(&l)}
		if r.plan.HandedToOME {
			next.Served = r.handOver(ctx, &l)
			served = served && next.Served
		}
		old, in = append(old, l), append(in, next)
	}
	for i := range in { // routes refer to the other objects
		in[i].Served = in[i].Served && (render.IsRoute(old[i].Resource) || served)
	}
	return old, in
}

// deleteSuperseded deletes objects that are no longer in the plan, as package transition decides.
func (r *run) deleteSuperseded(ctx context.Context) {
	in := transition.Input{
		Now: r.reconciler.Clock.Now(), HoldDuration: r.holdDuration, FrozenSlots: r.plan.FrozenSlots, Disabled: r.plan.Disabled,
		HandedToOME: r.plan.HandedToOME,
	}
	old, states := r.replacedObjects(ctx)
	in.Old = states
	for i := range r.planned {
		in.Wanted = append(in.Wanted, transition.Wanted{Slot: r.planned[i].Slot, Verdict: r.planned[i].verdict.Acceptance})
	}
	actions, next := transition.Decide(in)
	slices.Reverse(old) // routes before the objects that they refer to
	slices.Reverse(actions)
	for i, action := range actions {
		l := &old[i]
		if action == transition.Mark || action == transition.Retain && !l.SupersededAt().IsZero() {
			r.heldObjects++
		}
		switch action {
		case transition.Mark:
			r.markSuperseded(ctx, l.Resource, l.Object, in.Now.UTC().Format(time.RFC3339Nano))
		case transition.Delete:
			err := r.reconciler.Applier.Delete(ctx, l.Resource, l.Object, r.object.UID)
			r.countWrite(ctx, l.Resource, l.Object.GetName(), "deleted", err)
		}
	}
	if next > 0 {
		r.requestRequeue(next, "replaced objects are kept until holdSeconds have passed")
	}
}

// isLost reports whether the host and path of an object belong to another service.
func (r *run) isLost(l *observe.Live) bool {
	c, ok := l.RouteClaim()
	if !ok {
		return false
	}
	_, refused := r.refused[c]
	return refused
}

// markSuperseded records when an object was superseded. An empty time removes the record.
func (r *run) markSuperseded(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, at string) {
	err := r.reconciler.Applier.Annotate(ctx, resource, live, observe.AnnotationSuperseded, at)
	r.countWrite(ctx, resource, live.GetName(), "marked", err)
}

// requestRequeue requests another reconcile of the service after the given time at the latest.
func (r *run) requestRequeue(delay time.Duration, reason string) {
	if r.requeueDelay == 0 || delay < r.requeueDelay {
		r.requeueDelay, r.requeueReason = delay, reason
	}
}

// conditionState returns the state that the condition reports.
func (r *run) conditionState() condition.State {
	s := condition.State{Reasons: r.plan.Reasons, Notes: r.notes}
	for i := range r.planned {
		w := &r.planned[i]
		switch {
		case w.Exposure != nil:
			s.Routes = append(s.Routes, condition.Route{
				URL: exposureURL(w.Exposure), Object: w.Object.Object.GetKind() + " " + w.Object.Object.GetName(),
				Server: r.exposureServer(w.Exposure), Verdict: reportedVerdict(w),
				Detail: cmp.Or(r.observed.Input.Gateways[gatewayName(w.Exposure)].Programmed(), w.verdict.Message),
			})
		case w.verdict.Acceptance == gatewayapi.Refused:
			s.Reasons = append(slices.Clone(s.Reasons), plan.Reason{Reason: w.verdict.Reason, Message: w.verdict.Message})
		}
	}
	switch {
	case r.plan.Pool != nil:
		s.Notes = append(s.Notes, fmt.Sprintf("InferencePool %s: %s", r.plan.Pool.Name, r.plan.Pool.Picker.FailureMode))
	case r.observed.FailureMode != "" && slices.ContainsFunc(r.plan.Exposures, func(e plan.Exposure) bool { return e.Backend.Pool != "" }):
		s.Notes = append(s.Notes, fmt.Sprintf("InferencePool %s: %s", r.observed.Input.Settings.Pool.Name, r.observed.FailureMode))
	}
	for _, reason := range r.plan.Reasons {
		if reason.Reason == plan.ReasonAPIUnavailable {
			r.requestRequeue(recheckInterval, reason.Message)
		}
	}
	return s
}

// reportedVerdict returns the verdict on a route. If the Gateway has not accepted it, the prediction explains why.
func reportedVerdict(w *plannedObject) gatewayapi.Verdict {
	v := w.verdict
	if a := w.Exposure.Attachment; v.Acceptance != gatewayapi.Accepted && a.Reason != "" && v.Reason != ReasonNotWritten &&
		v.Reason != plan.ReasonNameConflict {
		return gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: a.Reason, Message: a.Message}
	}
	return v
}

// exposureURL returns the URL of an exposure, with the header that selects its model.
func exposureURL(e *plan.Exposure) string {
	if e.Model == (plan.Model{}) {
		return e.URL
	}
	return fmt.Sprintf("%s (header %s: %s)", e.URL, e.Model.Header, e.Model.Name)
}

// exposureServer names the Gateway or IngressClass that serves an exposure.
func (r *run) exposureServer(e *plan.Exposure) string {
	switch r.plan.Strategy {
	case settings.HTTPRoute:
		server := e.ParentKind + " " + e.Gateway.Namespace + "/" + e.Gateway.Name
		if e.Gateway.Listener != "" {
			server += " listener " + e.Gateway.Listener
		}
		return server
	case settings.VirtualService:
		return "Istio Gateway " + r.observed.Input.Settings.IstioGateway
	}
	if class := r.observed.Input.Settings.IngressClass; class != nil {
		return "IngressClass " + *class
	}
	return "the default IngressClass"
}

// reconcileError returns the result of Reconcile.
func (r *run) reconcileError() error {
	if r.requeueDelay > 0 {
		r.errs = append(r.errs, controller.RequeueAfter(r.requeueDelay, r.requeueReason))
	}
	return errors.Join(r.errs...)
}
