// Package notify writes Events about changes of conditions that a user can act on: a new problem, or its end. Changes that wait are normal.
package notify

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Recorder writes Events.
type Recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// IsGood reports whether a reason is that of an object without a problem.
func IsGood(reason string) bool {
	return reason == string(gatewayv1.GatewayReasonProgrammed) || reason == v1alpha1.ReasonSynced ||
		reason == string(gatewayv1.GatewayClassReasonAccepted)
}

// RecordChange writes an Event about an object whose condition has changed, if a user can act on it.
func RecordChange(r Recorder, about *corev1.ObjectReference, before, after plan.Problem) {
	switch {
	case after.Reason == before.Reason || after.Reason == "" || after.Reason == v1alpha1.ReasonPending:
	case !IsGood(after.Reason):
		r.Event(about, corev1.EventTypeWarning, after.Reason, after.Message)
	case before.Reason != "" && before.Reason != v1alpha1.ReasonPending && !IsGood(before.Reason):
		r.Event(about, corev1.EventTypeNormal, after.Reason, after.Message)
	}
}
