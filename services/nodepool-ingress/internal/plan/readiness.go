package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// Readiness is the state of a pool, derived from its Deployment.
type Readiness struct {
	Exists        bool
	Ready         bool
	Failed        bool // it does not become ready until a user acts
	Reason        string
	Message       string
	Image         string // of the first container
	Replicas      int32
	ReadyReplicas int32
	Revision      string // of the pool, when the Deployment was applied
}

// EvaluateReadiness returns the readiness of a pool with a Deployment, which may be nil.
func EvaluateReadiness(u *unstructured.Unstructured) Readiness {
	if u == nil {
		return Readiness{Reason: v1alpha1.ReasonProgressing, Message: "the Deployment does not exist yet"}
	}
	r := Readiness{Exists: true, Reason: v1alpha1.ReasonProgressing, Revision: u.GetAnnotations()[v1alpha1.AnnotationRevision]}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
		r.Message = fmt.Sprintf("Deployment %s cannot be read: %v", u.GetName(), err)
		return r
	}
	r.Replicas, r.ReadyReplicas = 1, d.Status.ReadyReplicas
	if d.Spec.Replicas != nil {
		r.Replicas = *d.Spec.Replicas
	}
	if len(d.Spec.Template.Spec.Containers) > 0 {
		r.Image = d.Spec.Template.Spec.Containers[0].Image
	}
	if d.DeletionTimestamp != nil {
		r.Message = fmt.Sprintf("Deployment %s is being deleted", d.Name)
		return r
	}
	r.evaluateStatus(&d)
	return r
}

func (r *Readiness) evaluateStatus(d *appsv1.Deployment) {
	s := &d.Status
	if s.ObservedGeneration < d.Generation { // the rest of the status is about an earlier specification
		r.Message = fmt.Sprintf("Deployment %s has changed", d.Name)
		return
	}
	if s.UpdatedReplicas == r.Replicas && s.Replicas == r.Replicas && s.AvailableReplicas == r.Replicas {
		r.Ready, r.Reason, r.Message = true, v1alpha1.ReasonReady, fmt.Sprintf("%d of %d replicas are available", s.AvailableReplicas,
			r.Replicas)
		if r.Replicas == 0 {
			r.Reason, r.Message = v1alpha1.ReasonScaledToZero, "the pool has no replicas, as the specification says"
		}
		return
	}
	r.Message = fmt.Sprintf("%d of %d replicas are up to date, %d are available", s.UpdatedReplicas, r.Replicas, s.AvailableReplicas)
	r.evaluateConditions(s.Conditions)
}

// evaluateConditions looks for conditions that last until a user acts.
func (r *Readiness) evaluateConditions(conditions []appsv1.DeploymentCondition) {
	message := r.Message
	for i := range conditions {
		c := &conditions[i]
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			r.Failed, r.Reason, r.Message = true, v1alpha1.ReasonReplicaFailure, message+": "+c.Message
			return
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded":
			r.Failed, r.Reason, r.Message = true, v1alpha1.ReasonDeadlineExceeded, message+": "+c.Message
		}
	}
}
