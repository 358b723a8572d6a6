package controller

import (
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
	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
	"fairlead.dev/services/ingress-reconciler/internal/transition"
)

// run is one reconcile of one service.
type run struct {
	*Reconciler

	object   *isvc.Object
	observed observe.Observation
	plan     plan.Plan
	refused  map[ownership.Claim]ownership.Conflict
	hold     time.Duration

	wanted []wanted
	notes  []string
	again  time.Duration // when to look again; 0: when something changes
	why    string
	errs   []error
}

// wanted is an object that is to be there, and what became of it.
type wanted struct {
	render.Object

	verdict gateway.Verdict
}

// apply brings the objects that are wanted to where they should be.
func (r *run) apply(ctx context.Context) {
	objects, err := render.Render(&r.plan, r.params())
	if err != nil {
		r.plan.Reasons = append(r.plan.Reasons, plan.Reason{Reason: reasonNotWritten, Message: err.Error()})
		r.plan.Keep = plan.Slots
		r.errs = append(r.errs, err)
	}
	for _, o := range objects {
		live := r.live(o.Resource, o.Object.GetName())
		stored, result, err := r.Applier.Apply(ctx, o.Resource, o.Object, live)
		w := wanted{Object: o, verdict: r.verdict(&o, stored, err)}
		r.wanted = append(r.wanted, w)
		r.count(ctx, o.Resource, o.Object.GetName(), string(result), err)
		if live != nil && err == nil && live.GetAnnotations()[observe.AnnotationSuperseded] != "" { // it is wanted again
			r.mark(ctx, o.Resource, live, "")
		}
	}
}

// params returns what the objects follow from, besides the plan.
func (r *run) params() render.Params {
	return r.observed.RenderParams()
}

// live returns an object of ours that is there, nil if there is none.
func (r *run) live(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(r.observed.Live, func(l observe.Live) bool { return l.Resource == resource && l.Object.GetName() == name })
	if i < 0 {
		return nil
	}
	return r.observed.Live[i].Object
}

// verdict returns what became of an object that was applied. What is said of it lasts while its specification does.
func (r *run) verdict(o *render.Object, stored *unstructured.Unstructured, err error) gateway.Verdict {
	switch {
	case errors.Is(err, apply.ErrForeign):
		r.recheck(recheckInterval, "nobody tells when somebody else's object is gone")
		return gateway.Verdict{Acceptance: gateway.Refused, Reason: plan.ReasonNameConflict, Message: fmt.Sprintf("%s %s belongs to somebody else", o.Object.GetKind(), o.Object.GetName())}
	case err != nil:
		return gateway.Verdict{Acceptance: gateway.Refused, Reason: reasonNotWritten, Message: err.Error()}
	case o.Exposure == nil:
		return gateway.Verdict{Acceptance: gateway.Accepted}
	}
	return judge(o.Resource, stored, r.observed.Input.Gateways[gatewayName(o.Exposure)])
}

// reasonNotWritten is that of an object which the API server did not take.
const reasonNotWritten = "NotWritten"

func gatewayName(e *plan.Exposure) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Gateway.Namespace, Name: e.Gateway.Name}
}

// count counts a write, or takes its error. That of an object which is somebody else's is data: it is in the condition.
func (r *run) count(ctx context.Context, resource schema.GroupVersionResource, name, result string, err error) {
	switch {
	case errors.Is(err, apply.ErrForeign):
	case err != nil:
		r.Meter.Write(resource.Resource, "failed")
		r.errs = append(r.errs, err)
	case result != string(apply.Unchanged):
		r.Meter.Write(resource.Resource, result)
		logging.FromContext(ctx).Info("Wrote object", zap.String(logging.KeyResource, resource.Resource), zap.String("object", name), zap.String("result", result))
	}
}

