package informers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Typed returns a Transform to *T, without the parts that trim removes. An object that cannot be converted to T does not
// fail the list: only its identity is kept, as *metav1.PartialObjectMetadata, so that its existence is known.
func Typed[T any](trim func(*T)) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // already transformed, or the tombstone of a deleted object
		}
		typed := new(T)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) != nil {
			//nolint:nilerr // its identity is enough
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			}}, nil
		}
		trim(typed)
		return typed, nil
	}
}

// TrimMetadata removes managed fields and annotations.
func TrimMetadata[T metav1.Object](o T) {
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
}

// Metadata returns a Transform that keeps only the metadata, without annotations and managed fields.
func Metadata() cache.TransformFunc {
	return Typed[metav1.PartialObjectMetadata](TrimMetadata)
}
