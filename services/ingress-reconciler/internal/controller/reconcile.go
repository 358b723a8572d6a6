// Package controller brings the objects of one service to where its plan wants them: observe, plan, apply, let go, report.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/services/ingress-reconciler/internal/claims"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
	"fairlead.dev/services/ingress-reconciler/internal/uses"
)

// configuration is what is configured.
type configuration interface {
	Current() (c settings.Config, problem string)
}

// applier writes one object.
type applier interface {
	Apply(ctx context.Context, resource schema.GroupVersionResource, wanted, live *unstructured.Unstructured) (*unstructured.Unstructured, apply.Result, error)
	Annotate(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, key, value string) error
	Delete(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, owner types.UID) error
}

// statusPatcher patches the status of an InferenceService.
type statusPatcher interface {
	PatchStatus(ctx context.Context, name cache.ObjectName, patch []byte) error
}

// recorder makes Events.
type recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// meter counts what is done.
type meter interface {
	Write(resource, result string)
	Moved(before, now string)
}

// Params is what New needs.
type Params struct {
	Observer      *observe.Observer
	Configuration configuration
	Claims        *claims.Registry
	Uses          *uses.Index
	Applier       applier
	Status        statusPatcher
	Recorder      recorder
	Meter         meter
	Enqueue       func(cache.ObjectName)
	Clock         clock.PassiveClock
}

// Reconciler brings services to where they should be.
type Reconciler struct {
	Params

	reported reported
	leaving  leaving
}

// New returns a Reconciler.
func New(p Params) *Reconciler {
	r := &Reconciler{Params: p}
	r.Clear()
	return r
}

// Clear forgets what was learnt while this replica led: of services that go while another one does, nobody tells. None is to
// be reconciled meanwhile.
func (r *Reconciler) Clear() {
	r.Claims.Clear()
	r.Uses.Clear()
	r.reported.clear(r.Meter)
	r.leaving.clear()
}

// lookAgain is when a service is looked at again whose state nobody tells of: a kind that is not served, a stranger's object.
const lookAgain = 20 * time.Second

// ReconcileAll has all services reconciled: when this replica has taken the lead, and when something else is configured. Their claims
// are taken before, else a younger one could come first.
func (r *Reconciler) ReconcileAll() {
	names := r.Observer.Names() // of one that goes meanwhile the claims are dropped when its turn comes
	if config, _ := r.Configuration.Current(); config.Document != nil {
		for _, name := range names {
			if o, found := r.Observer.ObserveAny(name, config); found {
				r.Claims.Plan(&o.Input)
			}
		}
	}
	for _, name := range names {
		r.Enqueue(name)
	}
}

// Reconcile implements controller.Reconciler. Objects that are wanted are applied first; those that are not go when others
// have taken their place. One that cannot be written keeps neither the others nor the condition from being.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	object := r.Observer.Service(name)
	switch {
	case object == nil: // what is ours goes with its owner
		r.forget(name)
		return nil
	case object.Err != nil:
		r.Recorder.Event(reference(object), corev1.EventTypeWarning, plan.ReasonInvalidConfiguration, object.Err.Error())
		return controller.Terminal(plan.ReasonInvalidConfiguration, object.Err)
	}
	config, problem := r.Configuration.Current()
	if config.Document == nil {
		return r.report(ctx, object, r.unconfigured(problem))
	}
	run := r.begin(object, config)
	if problem != "" {
		run.notes = append(run.notes, "the configuration in force is an older one: "+problem)
	}
	run.apply(ctx)
	run.release(ctx)
	run.errs = append(run.errs, r.report(ctx, object, run.state()))
	return run.outcome()
}

// forget drops what is known of a service that is gone, and tells those who waited for what it had.
func (r *Reconciler) forget(name cache.ObjectName) {
	_, others := r.Claims.Set(plan.Name(name), time.Time{}, nil)
	r.enqueue(others)
	r.Uses.Set(name, nil)
	r.reported.forget(name, r.Meter)
	r.leaving.forget(name)
}

func (r *Reconciler) enqueue(names []plan.Name) {
	for _, n := range names {
		r.Enqueue(cache.ObjectName(n))
	}
}

// begin observes and plans.
func (r *Reconciler) begin(object *isvc.Object, config settings.Config) *run {
	s := object.Service
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	o := r.Observer.Observe(s, config)
	r.Uses.Set(name, o.Uses)
	var stays time.Duration
	o.Input.Leaving, stays = r.leaving.observe(s, r.Clock.Now())
	p, others := r.Claims.Plan(&o.Input)
	r.enqueue(others)
	next := &run{Reconciler: r, object: object, observed: o, plan: p, hold: config.Document.Hold()}
	if stays > 0 {
		next.lookAgain(stays, "a component is leaving")
	}
	return next
}

// unconfigured is the state of a service while nothing is configured.
func (r *Reconciler) unconfigured(problem string) condition.State {
	return condition.State{Reasons: []plan.Reason{{Reason: plan.ReasonInvalidConfiguration, Message: problem}}}
}

// report writes the condition of a service, if it says anything else than before, and then an Event if something is wrong now
// that was not: by what is stored, so that a new leader repeats nothing.
func (r *Reconciler) report(ctx context.Context, object *isvc.Object, state condition.State) error {
	s := object.Service
	if s.Deleting || s.Mode == isvc.VirtualDeployment { // OME replaces the whole list of those
		return nil
	}
	before := condition.Find(s)
	next := condition.Build(state, before, r.Clock.Now())
	r.reported.set(cache.MetaObjectToName(object), next.Reason, r.Meter)
	patch := condition.Patch(s, next)
	if patch == nil {
		return nil
	}
	err := r.Status.PatchStatus(ctx, cache.MetaObjectToName(object), patch)
	switch {
	case apierrors.IsNotFound(err):
		return nil // it is gone, and so will be what is ours
	case apierrors.IsInvalid(err): // conditions have moved since: the patch is tried before the version is looked at
		return controller.RequeueAfter(time.Second, "conditions have changed")
	case err != nil:
		r.Meter.Write(isvc.Resource.Resource, "failed")
		return fmt.Errorf("write condition: %w", err)
	}
	r.Meter.Write(isvc.Resource.Resource, "updated")
	if next.Status == metav1.ConditionFalse && (before == nil || before.Reason != next.Reason) {
		r.Recorder.Event(reference(object), eventType(next.Reason), next.Reason, next.Message)
	}
	return nil
}

// eventType returns the type of the Event for what keeps a service from being exposed. Every new one waits for its components.
func eventType(reason string) string {
	if reason == plan.ReasonServiceNotFound || reason == plan.ReasonComponentNotReady {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

func reference(o *isvc.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: isvc.Resource.GroupVersion().String(), Kind: "InferenceService", Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion,
	}
}
