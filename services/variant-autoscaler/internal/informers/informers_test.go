package informers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object returns an object as the API has it.
func object(tb testing.TB, manifest string) *unstructured.Unstructured {
	tb.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	require.NoError(tb, err)
	u := &unstructured.Unstructured{}
	require.NoError(tb, u.UnmarshalJSON(text))
	return u
}

func read[T any](tb testing.TB, kind kit.Kind, manifest string) *T {
	tb.Helper()
	obj, err := kind.Transform(object(tb, manifest))
	require.NoError(tb, err)
	typed, ok := obj.(*T)
	require.True(tb, ok)
	return typed
}

// kindOf returns the kind of a resource, in its preferred version.
func kindOf(groupResource string) kit.Kind {
	kinds := informers.Declare("").EnabledKinds()
	return kinds[slices.IndexFunc(kinds, func(k kit.Kind) bool { return k.Resource.GroupResource().String() == groupResource })]
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	id := informers.Identity{Namespace: "models", Name: "w", Version: "7"}
	tests := []struct {
		name     string
		kind     kit.Kind
		manifest string
		want     informers.Workload
	}{
		{
			"Deployment", kindOf("deployments.apps"), `
kind: Deployment
spec: {replicas: 4, template: {metadata: {labels: {app: w}}, spec: {containers: [{resources: {requests: {nvidia.com/gpu: "8", cpu: 4}}}]}}}
status: {replicas: 5, readyReplicas: 3}`,
			informers.Workload{Replicas: 4, Ready: 3, Cards: 8, Shape: inventory.Shape{Cards: 8, Pods: 1, Placement: `[{}]`}, Labels: map[string]string{"app": "w"}},
		},
		{"without anything", kindOf("deployments.apps"), `kind: Deployment`, informers.Workload{Replicas: 1}},
		{"scaled to zero", kindOf("statefulsets.apps"), "kind: StatefulSet\nspec: {replicas: 0}", informers.Workload{}},
		{
			"several containers", kindOf("statefulsets.apps"), `
kind: StatefulSet
spec: {template: {spec: {containers: [{resources: {limits: {amd.com/gpu: 2}}}, {resources: {requests: {amd.com/gpu: 1}, limits: {amd.com/gpu: 1}}}],
  initContainers: [{resources: {limits: {amd.com/gpu: 4}}}, {restartPolicy: Always, resources: {limits: {habana.ai/gaudi: 2}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: 6}, // no shape: the pods need two kinds
		},
		{
			"large init container", kindOf("statefulsets.apps"), `
kind: StatefulSet
spec: {template: {spec: {containers: [{resources: {limits: {gpu.intel.com/i915: 1}}}], initContainers: [{resources: {limits: {gpu.intel.com/i915: 4}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: 4, Shape: inventory.Shape{Resource: 2, Cards: 4, Pods: 1, Placement: `[{}]`}},
		},
		{
			"unreadable", kindOf("deployments.apps"), `
kind: Deployment
spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: all}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: informers.UnreadableCards},
		},
		{
			"an exponent that takes minutes", kindOf("deployments.apps"), `
kind: Deployment
spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: "1e-999999999"}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: informers.UnreadableCards},
		},
		{
			"negative", kindOf("deployments.apps"), `
kind: Deployment
spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: -1}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: informers.UnreadableCards},
		},
		{
			"huge", kindOf("deployments.apps"), `
kind: Deployment
spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 9000000000000000000}}}, {resources: {limits: {nvidia.com/gpu: "9000000000000M"}}}]}}}`,
			informers.Workload{Replicas: 1, Cards: 10_000_000, Shape: inventory.Shape{Cards: 10_000_000, Pods: 1, Placement: `[{}]`}},
		},
		{
			"wrong types", kindOf("deployments.apps"), `
kind: Deployment
spec: {replicas: many, template: {metadata: {labels: [a]}, spec: {containers: [7, {resources: 7}, null]}}}
status: 7`,
			informers.Workload{Replicas: 1},
		},
		{
			"LeaderWorkerSet", kindOf("leaderworkersets.leaderworkerset.x-k8s.io"), `
kind: LeaderWorkerSet
spec: {replicas: 2, leaderWorkerTemplate: {size: 3, leaderTemplate: {metadata: {labels: {role: leader}}, spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}},
  workerTemplate: {metadata: {labels: {role: worker}}, spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}}}
