//go:build system

package report

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned"
	llmdv1alpha1 "fairlead.dev/pkg/client/clientset/versioned/typed/llmd/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
)

const (
	chartCRD    = "../../../../charts/variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml"
	releasedCRD = "../crd/testdata/released-crd.yaml"
)

// startAPI starts an API server with a CRD.
func startAPI(t *testing.T, file string) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	_, err := c.Kubectl(t.Context(), "create", "-f", file)
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/variantautoscalings.llmd.ai", "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the handler of the API server hears of it later than kubectl
		_, err := variants(t, c).VariantAutoscalings(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, kubetest.Patience, 20*time.Millisecond)
	return c
}

func variants(t *testing.T, c *cluster.Cluster) llmdv1alpha1.LlmdV1alpha1Interface {
	t.Helper()
	client, err := clientset.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	return client.LlmdV1alpha1()
}

// create makes the object of input in the namespace default.
func create(t *testing.T, client llmdv1alpha1.VariantAutoscalingsGetter, name string) *v1alpha1.VariantAutoscaling {
	t.Helper()
	created, err := client.VariantAutoscalings("default").Create(t.Context(), &v1alpha1.VariantAutoscaling{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VariantAutoscalingSpec{
			ScaleTargetRef: v1alpha1.ScaleTargetReference{Kind: "Deployment", Name: "llama"}, ModelID: "meta/llama",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

func patchStatus(t *testing.T, client llmdv1alpha1.VariantAutoscalingsGetter, name, patch string) *v1alpha1.VariantAutoscaling {
	t.Helper()
	patched, err := client.VariantAutoscalings("default").Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "another"}, "status")
	require.NoError(t, err)
	return patched
}

// TestWrite writes to an API server.
func TestWrite(t *testing.T) {
	t.Parallel()
	client := variants(t, startAPI(t, chartCRD))
	writer := NewStatusWriter(client, owner)
	get := func(t *testing.T, name string) *v1alpha1.VariantAutoscaling {
		t.Helper()
		object, err := client.VariantAutoscalings("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return object
	}
	write := func(t *testing.T, in *StatusInput, want WriteResult) {
		t.Helper()
		got, err := writer.Write(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	const foreign = `{"type": "example.com/Approved", "status": "True", "reason": "Budget", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}`

	t.Run("a decision", func(t *testing.T) {
		in := input()
		in.Object = create(t, client, "decision")
		write(t, in, Written)
		stored := get(t, "decision")
		assert.Equal(t, mustEncode(json.Marshal(BuildStatus(in))), mustEncode(json.Marshal(stored.Status)), "the API server dropped or changed a field")
		assert.EqualValues(t, 1, stored.Status.ObservedGeneration)

		in.Object, in.Time = stored, in.Time.Add(time.Minute)
		write(t, in, Unchanged)
		assert.Equal(t, stored.ResourceVersion, get(t, "decision").ResourceVersion)

		in.Decision.Desired = 4
		write(t, in, Written)
		stored = get(t, "decision")
		assert.EqualValues(t, 4, *stored.Status.DesiredOptimizedAlloc.NumReplicas)
		assert.EqualValues(t, 1, stored.Status.DesiredOptimizedAlloc.LastUpdate.NumReplicasChanged)
		assert.True(t, slices.ContainsFunc(stored.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == owner && e.Subresource == "status"
		}), "%v", stored.ManagedFields)
	})
	t.Run("conditions of others", func(t *testing.T) {
		in := input()
		in.Object = create(t, client, "others")
		// Another program writes after the read.
		patchStatus(t, client, "others", `{"status": {"conditions": [`+foreign+`]}}`)
		write(t, in, Written)
		stored := get(t, "others")
		require.Len(t, stored.Status.Conditions, 9)
		assert.Equal(t, "Budget", meta.FindStatusCondition(stored.Status.Conditions, "example.com/Approved").Reason)
	})
	t.Run("deprecated fields", func(t *testing.T) {
		in := input()
		create(t, client, "deprecated")
		in.Object = patchStatus(t, client, "deprecated", `{"status": {"currentAlloc": {"accelerator": "A100", "numReplicas": 2, "load": {"arrivalRate": "1"}}, "desiredOptimizedAlloc": {"accelerator": "L40S"}}}`)
		write(t, in, Written)
		stored := get(t, "deprecated")
		assert.Equal(t, &v1alpha1.Allocation{NumReplicas: 2}, stored.Status.CurrentAlloc)
		assert.Equal(t, "A100", stored.Status.DesiredOptimizedAlloc.Accelerator)
		assert.EqualValues(t, 1, stored.Status.DesiredOptimizedAlloc.LastUpdate.NumReplicasChanged, "there were no desired replicas")
	})
	t.Run("a new spec", func(t *testing.T) {
		in := input()
		in.Object = create(t, client, "spec")
		_, err := client.VariantAutoscalings("default").Patch(t.Context(), "spec", types.MergePatchType, []byte(`{"spec": {"modelID": "other"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		write(t, in, Outdated)
		assert.Empty(t, get(t, "spec").Status)
	})
	t.Run("a new object of the same name", func(t *testing.T) {
		in := input()
		in.Object = create(t, client, "again")
		require.NoError(t, client.VariantAutoscalings("default").Delete(t.Context(), "again", metav1.DeleteOptions{}))
		write(t, in, Outdated)
		create(t, client, "again")
		write(t, in, Outdated)
		assert.Empty(t, get(t, "again").Status)
	})
	t.Run("deleted", func(t *testing.T) {
		in := input()
		in.Object = create(t, client, "deleted")
		in.Object.DeletionTimestamp = &metav1.Time{Time: start}
		write(t, in, Outdated)
		assert.Empty(t, get(t, "deleted").Status)
	})
	t.Run("every reason", func(t *testing.T) {
		in := input()
		create(t, client, "reasons")
		for _, reason := range []decision.Reason{
			decision.Stabilized, decision.SavingSmall, decision.Starting, decision.Bridging, decision.Saturated, decision.LimitBinding, decision.Retained, decision.Waking, decision.NoMetrics,
			decision.NoTargets, decision.NoCapacity, decision.Probing, decision.OutOfReach, decision.Excluded, decision.Optimal,
		} {
			in.Object, in.Decision.Reason = get(t, "reasons"), reason
			write(t, in, Written)
			assert.Equal(t, string(reason), get(t, "reasons").Status.Decision)
		}
	})
}

// TestWriteReleasedCRD writes to an API server with the CRD of a released version, which requires fields, and drops others.
func TestWriteReleasedCRD(t *testing.T) {
	t.Parallel()
	client := variants(t, startAPI(t, releasedCRD))
	writer := NewStatusWriter(client, owner)
	in := input()
	in.Object, in.Variant.Accelerator = create(t, client, "released"), ""
	got, err := writer.Write(t.Context(), in)
	require.NoError(t, err)
	assert.Equal(t, Written, got)
	stored, err := client.VariantAutoscalings("default").Get(t.Context(), "released", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 3, *stored.Status.DesiredOptimizedAlloc.NumReplicas)
	assert.Equal(t, "unknown", stored.Status.DesiredOptimizedAlloc.Accelerator)
	assert.Len(t, stored.Status.Conditions, 8)
}