// release lets go of objects that are wanted no more, when it is time.
func (r *run) release(ctx context.Context) {
	in := transition.Input{
		Now: r.Clock.Now(), Hold: r.hold, Keep: r.plan.Keep, Disabled: r.plan.Disabled, Handed: r.plan.HandedToOME,
	}
	var old []observe.Live
	for _, l := range r.observed.Live {
		if !slices.ContainsFunc(r.wanted, func(w wanted) bool {
			return w.Resource == l.Resource && w.Object.Object.GetName() == l.Object.GetName()
		}) {
			old = append(old, l)
			in.Old = append(in.Old, transition.Old{Slot: l.Slot, Superseded: l.Superseded(), Lost: r.lost(&l), Exclusive: r.exclusive(&l)})
		}
	}
	for i := range r.wanted {
		in.Wanted = append(in.Wanted, transition.Wanted{Slot: r.wanted[i].Slot, Verdict: r.wanted[i].verdict.Acceptance})
	}
	actions, next := transition.Decide(in)
	slices.Reverse(old) // routes before what they refer to
	slices.Reverse(actions)
	for i, action := range actions {
		l := &old[i]
		switch action {
		case transition.Mark:
			r.mark(ctx, l.Resource, l.Object, in.Now.UTC().Format(time.RFC3339))
		case transition.Delete:
			err := r.Applier.Delete(ctx, l.Resource, l.Object, r.object.UID)
			r.count(ctx, l.Resource, l.Object.GetName(), "deleted", err)
		}
	}
	if next > 0 {
		r.recheck(next, "objects that are no longer wanted are held")
	}
}

// lost reports whether another service has the host and path of an object.
func (r *run) lost(l *observe.Live) bool {
	c, ok := l.Claim()
	if !ok {
		return false
	}
	_, refused := r.refused[c]
	return refused
}

// exclusive reports whether the admission webhook of the ingress controller refuses OME's Ingress while this one has the host.
func (r *run) exclusive(l *observe.Live) bool {
	if l.Resource != render.Ingresses {
		return false
	}
	c := ingressclass.Of(r.observed.Input.Classes, l.Object).Controller
	return c != nil && c.RefusesDuplicates
}

// mark writes when an object was superseded; an empty time takes it back.
func (r *run) mark(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, at string) {
	err := r.Applier.Annotate(ctx, resource, live, observe.AnnotationSuperseded, at)
	r.count(ctx, resource, live.GetName(), "marked", err)
}

// lookAgain has the service looked at again after some time, or before.
func (r *run) recheck(after time.Duration, why string) {
	if r.again == 0 || after < r.again {
		r.again, r.why = after, why
	}
}

// state is what the condition is to say.
func (r *run) state() condition.State {
	s := condition.State{Reasons: r.plan.Reasons, Notes: r.notes}
	for i := range r.wanted {
		w := &r.wanted[i]
		switch {
		case w.Exposure != nil:
			s.Ways = append(s.Ways, condition.Way{
				URL: url(w.Exposure), At: r.at(w.Exposure), Verdict: foreseen(w), Detail: r.observed.Input.Gateways[gatewayName(w.Exposure)].Programmed(),
			})
		case w.verdict.Acceptance == gateway.Refused:
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
			r.recheck(recheckInterval, reason.Message)
		}
	}
	return s
}

// foreseen returns what is known of a way in: what was foreseen of it explains what has not come.
func foreseen(w *wanted) gateway.Verdict {
	v := w.verdict
	if a := w.Exposure.Attachment; v.Acceptance != gateway.Accepted && a.Reason != "" && v.Reason != reasonNotWritten && v.Reason != plan.ReasonNameConflict {
		return gateway.Verdict{Acceptance: gateway.Refused, Reason: a.Reason, Message: a.Message}
	}
	return v
}

// url returns the URL of an exposure, with the header that selects its model.
func url(e *plan.Exposure) string {
	if e.Model == (plan.Model{}) {
		return e.URL
	}
	return fmt.Sprintf("%s (header %s: %s)", e.URL, e.Model.Header, e.Model.Name)
}

// at names who serves a way in.
func (r *run) at(e *plan.Exposure) string {
	switch r.plan.Strategy {
	case settings.HTTPRoute:
		at := "Gateway " + e.Gateway.Namespace + "/" + e.Gateway.Name
		if e.Gateway.Listener != "" {
			at += " listener " + e.Gateway.Listener
		}
		return at
	case settings.VirtualService:
		return "Istio Gateway " + r.observed.Input.Settings.IstioGateway
	}
	if class := r.observed.Input.Settings.IngressClass; class != nil {
		return "IngressClass " + *class
	}
	return "the default IngressClass"
}

// outcome is what Reconcile returns.
func (r *run) outcome() error {
	if r.again > 0 {
		r.errs = append(r.errs, controller.RequeueAfter(r.again, r.why))
	}
	return errors.Join(r.errs...)
}
