package discovery

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

// stripPod keeps only the fields of a pod that endpoints need. It does not change other objects, including tombstones.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            pod.Labels,
		},
		Status: corev1.PodStatus{PodIP: pod.Status.PodIP},
	}
	for _, name := range podAnnotations {
		if value, ok := pod.Annotations[name]; ok {
			if stripped.Annotations == nil {
				stripped.Annotations = map[string]string{}
			}
			stripped.Annotations[name] = value
		}
	}
	if c := readyCondition(pod); c != nil {
		stripped.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
	}
	return stripped, nil
}

// samePod reports whether two states of a stripped pod are equal for the picker.
func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations) && a.Status.PodIP == b.Status.PodIP &&
		slices.Equal(a.Status.Conditions, b.Status.Conditions)
}

// samePool reports whether two states of a pool are equal for the picker: it ignores the status.
func samePool(a, b *inferencev1.InferencePool) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// onChange calls changed with the old and the new state of an object, for every event except updates without a relevant
// change. A missing or unknown state is nil.
func onChange[T any](changed func(before, after *T), same func(a, b *T) bool) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { changed(nil, objectOf[T](object)) },
		UpdateFunc: func(a, b any) {
			before, after := objectOf[T](a), objectOf[T](b)
			if before == nil || after == nil || !same(before, after) {
				changed(before, after)
			}
		},
		DeleteFunc: func(object any) { changed(objectOf[T](object), nil) },
	}
}

// objectOf returns the object of an event, or nil. A tombstone has the last known state.
func objectOf[T any](object any) *T {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	typed, _ := object.(*T)
	return typed
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}
