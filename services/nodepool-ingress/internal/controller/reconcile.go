// Package controller reconciles YurtIngresses: observe, plan, apply, delete unwanted objects, report.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/nodepool-ingress/internal/metrics"
	"fairlead.dev/services/nodepool-ingress/internal/observe"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
	"fairlead.dev/services/nodepool-ingress/internal/status"
)

// Params holds the dependencies of a Reconciler.
type Params struct {
	Observer *observe.Observer
	Applier  *apply.Applier
	Writer   *Writer
	Recorder *events.Recorder
	Metrics  *metrics.Metrics
	Enqueue  func(cache.ObjectName)
	Clock    clock.PassiveClock
}

// Reconciler reconciles YurtIngresses.
type Reconciler struct {
	Params

	mu     sync.Mutex
	states map[string]*writeState // by the name of the object
}

// writeState is what this replica knows about its writes of one YurtIngress, such as its last write of the status.
type writeState struct {
	uid     types.UID
	wanted  v1alpha1.YurtIngressStatus // before the API server dropped fields
	stored  v1alpha1.YurtIngressStatus
	problem string // of an object that cannot be decoded

	contested map[plan.Key]contest
}

// contest describes an object that the API server stores differently from what is written. The event of each write would cause the next
// write immediately, without the backoff of the queue.
type contest struct {
	generation int64 // of the YurtIngress: another specification may be stored as it is
	err        error
	delay      time.Duration
	until      time.Time
}

// minContestDelay is the time between the first two attempts to write a contested object. It doubles up to recheckInterval.
const minContestDelay = time.Second

// New returns a Reconciler.
func New(p Params) *Reconciler {
	r := &Reconciler{Params: p}
	r.Clear()
	return r
}

// Clear drops the in-memory state of this replica's last term as leader. Call it only while no worker runs.
func (r *Reconciler) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = map[string]*writeState{}
	r.Metrics.Clear()
}

// recheckInterval is the time between two reconciles of a YurtIngress that waits for a change without an event, such as the deletion of an
// object of another owner.
const recheckInterval = 20 * time.Second

// ReconcileAll enqueues all YurtIngresses. Call it when this replica becomes the leader.
func (r *Reconciler) ReconcileAll() {
	for _, name := range r.Observer.YurtIngressNames() {
		r.Enqueue(name)
	}
}

// Reconcile implements controller.Reconciler. The finalizer comes before the first other write, and goes after the last object.
func (r *Reconciler) Reconcile(ctx context.Context, name cache.ObjectName) error {
	object, readable := r.Observer.YurtIngress(name)
	object = r.restoreStatus(object)
	switch {
	case object == nil:
		r.forgetObject(name.Name)
		return nil
	case !readable:
		return r.reportUnreadable(object)
	case object.DeletionTimestamp != nil:
		return r.finalize(ctx, object)
	}
	next := r.newPass(object)
	if !slices.Contains(object.Finalizers, v1alpha1.Finalizer) {
		return next.addFinalizer(ctx)
	}
	next.applyPools(ctx)
	next.deleteRemovedPools(ctx)
	next.errs = append(next.errs, r.reportStatus(ctx, object, next.buildStatus()))
	return next.reconcileError()
}

// restoreStatus returns an object with the status that this replica wrote, if the API server has dropped a part of it. A CRD of OpenYurt's
// operator lacks most fields of the status. Otherwise each reconcile would write the status again.
func (r *Reconciler) restoreStatus(object *v1alpha1.YurtIngress) *v1alpha1.YurtIngress {
	if object == nil {
		return nil
	}
	state := r.stateOf(object)
	if status.Equal(&state.stored, &state.wanted) || !status.Equal(&object.Status, &state.stored) {
		return object
	}
	copied := *object
	copied.Status = state.wanted
	return &copied
}

func (r *Reconciler) newPass(object *v1alpha1.YurtIngress) *pass {
	in := r.Observer.Observe(object)
	p := plan.Build(&in)
	return &pass{
		reconciler: r, object: object, state: r.stateOf(object), plan: &p, live: in.Live, image: in.Policy.DefaultImage(&p.Settings),
	}
}

// reportUnreadable reports an object that cannot be decoded, once for each version of it. Its objects stay.
func (r *Reconciler) reportUnreadable(object *v1alpha1.YurtIngress) error {
	const message = "the object cannot be decoded: compare its fields with the CRD of this release"
	state := r.stateOf(object)
	if state.problem == object.ResourceVersion {
		return nil
	}
	state.problem = object.ResourceVersion
	r.Recorder.Event(objectReference(object), corev1.EventTypeWarning, v1alpha1.ReasonInvalid, message)
	return controller.Terminal(v1alpha1.ReasonInvalid, errors.New(message))
}

// stateOf returns the write state of an object. One worker handles an object at a time.
func (r *Reconciler) stateOf(object *v1alpha1.YurtIngress) *writeState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.states[object.Name]
	if state == nil || state.uid != object.UID {
		state = &writeState{uid: object.UID}
		r.states[object.Name] = state
	}
	return state
}