status: {readyReplicas: 1}`,
			informers.Workload{Replicas: 2, Ready: 1, Cards: 17, Shape: inventory.Shape{Cards: 8, Pods: 3, Placement: `[{},{}]`}, Labels: map[string]string{
				"role": "leader", "leaderworkerset.sigs.k8s.io/name": "w", "leaderworkerset.sigs.k8s.io/worker-index": "0",
			}},
		},
		{
			"LeaderWorkerSet with one template", kindOf("leaderworkersets.leaderworkerset.x-k8s.io"), `
kind: LeaderWorkerSet
spec: {leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}}}`,
			informers.Workload{Replicas: 1, Cards: 16, Shape: inventory.Shape{Cards: 8, Pods: 2, Placement: `[{},{}]`}, Labels: map[string]string{
				"leaderworkerset.sigs.k8s.io/name": "w", "leaderworkerset.sigs.k8s.io/worker-index": "0",
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.want.Identity = id
			assert.Equal(t, &tt.want, read[informers.Workload](t, tt.kind, "metadata: {namespace: models, name: w, resourceVersion: '7', uid: u, annotations: {a: b}}\n"+tt.manifest))
		})
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	const owned = `labels: {pod-template-hash: 7d9c}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat-a-7d9c, controller: true}]`
	ready := "\nstatus: {phase: Running, conditions: [{type: Initialized, status: 'False'}, {type: Ready, status: 'True'}]}"
	deployment := informers.Owner{Namespace: "models", Kind: "Deployment", Name: "chat-a"}
	tests := []struct {
		name, metadata, rest string
		want                 informers.Owner
		ready                bool
	}{
		{"of a Deployment", owned, ready, deployment, true},
		{"not ready", owned, "\nstatus: {conditions: [{type: Ready, status: 'False'}]}", deployment, false},
		{"without conditions", owned, "", deployment, false},
		{"of a StatefulSet", `ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: chat, controller: true}]`, ready, informers.Owner{Namespace: "models", Kind: "StatefulSet", Name: "chat"}, true},
		{"leader of a group", `labels: {leaderworkerset.sigs.k8s.io/name: chat, leaderworkerset.sigs.k8s.io/worker-index: "0"}, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: chat, controller: true}]`,
			ready, informers.Owner{Namespace: "models", Kind: "LeaderWorkerSet", Name: "chat"}, true},
		{"worker of a group", `labels: {leaderworkerset.sigs.k8s.io/name: chat, leaderworkerset.sigs.k8s.io/worker-index: "1"}, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: chat-0, controller: true}]`,
			ready, informers.Owner{}, false},
		{"of a ReplicaSet without a Deployment", `ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat, controller: true}]`, ready, informers.Owner{}, true},
		{"of a CRD", `ownerReferences: [{apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: chat, controller: true}]`, ready, informers.Owner{Namespace: "models", Kind: "ModelServing", Name: "chat"}, true},
		{"of another kind", `ownerReferences: [{apiVersion: batch/v1, kind: Job, name: chat, controller: true}]`, ready, informers.Owner{}, false},
		{"of another group", `ownerReferences: [{apiVersion: example.com/v1, kind: StatefulSet, name: chat, controller: true}]`, ready, informers.Owner{}, false},
		{"of something that does not control it", `ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: chat}]`, ready, informers.Owner{}, false},
		{"alone", `labels: {pod-template-hash: 7d9c}`, ready, informers.Owner{}, false},
		{"being deleted", owned + `, deletionTimestamp: "2026-11-01T12:00:00Z"`, ready, informers.Owner{}, false},
		{"succeeded", owned, "\nstatus: {phase: Succeeded}", informers.Owner{}, false},
		{"failed", owned, "\nstatus: {phase: Failed}", informers.Owner{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			manifest := "kind: Pod\nmetadata: {namespace: models, name: p, creationTimestamp: '2026-11-01T12:00:00Z', " + tt.metadata + "}" + tt.rest
			p := read[informers.Pod](t, kindOf("pods"), manifest)
			assert.Equal(t, tt.want, p.Owner())
			assert.Equal(t, tt.ready, !p.Ready().IsZero())
			world, err := informers.Declare("").Read(kit.Snapshot{Objects: []*unstructured.Unstructured{object(t, "apiVersion: v1\n"+manifest)}})
			require.NoError(t, err)
			found := informers.PodsOf(world.Pods, tt.want)
			if tt.want == (informers.Owner{}) {
				assert.Empty(t, found)
				assert.NotNil(t, informers.FindObject[informers.Pod](world.Pods, cache.ObjectName{Namespace: "models", Name: "p"}))
				return
			}
			assert.Equal(t, []*informers.Pod{p}, found)
			assert.Equal(t, "2026-11-01T12:00:00Z", p.Created().UTC().Format(time.RFC3339))
		})
	}
}

// TestLabelsOfPods: the labels of pods take memory, so that only those are kept that can be the only tie to a target.
func TestLabelsOfPods(t *testing.T) {
	t.Parallel()
	owners := map[string]bool{
		"apiVersion: apps/v1, kind: ReplicaSet, name: chat-a-7d9c":                              false, // of a Deployment
		"apiVersion: apps/v1, kind: StatefulSet, name: chat":                                    false,
		"apiVersion: apps/v1, kind: DaemonSet, name: chat":                                      false,
		"apiVersion: batch/v1, kind: Job, name: chat":                                           false,
		"apiVersion: apps/v1, kind: ReplicaSet, name: chat-a-54f":                               true, // of a Rollout
		"apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: chat":      true,
		"apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: '', x: ''": false,
	}
	for owner, kept := range owners {
		manifest := "kind: Pod\nmetadata: {namespace: models, name: p, labels: {pod-template-hash: 7d9c}, ownerReferences: [{" + owner + ", controller: true}]}"
		p := read[informers.Pod](t, kindOf("pods"), manifest)
		assert.Equal(t, kept, p.Labels["pod-template-hash"] == "7d9c", owner)
		world, err := informers.Declare("").Read(kit.Snapshot{Objects: []*unstructured.Unstructured{object(t, "apiVersion: v1\n"+manifest)}})
		require.NoError(t, err)
		assert.Equal(t, kept, len(informers.PodsBySelector(world.Pods, "models", labels.Everything())) == 1, owner)
		assert.Empty(t, informers.PodsBySelector(world.Pods, "other", labels.Everything()))
	}
}

// TestUndeclaredObjectsKeepTheirTarget: an autoscaler that declares no variant still scales something.
func TestUndeclaredObjectsKeepTheirTarget(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]kit.Kind{"HorizontalPodAutoscaler": kindOf("horizontalpodautoscalers.autoscaling"), "ScaledObject": kindOf("scaledobjects.keda.sh")} {
		d := read[informers.Declaration](t, kind, `
