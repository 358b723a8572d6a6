package informers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// keepManager removes the managed fields, unless this program set fields of the object by a create or update instead of an apply:
// then the next apply needs all managed fields to migrate them.
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
