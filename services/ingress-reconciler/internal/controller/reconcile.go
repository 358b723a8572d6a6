// Package controller reconciles InferenceServices: observe, plan, request claims, apply, delete replaced objects, report.
package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/metrics"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// applier writes one object.
type applier interface {
	Apply(ctx context.Context, resource schema.GroupVersionResource, wanted, live *unstructured.Unstructured,
	) (*unstructured.Unstructured, apply.Result, error)
	Annotate(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, key, value string) error
	Delete(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, owner types.UID) error
}

// recorder creates Events.
type recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// Params holds the dependencies of a Reconciler.
type Params struct {
	Observer      *observe.Observer
	Configuration func() (c settings.Config, problem string) // in force
	Ownership     *ownership.Registry
	Dependents    *dependents.Index
	Applier       applier
	Client        dynamic.Interface // for the status
	Recorder      recorder
	Meter         *metrics.Metrics
	Enqueue       func(cache.ObjectName)
	Clock         clock.PassiveClock
}

// Reconciler reconciles InferenceServices.
type Reconciler struct {
	Params

	problems problems
	removed  removedComponents
	pacer    conditionPacer
}

// New returns a Reconciler.
func New(p Params) *Reconciler {
	r := &Reconciler{Params: p}
	r.Clear()
	return r
}

// Clear drops the in-memory state of this replica's last term as leader: services that are deleted while another replica leads cause
// no event here. Call it only while no worker runs.
func (r *Reconciler) Clear() {
	r.Ownership.Clear()
	r.Dependents.Clear()
	r.Meter.Clear()
	r.problems.clearAll()
	r.removed.clearAll()
	r.pacer.clearAll()
}

// recheckInterval is the time between two reconciles of a service that waits for a change without an event, such as the installation
// of a CRD or the deletion of a foreign object.
const recheckInterval = 20 * time.Second

// ReconcileAll enqueues all services. Call it when this replica becomes the leader and when the configuration changes. It registers
// the claims of all services first, so that the order of the queue does not decide which service owns a host. It also enqueues deleted
// services with claims: a worker may have dropped these claims between their read and their registration.
func (r *Reconciler) ReconcileAll() {
	names := sets.New(r.Observer.ServiceNames()...)
	if config, _ := r.Configuration(); config.Document != nil {
		claims := AllClaims(r.Observer, config)
		r.Ownership.SetAll(claims)
		for owner := range claims {
			names.Insert(cache.ObjectName(owner))
		}
	}
	for name := range names {
		r.Enqueue(name)
	}
}

// Reconcile implements controller.Reconciler. It applies the wanted objects first, and deletes old objects after the wanted objects
// have replaced them. A failed write delays neither other objects nor the condition.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	object := r.Observer.InferenceService(name)
	if object == nil { // the garbage collector removes its objects
		r.forgetService(name)
		return nil
	}
	config, problem := r.Configuration()
	if object.Err != nil {
		return r.reportUnreadable(name, object, config)
	}
	if config.Document == nil {
		rest, err := r.reportCondition(ctx, object, r.unconfiguredState(problem))
		if rest > 0 {
			return controller.RequeueAfter(rest, unsettledCause)
		}
		return err
	}
	run := r.newRun(object, config)
	if problem != "" {
		run.notes = append(run.notes, "the last valid configuration is in force: "+problem)
	}
	run.applyObjects(ctx)
	run.deleteSuperseded(ctx)
	r.Meter.SetHeld(name, run.heldObjects)
	rest, err := r.reportCondition(ctx, object, run.conditionState())
	if rest > 0 {
		run.requestRequeue(rest, unsettledCause)
	}
	run.errs = append(run.errs, err)
	return run.reconcileError()
}

// reportUnreadable handles a service that cannot be decoded. It keeps the existing objects, and creates one Event for each problem.
func (r *Reconciler) reportUnreadable(name cache.ObjectName, object *isvc.Object, config settings.Config) error {
	if config.Document != nil {
		r.requestClaims(ownership.Owner(name), object.CreationTimestamp.Time, r.Observer.LiveClaims(name))
	}
	if !r.problems.setProblem(name, object.Err.Error()) {
		return nil
	}
	r.Recorder.Event(events.Reference(isvc.Kind, object), corev1.EventTypeWarning, plan.ReasonInvalidConfiguration, object.Err.Error())
	return controller.Terminal(plan.ReasonInvalidConfiguration, object.Err)
}

// forgetService drops the state of a deleted service. Its claims remain until its objects are deleted.
func (r *Reconciler) forgetService(name cache.ObjectName) {
	r.requestClaims(ownership.Owner(name), time.Time{}, r.Observer.LiveClaims(name))
	r.Dependents.SetDependencies(name, nil)
	r.Meter.Forget(name)
	r.problems.forgetService(name)
	r.removed.forgetService(name)
	r.pacer.forgetService(name)
}

// requestClaims requests claims, and enqueues the services whose refused claims change. It returns the claims that are refused.
func (r *Reconciler) requestClaims(name ownership.Owner, created time.Time, asks []ownership.Ask) map[ownership.Claim]ownership.Conflict {
	refused, others := r.Ownership.Set(name, created, asks)
	for _, o := range others {
		r.Enqueue(cache.ObjectName(o))
	}
	return refused
}

