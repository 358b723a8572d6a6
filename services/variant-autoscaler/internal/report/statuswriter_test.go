package report

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/pkg/client/clientset/versioned/fake"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const owner = "variant-autoscaler"

// TestPatchIsWhole shows that each patch has the whole desired allocation: some released CRDs require its fields, and refuse a patch of a
// part where there is nothing yet.
func TestPatchIsWhole(t *testing.T) {
	t.Parallel()
	in := input()
	in.Object.Status = BuildStatus(in)
	in.Variant.Now = 3
	var patch struct {
		Metadata metav1.ObjectMeta
		Status   map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(patchOf(in.Object, BuildStatus(in)), &patch))
	assert.Equal(t, metav1.ObjectMeta{ResourceVersion: "1"}, patch.Metadata)
	assert.JSONEq(t, `{"numReplicas": 3}`, string(patch.Status["currentAlloc"]))
	assert.JSONEq(t, `{"lastRunTime": "2026-03-01T12:00:00Z", "accelerator": "A100", "numReplicas": 3,
		"lastUpdate": {"updateTime": "2026-03-01T12:00:00Z", "numReplicasChanged": 1, "reason": "Optimal"}}`, string(patch.Status[desiredKey]))
	assert.Len(t, patch.Status, 2)
}

// TestPatchRemoves shows that fields that a status no longer has are removed.
func TestPatchRemoves(t *testing.T) {
	t.Parallel()
	in := input()
	in.Object.Status = BuildStatus(in)
	in.Object.Status.CurrentAlloc.Load = &v1alpha1.LoadProfile{ArrivalRate: "1"}
	in.Decision.Predicted, in.Decision.Desired = nil, 4
	var patch struct{ Status map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(patchOf(in.Object, BuildStatus(in)), &patch))
	assert.JSONEq(t, `null`, string(patch.Status["predicted"]))
	assert.JSONEq(t, `{"numReplicas": 2, "load": null}`, string(patch.Status["currentAlloc"]))
}

// TestWriteFailures has errors of the API server.
func TestWriteFailures(t *testing.T) {
	t.Parallel()
	resource := v1alpha1.Resource("variantautoscalings")
	conflict := apierrors.NewConflict(resource, "llama-a100", errors.New("changed"))
	tests := []struct {
		name      string
		conflicts int
		patch     error
		get       error
		want      WriteResult
		err       string
		patches   int
	}{
		{name: "conflicts", conflicts: maxAttempts - 1, want: Written, patches: maxAttempts},
		{name: "too many conflicts", conflicts: maxAttempts, want: Unchanged,
			err: "patch status of VariantAutoscaling models/llama-a100: Operation cannot be fulfilled", patches: maxAttempts},
		{name: "gone", patch: apierrors.NewNotFound(resource, "llama-a100"), want: Outdated, patches: 1},
		{name: "gone after a conflict", conflicts: 1, get: apierrors.NewNotFound(resource, "llama-a100"), want: Outdated, patches: 1},
		{name: "no answer after a conflict", conflicts: 1, get: errors.New("refused"), want: Unchanged, err: "get VariantAutoscaling models/llama-a100: refused", patches: 1},
		{name: "forbidden", patch: apierrors.NewForbidden(resource, "llama-a100", nil), want: Unchanged, err: "patch status of VariantAutoscaling models/llama-a100", patches: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input()
			kube := fake.NewSimpleClientset(in.Object.DeepCopy())
			if tt.patch != nil {
				kubetest.FailAlways(kube, "patch", "variantautoscalings", tt.patch)
			}
			kubetest.FailNext(kube, tt.conflicts, "patch", "variantautoscalings", conflict)
			if tt.get != nil {
				kubetest.FailAlways(kube, "get", "variantautoscalings", tt.get)
			}
			before := in.Object
			got, err := NewStatusWriter(kube.LlmdV1alpha1(), owner).Write(t.Context(), in)
			assert.Equal(t, tt.want, got)
			assert.Same(t, before, in.Object, "Write changed its input")
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			assert.Len(t, kubetest.Writes(kube), tt.patches)
		})
	}
}

// TestWriteNothing shows that an unchanged decision costs no request, however often it is made.
func TestWriteNothing(t *testing.T) {
	t.Parallel()
	in := input()
	kube := fake.NewSimpleClientset()
	kube.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		t.Errorf("unexpected request: %s", a.GetVerb())
		return false, nil, nil
	})
	in.Object.Status = BuildStatus(in)
	for range 3 {
		in.Time = in.Time.Add(time.Hour)
		got, err := NewStatusWriter(kube.LlmdV1alpha1(), owner).Write(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, Unchanged, got)
	}
	in.Load = &snapshot.Load{State: snapshot.Found, Rate: 6_000_000}
	in.Time = in.Time.Add(time.Minute)
	in.Decision.Predicted = &decision.Predicted{TTFT: 1240, ITL: 31, Utilization: 0.9}
	in.Object.Status.DesiredOptimizedAlloc.LastRunTime = &metav1.Time{Time: in.Time.Add(-time.Minute)}
	got, err := NewStatusWriter(kube.LlmdV1alpha1(), owner).Write(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, Unchanged, got, "figures alone were written within a minute")
}
