package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned/typed/llmd/v1alpha1"
)

// maxAttempts is the largest number of attempts to write a status. Each conflict means that another program wrote the object between a read
// and a write, which takes milliseconds. The next pass tries again.
const maxAttempts = 4

// desiredKey is the field of a status that is written whole with every write.
const desiredKey = "desiredOptimizedAlloc"

// WriteResult is what Write did.
type WriteResult string

// Results.
const (
	Unchanged WriteResult = "unchanged" // the status is as it should be
	Written   WriteResult = "written"
	Outdated  WriteResult = "outdated" // the object has gone, or its spec has changed since the decision: another pass follows
)

// StatusWriter writes statuses, by merge patches with the resourceVersion of the object that was read. So it neither overwrites what others
// have written in the meantime, nor depends on how the CRD of a cluster declares the list of conditions. A patch has only what differs.
type StatusWriter struct {
	client clientset.VariantAutoscalingsGetter
	owner  string // field manager
}

// NewStatusWriter returns a StatusWriter.
func NewStatusWriter(client clientset.VariantAutoscalingsGetter, owner string) *StatusWriter {
	return &StatusWriter{client: client, owner: owner}
}

// Write writes the status that follows from the input, if it differs. If another program has changed the object meanwhile, it reads it
// again and derives the status from that.
func (w *StatusWriter) Write(ctx context.Context, in *StatusInput) (WriteResult, error) {
	client := w.client.VariantAutoscalings(in.Object.Namespace)
	first := *in
	in = &first // later attempts have another object
	for attempt := 1; ; attempt++ {
		if in.Object.DeletionTimestamp != nil {
			return Outdated, nil
		}
		patch := patchOf(in.Object, BuildStatus(in))
		if patch == nil {
			return Unchanged, nil
		}
		_, err := client.Patch(ctx, in.Object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: w.owner}, "status")
		switch {
		case err == nil:
			return Written, nil
		case apierrors.IsNotFound(err):
			return Outdated, nil
		case !apierrors.IsConflict(err) || attempt == maxAttempts:
			return Unchanged, fmt.Errorf("patch status of VariantAutoscaling %s/%s: %w", in.Object.Namespace, in.Object.Name, err)
		}
		live, err := client.Get(ctx, in.Object.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return Outdated, nil
		case err != nil:
			return Unchanged, fmt.Errorf("get VariantAutoscaling %s/%s: %w", in.Object.Namespace, in.Object.Name, err)
		case live.UID != in.Object.UID || live.Generation != in.Object.Generation:
			return Outdated, nil
		}
		in.Object = live
	}
}

// patchOf returns the merge patch that gives an object a status, nil if it has it. Fields that differ are in it whole, with nulls for what
// is no longer in them.
func patchOf(object *v1alpha1.VariantAutoscaling, next v1alpha1.VariantAutoscalingStatus) []byte {
	before, after := mustEncode(json.Marshal(&object.Status)), mustEncode(json.Marshal(&next))
	changes := mustEncode(jsonpatch.CreateMergePatch(before, after))
	differing, full := mustEncode(decodeFields(changes)), mustEncode(decodeFields(after))
	if len(differing) == 0 {
		return nil
	}
	maps.DeleteFunc(full, func(key string, _ any) bool {
		_, differs := differing[key]
		return !differs && key != desiredKey
	})
	return mustEncode(json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
		"status":   json.RawMessage(mustEncode(jsonpatch.MergeMergePatches(changes, mustEncode(json.Marshal(full))))),
	}))
}

// decodeFields returns the fields of a JSON object.
func decodeFields(text []byte) (fields map[string]any, err error) {
	err = json.Unmarshal(text, &fields)
	return fields, err
}

// mustEncode returns a value without its error, which is unreachable: a status consists of strings, numbers and times.
func mustEncode[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("status is not a JSON object: %v", err))
	}
	return value
}
