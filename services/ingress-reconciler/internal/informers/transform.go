package informers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// trimManaged removes the fields that no package reads. Of an object of this program it removes the managed fields, as trimManagedFields
// does. Of a route of another owner it removes the managed fields, the copy that kubectl stores, and the status, unless an InferenceService
// owns the route: OME may have written it.
func trimManaged(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	switch {
	case !ok:
	case IsManaged(u):
		trimManagedFields(u)
	default:
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
		if _, owned := OwnerName(u); !owned {
			unstructured.RemoveNestedField(u.Object, "status")
		}
	}
	return obj, nil
}

// trimManagedFields removes the managed fields, unless this program set fields of the object by a create or update instead of an apply:
// then the next apply needs all managed fields to migrate them.
func trimManagedFields(u *unstructured.Unstructured) {
	if !slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == render.Manager && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
	}) {
		u.SetManagedFields(nil)
	}
}
