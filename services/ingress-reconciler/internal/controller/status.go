package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// StatusPatcher patches the status of InferenceServices.
type StatusPatcher struct{ client dynamic.Interface }

// NewStatusPatcher returns a StatusPatcher.
func NewStatusPatcher(client dynamic.Interface) *StatusPatcher { return &StatusPatcher{client: client} }

// PatchStatus applies a JSON patch to the status.
func (p *StatusPatcher) PatchStatus(ctx context.Context, name cache.ObjectName, patch []byte) error {
	_, err := p.client.Resource(isvc.Resource).Namespace(name.Namespace).
		Patch(ctx, name.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: render.Manager}, "status")
	return err
}
