package ome

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/controller"
)

// knativeService is a Knative Service with the fields that other clients read.
type knativeService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec map[string]any `json:"spec,omitempty"`
}

// serverless applies the Knative Service of a component in release 1.2, and reports it in three conditions
// (reconcilers/knative/ksvc_reconciler.go). AnnotationReady determines readiness. There is no Service of OME.
func (r *reconciler) serverless(ctx context.Context, s *inferenceService, c *component) error {
	if !r.cluster.serves(knativeServices) {
		return controller.Terminal("ServerlessModeRejected", errKnative)
	}
	live := &knativeService{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.name}}
	found, err := r.store.get(ctx, knativeServices, live)
	if err != nil {
		return err
	}
	if !found {
		wanted := &knativeService{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: c.name, Labels: c.labels(s), OwnerReferences: []metav1.OwnerReference{s.owner()},
			},
			Spec: map[string]any{"template": map[string]any{"metadata": map[string]any{}}},
		}
		if err := r.store.create(ctx, knativeServices, wanted); err != nil {
			return err
		}
	}
	status := corev1.ConditionTrue
	if listed, annotated := s.listed(AnnotationReady, c.role); annotated && !listed {
		status = corev1.ConditionFalse
	}
	prefix := map[Role]string{Engine: "Engine", Decoder: "Decoder", Router: "Router"}[c.role]
	for _, kind := range []string{prefix + "RouteReady", prefix + "ConfigurationReady", prefix + "Ready"} {
		s.Status.set(condition{Type: kind, Status: status}, r.now())
	}
	s.report(c.role, s.Status.Components[c.role])
	return nil
}

// admit sets the defaults of OME's mutating webhook (webhook/admission/isvc/inference_service_defaults.go). The emulator has no
// webhook, so a service has them from its first reconcile.
func admit(u *unstructured.Unstructured) {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	engine, hasEngine := spec[string(Engine)].(map[string]any)
	_, hasDecoder := spec[string(Decoder)].(map[string]any)
	size, _, _ := unstructured.NestedInt64(engine, "worker", "size")
	m := modeRaw
	switch {
	case hasEngine && hasDecoder:
		m = modeDisaggregated
	case engine["leader"] != nil && size > 0:
		m = modeMultiNode
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[annotationMode] == "" {
		annotations[annotationMode] = string(m)
		u.SetAnnotations(annotations)
	}
	for role, most := range map[Role]int64{Engine: 3, Decoder: 3, Router: 2} {
		if c, ok := spec[string(role)].(map[string]any); ok {
			if c["minReplicas"] == nil {
				c["minReplicas"] = int64(1)
			}
			if c["maxReplicas"] == nil {
				c["maxReplicas"] = most
			}
		}
	}
	if len(spec) > 0 {
		u.Object["spec"] = spec
	}
}
