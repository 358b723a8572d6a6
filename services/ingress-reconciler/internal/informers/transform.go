package informers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// trimManaged removes what no package reads: of an object of this program what keepManager removes, of a route of somebody else the managed
// fields, the copy that kubectl keeps, and the status, unless an InferenceService owns it: then it may be OME's.
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
