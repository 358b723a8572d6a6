package ome

import (
	"context"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationAutoscaler has the class of the autoscaler that OME makes for components in mode RawDeployment. With the class external it
// makes none, and keeps the replicas that another program writes: minReplicas has no effect then. Otherwise minReplicas is the minimum of
// OME's own autoscaler, at least 1 (reconcilers/autoscaler, hpa and deployment of 1.2). Of the other classes, the emulator has hpa only.
const (
	AnnotationAutoscaler = "ome.io/autoscalerClass"
	ClassExternal        = "external"
)

const utilization = 80 // percent of the CPU, OME's default

// externalScaling reports whether OME leaves the replicas of a component to another program.
func (c *component) externalScaling(s *inferenceService) bool {
	return c.annotations(s)[AnnotationAutoscaler] == ClassExternal
}

// buildAutoscaler returns OME's autoscaler of a component.
func buildAutoscaler(s *inferenceService, c *component) *autoscalingv2.HorizontalPodAutoscaler {
	low, percent := max(c.desired(), 1), int32(utilization)
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, Namespace: s.Namespace, Labels: c.labels(s), Annotations: c.annotations(s),
			OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: c.name},
			MinReplicas:    &low, MaxReplicas: max(c.MaxReplicas, low),
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
				},
			}},
		},
	}
}

// applyAutoscaler creates, updates or deletes the autoscaler of a component. It does not check who created one with that name, as OME 1.2.
func (r *reconciler) applyAutoscaler(ctx context.Context, s *inferenceService, c *component) error {
	if c.mode != modeRaw {
		return nil
	}
	wanted := buildAutoscaler(s, c)
	live := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	found, err := r.store.get(ctx, autoscalers, live)
	switch {
	case err != nil:
		return err
	case c.externalScaling(s) && found:
		return r.store.delete(ctx, autoscalers, wanted.Namespace, wanted.Name)
	case c.externalScaling(s):
		return nil
	case !found:
		return r.store.create(ctx, autoscalers, wanted)
	case apiequality.Semantic.DeepEqual(live.Spec, wanted.Spec):
		return nil
	}
	wanted.ResourceVersion = live.ResourceVersion
	return r.store.update(ctx, autoscalers, wanted)
}