metadata: {namespace: models, name: a, uid: u, resourceVersion: "7", generation: 3, annotations: {llm-d.ai/model-id: m}}
spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: x}}
kind: `+name)
		assert.Equal(t, &informers.Declaration{
			Identity: informers.Identity{Namespace: "models", Name: "a", Version: "7"}, UID: "u", Source: d.Source,
			Scales: informers.Owner{Namespace: "models", Kind: "Deployment", Name: "x"}, IdleAtZero: name == "HorizontalPodAutoscaler",
		}, d)
	}
}

// TestFollowers: an autoscaler follows if it declares a variant, or uses the metric or the external scaler.
func TestFollowers(t *testing.T) {
	t.Parallel()
	const (
		external = "{metrics: [{type: External, external: {metric: {name: %s}, target: {type: AverageValue}}}]}"
		trigger  = "{triggers: [{type: cpu}, {type: %s, metadata: {%s}}]}"
	)
	for _, tt := range []struct {
		kind           kit.Kind
		metadata, spec string
		want           bool
	}{
		{kindOf("horizontalpodautoscalers.autoscaling"), "", "{metrics: [{type: Resource, resource: {name: cpu}}]}", false},
		{kindOf("horizontalpodautoscalers.autoscaling"), "", "{metrics: 7}", false},
		{kindOf("horizontalpodautoscalers.autoscaling"), "", fmt.Sprintf(external, "queue_length"), false},
		{kindOf("horizontalpodautoscalers.autoscaling"), "", fmt.Sprintf(external, "wva_desired_replicas"), true},
		{kindOf("horizontalpodautoscalers.autoscaling"), `annotations: {llm-d.ai/managed: "true"}`, "{}", true},
		{kindOf("horizontalpodautoscalers.autoscaling"), `annotations: {llm-d.ai/managed: "true", wva.llmd.ai/exclude: "true"}`, "{}", false},
		{kindOf("scaledobjects.keda.sh"), "", "{}", false},
		{kindOf("scaledobjects.keda.sh"), "", fmt.Sprintf(trigger, "prometheus", "query: sum(requests)"), false},
		{kindOf("scaledobjects.keda.sh"), "", fmt.Sprintf(trigger, "prometheus", "query: max(wva_desired_replicas)"), true},
		{kindOf("scaledobjects.keda.sh"), "", fmt.Sprintf(trigger, "external", "scalerAddress: other.ns.svc:1"), false},
		{kindOf("scaledobjects.keda.sh"), "", fmt.Sprintf(trigger, "external", "scalerAddress: variant-autoscaler-scaler.ns.svc:1"), true},
		{kindOf("scaledobjects.keda.sh"), `annotations: {llm-d.ai/managed: "true"}`, "{}", true},
	} {
		d := read[informers.Declaration](t, tt.kind, "kind: "+tt.kind.Name+"\nmetadata: {namespace: models, name: a, "+tt.metadata+"}\nspec: "+tt.spec)
		assert.Equal(t, tt.want, d.Follows, "%s %s %s", tt.kind.Name, tt.metadata, tt.spec)
	}
	keda := read[informers.Declaration](t, kindOf("horizontalpodautoscalers.autoscaling"), "kind: HorizontalPodAutoscaler\nmetadata: {namespace: models, name: a, labels: {scaledobject.keda.sh/name: a}}")
	assert.True(t, keda.OfKEDA)
}

// TestControllers: only the controlling owner counts, and its texts are cut.
func TestControllers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for owners, want := range map[string]*informers.Controller{
		"[]": nil,
		"[{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat}]":                                                       nil,
		"[{apiVersion: v1, kind: A, name: a}, {apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, controller: true}]": {Group: "ome.io", Kind: "InferenceService", Name: "chat"},
		"[{apiVersion: " + long + "/v1, kind: " + long + ", name: " + long + ", controller: true}]":                                {Group: long[:256], Kind: long[:256], Name: long[:256]},
	} {
		for _, kind := range []kit.Kind{kindOf("deployments.apps"), kindOf("statefulsets.apps"), kindOf("leaderworkersets.leaderworkerset.x-k8s.io")} {
			w := read[informers.Workload](t, kind, "kind: "+kind.Name+"\nmetadata: {namespace: models, name: a, ownerReferences: "+owners+"}")
			assert.Equal(t, want, w.Controller)
		}
	}
}

// TestStrangersTexts has objects whose texts, labels and status are as large as etcd allows.
func TestStrangersTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	d := read[informers.Declaration](t, kindOf("variantautoscalings.llmd.ai"), fmt.Sprintf(`
kind: VariantAutoscaling
metadata: {namespace: models, name: a, annotations: {force-reconcile: %[1]s}}
spec: {modelID: %[1]s, variantCost: %[1]s, scaleTargetRef: {kind: %[1]s, name: %[1]s}}
status: {text: %[1]s}`, long))
	require.NotNil(t, d.Spec)
	assert.Nil(t, d.Status)
	for _, text := range []string{d.Force, d.Spec.Model, d.Spec.Cost, d.Spec.Target.Kind, d.Spec.Target.Name} {
		assert.Len(t, text, informers.MaxText)
	}
	assert.Contains(t, d.Spec.Invalid, "has more than 256 bytes")

	labels := map[string]any{}
	for i := range 1000 {
		labels[fmt.Sprintf("label-%04d", i)] = "v"
	}
	u := object(t, "kind: Deployment\nmetadata: {namespace: models, name: w}\nspec: {template: {metadata: {}}}")
	require.NoError(t, unstructured.SetNestedMap(u.Object, labels, "spec", "template", "metadata", "labels"))
	obj, err := kindOf("deployments.apps").Transform(u)
	require.NoError(t, err)
	kept := slices.Sorted(maps.Keys(obj.(*informers.Workload).Labels))
	assert.Len(t, kept, 100)
	assert.Equal(t, "label-0099", kept[99], "always the same")

	u = object(t, "kind: InferencePool\nmetadata: {namespace: models, name: w}\nspec: {selector: {}}")
	require.NoError(t, unstructured.SetNestedMap(u.Object, labels, "spec", "selector", "matchLabels"))
	obj, err = kindOf("inferencepools.inference.networking.k8s.io").Transform(u)
	require.NoError(t, err)
	assert.Nil(t, obj.(*informers.Pool).Selector, "it selects nothing")
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	d := read[informers.Declaration](t, kindOf("variantautoscalings.llmd.ai"), "kind: VariantAutoscaling\nmetadata: {namespace: models, name: a}\nspec: {modelID: "+strings.Repeat("x", 255)+"€}")
	assert.Equal(t, strings.Repeat("x", 255)+"?", d.Spec.Model)
}
