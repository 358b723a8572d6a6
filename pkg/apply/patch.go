package apply

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Change has the fields to replace, either of the metadata or of the status.
type Change struct{ Metadata, Status map[string]any }

// PatchLatest changes an object. It fails with a conflict if live is not its latest version, or if it was recreated.
func PatchLatest(
	ctx context.Context, resource dynamic.NamespaceableResourceInterface, live metav1.Object, manager string, change Change,
) error {
	metadata := map[string]any{"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion()}
	for key, value := range change.Metadata {
		metadata[key] = value
	}
	patch := map[string]any{"metadata": metadata}
	var subresources []string
	if change.Status != nil {
		patch["status"], subresources = change.Status, []string{"status"}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	client := dynamic.ResourceInterface(resource)
	if live.GetNamespace() != "" {
		client = resource.Namespace(live.GetNamespace())
	}
	_, err = client.Patch(ctx, live.GetName(), types.MergePatchType, text, metav1.PatchOptions{FieldManager: manager}, subresources...)
	return err
}
