package sources_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

const (
	plainHPA = `
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: %[1]s}
  spec: {maxReplicas: 4, scaleTargetRef: {kind: Deployment, name: %[2]s}, metrics: [{type: Resource, resource: {name: cpu}}]}`
	plainScaledObject = `
- apiVersion: keda.sh/v1alpha1
  kind: ScaledObject
  metadata: {name: %[1]s}
  spec: {scaleTargetRef: {name: %[2]s}, triggers: [{type: cpu}]}`

	external   = "[{type: External, external: {metric: {name: wva_desired_replicas}}}]"
	query      = "[{type: prometheus, metadata: {query: max(wva_desired_replicas)}}]"
	controlled = "[{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, controller: true}]"
	kserve     = "[{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, name: chat, controller: true}]"
	omeClass   = "metadata|annotations"
	leaves     = "{ome.io/autoscalerClass: external}"
)

// deployment returns a Deployment with owners.
func deployment(t *testing.T, name, owners string, fields ...string) *unstructured.Unstructured {
	t.Helper()
	return object(t, strings.ReplaceAll(deployments("NAME"), "NAME", "%[2]s"), "", name, append(fields, "metadata|ownerReferences", owners)...)
}

func TestOwnershipOf(t *testing.T) {
	t.Parallel()
	keda := "{scaledobject.keda.sh/name: so}"
	for _, tt := range []struct {
		name     string
		objects  []*unstructured.Unstructured
		follower string
		problem  string // its reason and a part of its message
	}{
		{"nobody", nil, "", ""},
		{"a HorizontalPodAutoscaler", list(object(t, plainHPA, "hpa", "x")), "", "TargetOwnedByAutoscaler HorizontalPodAutoscaler hpa scales Deployment x"},
		{"of another target", list(object(t, plainHPA, "hpa", "y")), "", ""},
		{"of another kind", list(object(t, plainHPA, "hpa", "x", "spec|scaleTargetRef|kind", "StatefulSet")), "", ""},
		{"of another namespace", list(object(t, plainHPA, "hpa", "x", "metadata|namespace", "other")), "", ""},
		{"one that is being deleted", list(object(t, plainHPA, "hpa", "x", "metadata|deletionTimestamp", "'2026-01-01T00:00:00Z'", "metadata|finalizers", "[x]")), "", "TargetOwnedByAutoscaler"},
		{"one that follows", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external)), "HorizontalPodAutoscaler hpa", ""},
		{"one that is the variant", list(object(t, hpa, "hpa", "x")), "HorizontalPodAutoscaler hpa", ""},
		{"one that follows, and one that does not", list(object(t, hpa, "a", "x"), object(t, plainHPA, "b", "x")), "", "TargetOwnedByAutoscaler HorizontalPodAutoscaler b"},
		{"a ScaledObject", list(object(t, plainScaledObject, "so", "x")), "", "TargetOwnedByAutoscaler ScaledObject so"},
		{"and its HorizontalPodAutoscaler", list(object(t, plainScaledObject, "so", "x"), object(t, plainHPA, "a", "x", "metadata|labels", keda)), "", "TargetOwnedByAutoscaler ScaledObject so"},
		{"a ScaledObject that follows", list(object(t, plainScaledObject, "so", "x", "spec|triggers", query), object(t, plainHPA, "a", "x", "metadata|labels", keda)), "ScaledObject so", ""},
		{"KEDA's HorizontalPodAutoscaler alone", list(object(t, plainHPA, "a", "x", "metadata|labels", keda)), "", "TargetOwnedByAutoscaler HorizontalPodAutoscaler a"},
		{"an InferenceService of KServe", list(deployment(t, "x", kserve)), "", "TargetOwnedByController InferenceService chat of group \"serving.kserve.io\" controls Deployment x"},
		{"with OME's annotation", list(deployment(t, "x", kserve, omeClass, leaves)), "", "TargetOwnedByController InferenceService"},
		{"an InferenceService of OME", list(deployment(t, "x", controlled)), "", "UnsupportedTarget OME has the replicas of Deployment x: set the annotation ome.io/autoscalerClass: external on InferenceService chat"},
		{"of another class", list(deployment(t, "x", controlled, omeClass, "{ome.io/autoscalerClass: hpa}")), "", "UnsupportedTarget"},
		{"that leaves the replicas to others", list(deployment(t, "x", controlled, omeClass, leaves)), "", ""},
		{"and OME's autoscaler, which OME will delete", list(deployment(t, "x", controlled, omeClass, leaves), object(t, plainHPA, "x", "x")), "", "TargetOwnedByAutoscaler HorizontalPodAutoscaler x scales Deployment x, and does not follow this program: delete it, or"},
		{"OME's autoscaler", list(deployment(t, "x", controlled), object(t, plainHPA, "x", "x")), "", "delete it (OME does with the annotation ome.io/autoscalerClass: external on InferenceService chat, if the autoscaler is OME's), or"},
		{"an owner that does not control", list(deployment(t, "x", strings.Replace(controlled, ", controller: true", "", 1))), "", ""},
		{"an InferenceService with an autoscaler that follows", list(deployment(t, "x", controlled), object(t, hpa, "hpa", "x")), "HorizontalPodAutoscaler hpa", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			world, err := informers.Declare("").Read(kit.Snapshot{Objects: tt.objects})
			require.NoError(t, err)
			got := sources.OwnershipOf(world, "models", snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"})
			assert.Equal(t, tt.follower, got.Follower)
			if tt.problem == "" {
				assert.Nil(t, got.Problem)
				return
			}
			require.NotNil(t, got.Problem)
			assert.Contains(t, got.Problem.Reason+" "+got.Problem.Message, tt.problem)
		})
	}
}

