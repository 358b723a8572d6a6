package bindings

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/conditions"
	"fairlead.dev/pkg/events"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/notify"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// writeStatus writes the status of a binding, if it differs.
func (r *Reconciler) writeStatus(ctx context.Context, b *v1alpha1.BackendSetBinding, d *Decision, report *actor.Report) error {
	next := b.DeepCopy()
	next.Status = r.buildStatus(b, d, report)
	after := meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ConditionSynced)
	r.p.Reasons.Set(nameOf(b), after.Reason)
	if reflect.DeepEqual(next.Status, b.Status) {
		return nil
	}
	if err := r.updateStatus(ctx, next); err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	before := ptr.Deref(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSynced), metav1.Condition{})
	notify.RecordChange(r.p.Recorder, events.Reference(v1alpha1.SchemeGroupVersion.WithKind("BackendSetBinding"), b),
		plan.Problem{Reason: before.Reason}, plan.Problem{Reason: after.Reason, Message: after.Message})
	return nil
}

// updateStatus writes the status of a binding. It fails with a conflict if the binding has changed since it was read.
func (r *Reconciler) updateStatus(ctx context.Context, b *v1alpha1.BackendSetBinding) error {
	_, err := r.p.Client.BackendSetBindings(b.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{FieldManager: r.p.Owner})
	return err // the caller says what it writes
}

// buildStatus returns the status of a binding.
func (r *Reconciler) buildStatus(b *v1alpha1.BackendSetBinding, d *Decision, report *actor.Report) v1alpha1.BackendSetBindingStatus {
	next := *b.Status.DeepCopy()
	next.ObservedGeneration = b.Generation
	if !d.owns && d.configured {
		next.HeldSince, next.Backends = nil, nil
	}
	if report != nil && report.Known && b.Status.HeldSince != nil {
		next.Backends = &v1alpha1.BackendCounts{
			Active: int32(report.Active), Draining: int32(report.Draining), Waiting: int32(report.Waiting),
		}
	}
	before := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSynced)
	meta.SetStatusCondition(&next.Conditions, conditions.Set(before, buildCondition(b, d, report), r.p.Clock.Now()))
	return next
}

// buildCondition returns the condition of a binding: what is wrong with it, or what the actor reports.
func buildCondition(b *v1alpha1.BackendSetBinding, d *Decision, report *actor.Report) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: b.Generation, Reason: d.reason,
		Message: d.message,
	}
	switch {
	case !d.writes || d.reason != "" && (report == nil || report.Synced || report.HoldsVanished):
	case report == nil:
		c.Reason, c.Message = v1alpha1.ReasonPending, "the change waits for the load balancer"
	default:
		c.Reason, c.Message = report.Reason, report.Message
		if report.Synced {
			c.Status = metav1.ConditionTrue
		}
	}
	return c
}