func (r *Reconciler) forgetObject(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, name)
	r.Metrics.Forget(name)
}

// finalize deletes all objects of a YurtIngress, and then removes the finalizer. It needs neither the pools nor the specification.
func (r *Reconciler) finalize(ctx context.Context, object *v1alpha1.YurtIngress) error {
	if !slices.Contains(object.Finalizers, v1alpha1.Finalizer) {
		r.forgetObject(object.Name)
		return nil
	}
	remaining, err := r.Writer.ListRemaining(ctx, object.UID)
	if err != nil {
		return fmt.Errorf("look for objects of YurtIngress %s: %w", object.Name, err)
	}
	plan.SortForDeletion(remaining)
	if err := errors.Join(r.deleteObjects(ctx, object.UID, remaining)...); err != nil {
		return r.reportBlockedDeletion(ctx, object, err)
	}
	if len(remaining) > 0 {
		// Deletions take effect immediately, unless another program has set a finalizer. Their events enqueue the object.
		return controller.RequeueAfter(time.Second, "objects are being deleted")
	}
	if err := r.Writer.SetFinalizers(ctx, object, withoutFinalizer(object)); err != nil && !apierrors.IsNotFound(err) {
		return r.reportBlockedDeletion(ctx, object, fmt.Errorf("remove finalizer of YurtIngress %s: %w", object.Name, err))
	}
	logging.FromContext(ctx).Info("Removed finalizer: all objects are gone")
	r.forgetObject(object.Name)
	return nil
}

// deleteObjects deletes objects that a YurtIngress controls.
func (r *Reconciler) deleteObjects(ctx context.Context, owner types.UID, objects []plan.Object) []error {
	var errs []error
	for i := range objects {
		o := &objects[i]
		if o.Object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.Applier.Delete(ctx, o.Resource, o.Object, owner); err != nil {
			r.Metrics.CountWrite(o.Resource.Resource, "failed")
			errs = append(errs, err)
			continue
		}
		r.Metrics.CountWrite(o.Resource.Resource, "deleted")
		logging.FromContext(ctx).Info("Deleted object", zap.String(logging.KeyResource, o.Resource.Resource),
			zap.String("object", o.Object.GetName()))
	}
	return errs
}

// reportBlockedDeletion reports why an object that is being deleted still exists, and returns the error.
func (r *Reconciler) reportBlockedDeletion(ctx context.Context, object *v1alpha1.YurtIngress, err error) error {
	if apierrors.IsConflict(err) {
		return err
	}
	failure := failureOf(err)
	next := object.Status.DeepCopy()
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: failure.Reason, Message: failure.Message,
		ObservedGeneration: object.Generation,
	}
	next.ObjectConditions = status.ReplaceCondition(next.ObjectConditions, condition, r.Clock.Now())
	return errors.Join(err, r.reportStatus(ctx, object, *next))
}

// failureOf describes an error to users.
func failureOf(err error) *plan.Problem {
	if name, found := webhookOf(err); found {
		return profile.NewProblem(v1alpha1.ReasonAdmissionRejected,
			"admission webhook %s rejects a write: %v. If it is a webhook of OpenYurt's former operator, delete its configuration", name, err)
	}
	return profile.NewProblem(v1alpha1.ReasonNotWritten, "%v", err)
}

// reportStatus writes the status of a YurtIngress if it has changed, and creates Events for the change.
func (r *Reconciler) reportStatus(ctx context.Context, object *v1alpha1.YurtIngress, next v1alpha1.YurtIngressStatus) error {
	state := r.stateOf(object)
	r.Metrics.SetStatus(object.Name, &next)
	if status.Equal(&object.Status, &next) {
		return nil
	}
	stored, err := r.Writer.WriteStatus(ctx, object, &next)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the object is gone
	case err != nil:
		r.Metrics.CountWrite("yurtingresses", "failed")
		return fmt.Errorf("write status of YurtIngress %s: %w", object.Name, err)
	}
	r.Metrics.CountWrite("yurtingresses", "updated")
	known := len(state.wanted.ObjectConditions) > 0
	state.wanted, state.stored = next, *stored
	r.recordEvents(object, &object.Status, &next)
	if !known && len(stored.ObjectConditions) == 0 {
		r.Recorder.Event(objectReference(object), corev1.EventTypeWarning, v1alpha1.ReasonOutdatedCRD,
			"the CRD yurtingresses.apps.openyurt.io is of OpenYurt's operator, and the API server drops fields that it does not have: "+
				"apply the CRD of this release")
	}
	return nil
}

// recordEvents creates Events for pools whose state has changed.
func (r *Reconciler) recordEvents(object *v1alpha1.YurtIngress, before, next *v1alpha1.YurtIngressStatus) {
	for _, c := range status.Changes(before, next) {
		kind := corev1.EventTypeNormal
		if c.Failed {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Event(objectReference(object), kind, c.Reason, c.Message)
	}
}

func objectReference(object *v1alpha1.YurtIngress) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "YurtIngress", Name: object.Name, UID: object.UID,
		ResourceVersion: object.ResourceVersion,
	}
}