// TestLeaderWorkerSetOfOME: OME writes its replicas whatever the annotation says.
func TestLeaderWorkerSetOfOME(t *testing.T) {
	t.Parallel()
	lws := object(t, "\n- apiVersion: leaderworkerset.x-k8s.io/v1\n  kind: LeaderWorkerSet\n  metadata: {name: %[1]s}", "x", "",
		"metadata|ownerReferences", controlled, omeClass, leaves)
	world, err := informers.Declare("").Read(kit.Snapshot{Objects: list(lws)})
	require.NoError(t, err)
	p := sources.OwnershipOf(world, "models", snapshot.Target{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet", Name: "x"}).Problem
	require.NotNil(t, p)
	assert.Equal(t, snapshot.UnsupportedTarget, p.Reason)
	assert.Contains(t, p.Message, "from minReplicas of InferenceService chat: set them there")
}

// TestScalersAreControlled: objects of other kinds are made to be scaled, whatever controls them.
func TestScalersAreControlled(t *testing.T) {
	t.Parallel()
	world, err := informers.Declare("").Read(kit.Snapshot{Objects: list(deployment(t, "x", controlled))})
	require.NoError(t, err)
	for _, target := range []snapshot.Target{
		{APIVersion: "disaggregatedset.x-k8s.io/v1", Kind: "DisaggregatedSetRoleScaler", Name: "x"}, {APIVersion: "example.com/v1", Kind: "Deployment", Name: "x"},
	} {
		assert.Empty(t, sources.OwnershipOf(world, "models", target))
	}
}

// TestOwnedTargets: a target that something else scales is a problem only while this program writes replicas. Others take part as before.
func TestOwnedTargets(t *testing.T) {
	t.Parallel()
	cost := list("spec|variantCost", `"10"`)
	objects := append(parse(t, deployments("x", "free", "z")),
		object(t, va, "a", "x", cost...), object(t, plainHPA, "hpa", "x"), object(t, va, "b", "free", cost...), object(t, hpa, "c", "z"),
		object(t, va, "d", "ome", cost...), deployment(t, "ome", controlled),
		object(t, va, "e", "external", cost...), deployment(t, "external", controlled, omeClass, leaves))
	world := func(writes bool) []string { return describe(collect(t, sources.Params{Writes: writes}, objects...)) }
	assert.Equal(t, list(
		"models//m va/a 1..0 10000000 variantCost TargetOwnedByAutoscaler", "models//m va/b 1..0 10000000 variantCost",
		"models//m hpa/c 1..4 10000000 variantCost", "models//m va/d 1..0 10000000 variantCost UnsupportedTarget",
		"models//m va/e 1..0 10000000 variantCost",
	), world(true))
	for _, line := range world(false) {
		assert.NotContains(t, line, "TargetOwned")
		assert.NotContains(t, line, "UnsupportedTarget")
	}
}

// TestIdleAutoscalers: a HorizontalPodAutoscaler acts on a target without replicas only with a minimum of 0.
func TestIdleAutoscalers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		objects []*unstructured.Unstructured
		want    string
	}{
		{"no minimum", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external)), "HorizontalPodAutoscaler hpa"},
		{"a minimum of one", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external, "spec|minReplicas", "1")), "HorizontalPodAutoscaler hpa"},
		{"a minimum of zero", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external, "spec|minReplicas", "0")), ""},
		{"a minimum of zero, and it is disabled", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external, "spec|minReplicas", "0",
			"status|conditions", "[{type: AbleToScale, status: 'True', reason: SucceededGetScale}, {type: ScalingActive, status: 'False', reason: ScalingDisabled}]")), "HorizontalPodAutoscaler hpa"},
		{"a minimum of zero, and no metric", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external, "spec|minReplicas", "0",
			"status|conditions", "[1, {type: ScalingActive, status: 'False', reason: FailedGetExternalMetric}]")), ""},
		{"one that does not follow", list(object(t, plainHPA, "hpa", "x")), ""},
		{"KEDA", list(object(t, plainScaledObject, "so", "x", "spec|triggers", query)), ""},
		{"KEDA's", list(object(t, plainHPA, "hpa", "x", "spec|metrics", external, "metadata|labels", "{scaledobject.keda.sh/name: so}")), ""},
		{"KEDA beside it", list(object(t, plainScaledObject, "so", "x", "spec|triggers", query), object(t, plainHPA, "hpa", "x", "spec|metrics", external)), ""},
		{"nobody", nil, ""},
	} {
		world, err := informers.Declare("").Read(kit.Snapshot{Objects: tt.objects})
		require.NoError(t, err)
		got := sources.OwnershipOf(world, "models", snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"})
		assert.Equal(t, tt.want != "", got.Idle, tt.name)
		if tt.want != "" {
			assert.Equal(t, tt.want, got.Follower, tt.name)
		}
	}
}
