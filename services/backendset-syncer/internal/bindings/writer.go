package bindings

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned/typed/fairlead/v1alpha1"
)

// Writer writes bindings. It fails with a conflict if the binding has changed since it was read.
type Writer struct {
	client clientset.BackendSetBindingsGetter
	owner  string // field manager
}

// NewWriter returns a Writer.
func NewWriter(client clientset.BackendSetBindingsGetter, owner string) *Writer {
	return &Writer{client: client, owner: owner}
}

// UpdateStatus writes the status of a binding.
func (w *Writer) UpdateStatus(ctx context.Context, b *v1alpha1.BackendSetBinding) error {
	_, err := w.client.BackendSetBindings(b.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{FieldManager: w.owner})
	return err // the caller says what it writes
}

// UpdateMetadata writes the metadata of a binding.
func (w *Writer) UpdateMetadata(ctx context.Context, b *v1alpha1.BackendSetBinding) error {
	_, err := w.client.BackendSetBindings(b.Namespace).Update(ctx, b, metav1.UpdateOptions{FieldManager: w.owner})
	return err // the caller says what it writes
}

// objectReference returns a reference to a binding.
func objectReference(b *v1alpha1.BackendSetBinding) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "BackendSetBinding", Namespace: b.Namespace, Name: b.Name, UID: b.UID,
		ResourceVersion: b.ResourceVersion,
	}
}