// newRun observes a service, plans its exposures, and requests its claims. It observes again while the plan has new dependencies: if one
// changed before it was registered, the event enqueued nobody.
func (r *Reconciler) newRun(object *isvc.Object, config settings.Config) *run {
	s := object.Service
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	var (
		o       observe.Observation
		p       plan.Plan
		recheck time.Duration
	)
	for added := true; added; {
		o = r.Observer.Observe(s, config)
		o.Input.Removed, recheck = r.removed.updateService(s, bypassedRoles(&o.Input), r.Clock.Now())
		p = plan.Build(&o.Input)
		added = r.Dependents.SetDependencies(name,
			slices.Concat(o.Dependencies, hostDependencies(&p, o.Input.Routed), secretDependencies(&p, s.Namespace)))
	}
	refused := r.requestClaims(ownership.Owner(name), s.Created, p.RequestedClaims(r.Observer.LiveClaims(name)))
	p.RemoveRefused(refused)
	next := &run{reconciler: r, object: object, observed: o, plan: p, refused: refused, holdDuration: config.Document.HoldDuration()}
	if recheck > 0 {
		next.requestRequeue(recheck, "a component was removed from the specification")
	}
	if p.Strategy == settings.VirtualService && o.Input.Istio == nil && o.Input.Settings.IstioGateway != istiogateway.Mesh {
		next.requestRequeue(recheckInterval, "the API server does not serve Istio Gateways")
	}
	return next
}

// hostDependencies returns the hosts of a plan, and those of routes that wait for OME's: routes of others may answer their requests, or
// prevent an exposure or OME's route.
func hostDependencies(p *plan.Plan, routed map[ownership.Claim]bool) []dependents.Object {
	hosts := slices.Clone(p.RewriteHosts)
	if p.HandedToOME {
		for claim := range routed {
			hosts = append(hosts, claim.Host)
		}
	}
	for i := range p.WantedClaims {
		hosts = append(hosts, p.WantedClaims[i].Host)
	}
	if slices.ContainsFunc(p.Exposures, func(e plan.Exposure) bool { return e.OwnListener }) {
		hosts = append(hosts, informers.EveryHost)
	}
	var objects []dependents.Object
	for _, host := range hosts {
		objects = append(objects, dependents.Object{Kind: dependents.Host, Name: cache.ObjectName{Name: host}})
	}
	return objects
}

// secretDependencies returns the TLS Secrets of a plan: another service may request their certificates.
func secretDependencies(p *plan.Plan, namespace string) []dependents.Object {
	var objects []dependents.Object
	for i := range p.Exposures {
		if secret := p.Exposures[i].TLSSecret; secret != "" {
			objects = append(objects,
				dependents.Object{Kind: dependents.Secret, Name: cache.ObjectName{Namespace: namespace, Name: secret}})
		}
	}
	return objects
}

// unconfiguredState returns the state of a service while no configuration is in force.
func (r *Reconciler) unconfiguredState(problem string) condition.State {
	return condition.State{Reasons: []plan.Reason{{Reason: plan.ReasonInvalidConfiguration, Message: problem}}}
}

// reportCondition writes the condition of a service if it has changed, and creates an Event for the change. It compares with the stored
// condition, so a new leader does not repeat Events. It returns how long the state must last before it is written: each write wakes OME.
func (r *Reconciler) reportCondition(ctx context.Context, object *isvc.Object, state condition.State) (rest time.Duration, err error) {
	s := object.Service
	if s.Deleting || s.Mode == isvc.VirtualDeployment { // OME replaces all conditions of a VirtualDeployment
		return 0, nil
	}
	before := condition.Find(s)
	next := condition.Build(state, before, r.Clock.Now())
	name := cache.MetaObjectToName(object)
	r.Meter.SetReason(name, next.Reason)
	r.problems.forgetService(name)
	patch := condition.BuildPatch(s, next)
	if patch == nil {
		r.pacer.forgetService(name)
		return 0, nil
	}
	if rest = r.pacer.writeDelay(name, before, next, r.Clock.Now()); rest > 0 {
		return rest, nil
	}
	_, err = r.Client.Resource(isvc.Resource).Namespace(name.Namespace).
		Patch(ctx, name.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: render.Manager}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil // the service is gone
	// the list of conditions has changed: the API server applies the patch before it checks the resourceVersion
	case apierrors.IsInvalid(err):
		return 0, controller.RequeueAfter(time.Second, "another client changed the conditions")
	case err != nil:
		r.Meter.CountWrite(isvc.Resource.Resource, "failed")
		return 0, fmt.Errorf("write condition: %w", err)
	}
	r.Meter.CountWrite(isvc.Resource.Resource, "updated")
	r.recordTransition(object, before, next)
	return 0, nil
}

// unsettledCause is the reason to reconcile again for a condition that is not written yet.
const unsettledCause = "the condition is written if its state lasts: each write wakes OME"

// recordTransition records the time to exposure when the condition becomes True, and creates an Event when the status is False and the
// reason has changed.
func (r *Reconciler) recordTransition(object *isvc.Object, before *isvc.Condition, next isvc.Condition) {
	if next.Status == metav1.ConditionTrue && (before == nil || before.Status != metav1.ConditionTrue) {
		r.Meter.ObserveProgrammed(r.Clock.Since(readySince(object.Service, before)))
	}
	if next.Status == metav1.ConditionFalse && (before == nil || before.Reason != next.Reason) {
		r.Recorder.Event(events.Reference(isvc.Kind, object), eventType(next.Reason), next.Reason, next.Message)
	}
}

// readySince returns the time since when a service has been ready but not exposed: the latest time at which a component became ready
// or the condition changed.
func readySince(s *isvc.Service, before *isvc.Condition) time.Time {
	since := s.Created
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c != before && c.Type != "EngineReady" && c.Type != "RouterReady" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, c.LastTransitionTime); err == nil && at.After(since) {
			since = at
		}
	}
	return since
}

// eventType returns the type of the Event for a reason. Every new service waits for its components, so this wait is not a warning.
func eventType(reason string) string {
	if reason == plan.ReasonServiceNotFound || reason == plan.ReasonComponentNotReady {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
