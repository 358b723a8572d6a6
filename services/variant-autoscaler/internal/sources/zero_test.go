package sources_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// TestZeroUnreachable: a model that may have no replicas keeps one where the controller of its target does.
func TestZeroUnreachable(t *testing.T) {
	t.Parallel()
	variant := list("spec|variantCost", `"10"`, "spec|minReplicas", "0")
	set := append(variant[:len(variant):len(variant)], "spec|scaleTargetRef", "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: x}")
	lws := object(t, "\n- apiVersion: leaderworkerset.x-k8s.io/v1\n  kind: LeaderWorkerSet\n  metadata: {name: %[1]s}", "x", "", "metadata|ownerReferences", controlled)
	native := append(variant[:len(variant):len(variant)], "spec|scaleTargetRef", "{apiVersion: ome.io/v1alpha1, kind: InferenceReplica, name: x}")
	may := func(namespace, model string) bool { return namespace == "models" && model == "m" }
	for _, tt := range []struct {
		name    string
		objects []*unstructured.Unstructured
		writes  bool
		may     func(namespace, model string) bool
		want    int
	}{
		{"a Deployment of an InferenceService", list(deployment(t, "x", controlled), object(t, va, "v", "x", variant...)), false, may, 1},
		{"of KServe", list(deployment(t, "x", kserve), object(t, va, "v", "x", variant...)), false, may, 1},
		{"that leaves the replicas to others, and nobody writes them", list(deployment(t, "x", controlled, omeClass, leaves), object(t, va, "v", "x", variant...)), false, may, 1},
		{"and this program does", list(deployment(t, "x", controlled, omeClass, leaves), object(t, va, "v", "x", variant...)), true, may, 0},
		{"whose autoscaler follows", list(deployment(t, "x", controlled), object(t, va, "v", "x", variant...), object(t, plainScaledObject, "so", "x", "spec|triggers", query)), false, may, 0},
		{"a LeaderWorkerSet, whose autoscaler follows", list(lws, object(t, va, "v", "x", set...), object(t, plainHPA, "hpa", "x", "spec|metrics", external, "spec|scaleTargetRef|kind", "LeaderWorkerSet")), false, may, 1},
		{"a Deployment of nobody", list(object(t, va, "v", "x", variant...), deployment(t, "x", "[]")), false, may, 0},
		{"a native component of OME", list(object(t, va, "v", "x", native...)), false, may, 1},
		{"a model that never stops", list(object(t, va, "v", "x", native...)), false, func(string, string) bool { return false }, 0},
		{"nobody asks", list(object(t, va, "v", "x", native...)), false, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			read := func(string, snapshot.Target) (*scale.Scale, error) { return &scale.Scale{Replicas: 1}, nil }
			v := collect(t, sources.Params{CanStop: tt.may, Scale: read, Writes: tt.writes}, tt.objects...).Groups[0].Variants[0]
			assert.Nil(t, v.Problem)
			assert.Equal(t, tt.want, v.Min)
			if tt.want == 0 {
				assert.Empty(t, v.Notes)
				return
			}
			assert.Equal(t, snapshot.ZeroUnreachable, v.Notes[0].Reason)
			assert.Contains(t, v.Notes[0].Message, "for zero,")
		})
	}
}
