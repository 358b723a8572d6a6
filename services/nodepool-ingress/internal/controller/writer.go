package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/apply"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// Writer writes YurtIngresses, and lists their remaining objects.
type Writer struct {
	client    dynamic.Interface
	namespace string
}

// NewWriter returns a Writer.
func NewWriter(client dynamic.Interface, namespace string) *Writer {
	return &Writer{client: client, namespace: namespace}
}

// SetFinalizers replaces the finalizers of a YurtIngress. It fails with a conflict if the object has changed.
func (w *Writer) SetFinalizers(ctx context.Context, object *v1alpha1.YurtIngress, finalizers []string) error {
	return apply.PatchLatest(ctx, w.client.Resource(informers.YurtIngresses), object, v1alpha1.Manager,
		apply.Change{Metadata: map[string]any{"finalizers": finalizers}})
}

// WriteStatus replaces the status of a YurtIngress, and returns the status that the API server has stored: a CRD of OpenYurt's operator
// drops fields. It fails with a conflict if the object has changed.
func (w *Writer) WriteStatus(
	ctx context.Context, object *v1alpha1.YurtIngress, next *v1alpha1.YurtIngressStatus,
) (*v1alpha1.YurtIngressStatus, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.YurtIngress{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "YurtIngress"},
		ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion}, Status: *next,
	})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	delete(content, "spec")
	stored, err := w.client.Resource(informers.YurtIngresses).UpdateStatus(ctx, &unstructured.Unstructured{Object: content},
		metav1.UpdateOptions{FieldManager: v1alpha1.Manager})
	if err != nil {
		return nil, err
	}
	var typed v1alpha1.YurtIngress
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &typed); err != nil {
		return nil, fmt.Errorf("decode status: %w", err)
	}
	return &typed.Status, nil
}

// ListRemaining lists, past the caches, the objects of a YurtIngress: a replica that led before may have created one that no cache has yet.
func (w *Writer) ListRemaining(ctx context.Context, uid types.UID) ([]plan.Object, error) {
	var remaining []plan.Object
	selector := fmt.Sprintf("%s=%s,%s=%s", v1alpha1.LabelManagedBy, v1alpha1.Manager, v1alpha1.LabelOwner, uid)
	for _, k := range plan.Kinds() {
		client := dynamic.ResourceInterface(w.client.Resource(k.Resource))
		if k.Namespaced {
			client = w.client.Resource(k.Resource).Namespace(w.namespace)
		}
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if apierrors.IsNotFound(err) {
			continue // the API server does not have the kind
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.Resource.GroupResource(), err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			// The labels alone prove nothing: users who may write an object can write its labels.
			if owner, found := informers.FindOwner(u); found && owner.UID == uid {
				remaining = append(remaining, plan.Object{Resource: k.Resource, Object: u})
			}
		}
	}
	return remaining, nil
}

// withFinalizer returns the finalizers of an object with that of the operator.
func withFinalizer(object *v1alpha1.YurtIngress) []string {
	return append(slices.Clone(object.Finalizers), v1alpha1.Finalizer)
}

// withoutFinalizer returns the finalizers of an object without that of the operator.
func withoutFinalizer(object *v1alpha1.YurtIngress) []string {
	return slices.DeleteFunc(slices.Clone(object.Finalizers), func(f string) bool { return f == v1alpha1.Finalizer })
}
