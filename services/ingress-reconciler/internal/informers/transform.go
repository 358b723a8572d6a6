package informers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// transform returns what turns objects that a dynamic informer reads into a type, less what trim takes away. One that has
// another form than the type is kept as its metadata alone: it is there, and says nothing.
func transform[T any](trim func(*T)) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // it is one already, or the name of one that is gone
		}
		typed, ok := convert[T](u)
		if !ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			}}, nil
		}
		trim(typed)
		return typed, nil
	}
}

func convert[T any](u *unstructured.Unstructured) (*T, bool) {
	typed := new(T)
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) == nil
}

// keepManager leaves who manages which fields only where some are ours by an update, and not by an apply: that is looked at
// when the object is applied for the first time, and all of it is needed then.
func keepManager(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	if !slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == render.Manager && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
	}) {
		u.SetManagedFields(nil)
	}
	return u, nil
}
