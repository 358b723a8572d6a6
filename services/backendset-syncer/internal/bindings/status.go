package bindings

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/conditions"
	"fairlead.dev/services/backendset-syncer/internal/actor"
)

// writeStatus writes the status of a binding, if it differs.
func (r *Reconciler) writeStatus(ctx context.Context, b *v1alpha1.BackendSetBinding, d *Decision, report *actor.Report) error {
	next := b.DeepCopy()
	next.Status = r.buildStatus(b, d, report)
	after := meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ConditionSynced)
	r.p.Meter.SetReason(nameOf(b), after.Reason)
	if reflect.DeepEqual(next.Status, b.Status) {
		return nil
	}
	if err := r.p.Writer.UpdateStatus(ctx, next); err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	before := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSynced)
	if deservesEvent(before, after) {
		kind := corev1.EventTypeWarning
		if after.Status == metav1.ConditionTrue {
			kind = corev1.EventTypeNormal
		}
		r.p.Recorder.Event(objectReference(b), kind, after.Reason, after.Message)
	}
	return nil
}

// deservesEvent reports whether a user can act on a change of the condition: changes that wait are normal.
func deservesEvent(before, after *metav1.Condition) bool {
	if after.Reason == v1alpha1.ReasonPending {
		return false
	}
	if after.Reason == v1alpha1.ReasonSynced {
		return before != nil && before.Reason != v1alpha1.ReasonSynced && before.Reason != v1alpha1.ReasonPending
	}
	return before == nil || before.Reason != after.Reason
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
	c := conditions.Set(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSynced), buildCondition(b, d, report),
		r.p.Clock.Now())
	i := slices.IndexFunc(next.Conditions, func(x metav1.Condition) bool { return x.Type == c.Type })
	if i < 0 {
		next.Conditions = append(next.Conditions, c)
	} else {
		next.Conditions[i] = c
	}
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
