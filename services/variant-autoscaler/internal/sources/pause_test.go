package sources_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// TestPaused: while KEDA does not scale a target, which has three replicas here, its variant gets those that the target keeps.
func TestPaused(t *testing.T) {
	t.Parallel()
	key := func(suffix string) string { return "metadata|annotations|autoscaling.keda.sh~1paused" + suffix }
	const replicas = "spec|replicas"
	for _, tt := range []struct {
		name string
		set  []string // of the ScaledObject
		give []string // of the Deployment
		want string
	}{
		{"not", nil, nil, "1..9 10000000 variantCost"},
		{"not paused", list(key(""), `"false"`), nil, "1..9 10000000 variantCost"},
		{"paused", list(key(""), `"true"`), nil, "3..3 10000000 variantCost note:Paused"},
		{"paused, by a text that is no boolean", list(key(""), `"yes"`), nil, "3..3 10000000 variantCost note:Paused"},
		{"paused without replicas", list(key(""), `"true"`), list(replicas, "0"), "0..9 10000000 variantCost Paused"},
		{"paused with replicas", list(key("-replicas"), `"12"`), nil, "12..12 10000000 variantCost note:Paused"},
		{"paused with no replicas", list(key("-replicas"), `"0"`), nil, "0..9 10000000 variantCost Paused"},
		{"paused with too many replicas", list(key("-replicas"), `"2147483647"`), nil, "100000..100000 10000000 variantCost note:Paused"},
		{"paused with a number of replicas that KEDA does not read", list(key("-replicas"), `"99999999999"`), nil, "3..3 10000000 variantCost note:Paused"},
		{"paused with fewer than none", list(key("-replicas"), `"-4"`), nil, "3..3 10000000 variantCost note:Paused"},
		{"nothing is added", list(key("-scale-out"), `"true"`), nil, "1..3 10000000 variantCost note:Paused"},
		{"nothing is added to none", list(key("-scale-out"), `"true"`), list(replicas, "0"), "0..9 10000000 variantCost Paused"},
		{"nothing is removed", list(key("-scale-in"), `"true"`), nil, "3..9 10000000 variantCost note:Paused"},
		{"nothing is removed, above the maximum", list(key("-scale-in"), `"true"`), list(replicas, "12"), "12..12 10000000 variantCost note:Paused"},
		{"neither", list(key("-scale-in"), `"true"`, key("-scale-out"), `"true"`), nil, "3..3 10000000 variantCost note:Paused"},
		{"a schedule has no effect", list(key(""), `"true"`, "metadata|annotations|fairlead.dev~1schedule", `'[{"cron": "0 9 * * *", "duration": "1h", "minReplicas": 5}]'`), nil, "3..3 10000000 variantCost note:Paused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			so := object(t, scaledObject, "a", "x", append(list("spec|minReplicaCount", "1", "spec|maxReplicaCount", "9", "metadata|annotations|llm-d.ai~1variant-cost", `"10"`), tt.set...)...)
			got := collect(t, sources.Params{}, so, object(t, deployments("%[2]s"), "", "x", tt.give...))
			assert.Equal(t, list("models//m so/a "+tt.want), describe(got))
			assert.Empty(t, got.Groups[0].Variants[0].Schedule)
		})
	}
}

// TestPausedFollower: a ScaledObject that follows a VariantAutoscaling counts, and one that does not has another problem.
func TestPausedFollower(t *testing.T) {
	t.Parallel()
	variant := object(t, va, "v", "x", "spec|variantCost", `"10"`, "spec|minReplicas", "0")
	follower := func(set ...string) *unstructured.Unstructured {
		return object(t, plainScaledObject, "so", "x", append(set, "metadata|annotations", `{autoscaling.keda.sh/paused-replicas: "0"}`)...)
	}
	x := parse(t, deployments("x"))[0]
	assert.Equal(t, list("models//m va/v 0..0 10000000 variantCost Paused"), describe(collect(t, sources.Params{}, variant, x, follower("spec|triggers", query))))
	assert.Equal(t, list("models//m va/v 0..0 10000000 variantCost"), describe(collect(t, sources.Params{}, variant, x, follower())))
}
