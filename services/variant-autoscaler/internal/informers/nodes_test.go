package informers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

func TestNode(t *testing.T) {
	t.Parallel()
	node := kindOf("nodes")
	n := read[informers.Node](t, node, `
kind: Node
metadata: {name: a, resourceVersion: "7", labels: {gpu: H100}, annotations: {a: b}}
spec: {unschedulable: true, taints: [{key: gpu, value: x, effect: NoSchedule}, 7]}
status: {allocatable: {nvidia.com/gpu: "8", habana.ai/gaudi: 2, cpu: "64"}, conditions: [7, {type: DiskPressure, status: "True"}, {type: Ready, status: "True"}]}`)
	assert.Equal(t, &informers.Node{Identity: informers.Identity{Name: "a", Version: "7"}, Node: inventory.Node{
		Name: "a", Labels: map[string]string{"gpu": "H100"}, Ready: true, Unschedulable: true, Allocatable: inventory.Cards{8, 0, 0, 2},
		Taints: []corev1.Taint{{Key: "gpu", Value: "x", Effect: "NoSchedule"}, {}},
	}}, n)

	n = read[informers.Node](t, node, "kind: Node\nmetadata: {name: a, labels: {gpu: none}}\nstatus: {allocatable: {cpu: 4}}")
	assert.Equal(t, &informers.Node{Identity: informers.Identity{Name: "a"}, Node: inventory.Node{Name: "a", Labels: map[string]string{"gpu": "none"}}}, n, "a node without accelerators may have devices")
	n = read[informers.Node](t, node, "kind: Node\nmetadata: {name: a}\nstatus: {allocatable: {nvidia.com/gpu: many}, conditions: [{type: Ready, status: Unknown}]}")
	assert.Equal(t, inventory.Cards{inventory.Unreadable}, n.Allocatable)
	assert.False(t, n.Ready)
	n = read[informers.Node](t, node, "kind: Node\nmetadata: {name: a}\nspec: {taints: ["+strings.Repeat("{},", 101)+"]}\nstatus: {allocatable: {nvidia.com/gpu: 1}, conditions: [{type: Ready, status: 'True'}]}")
	assert.False(t, n.Ready, "not all taints are known")
	assert.Len(t, n.Taints, 100)
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`nodeSelector: {gpu: H100}, tolerations: [{key: gpu, operator: Exists, tolerationSeconds: 3}]`:                                                                 `[{"nodeSelector":{"gpu":"H100"},"tolerations":[{"key":"gpu","operator":"Exists"}]}]`,
		`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}`: `[{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}]`,
		`nodeSelector: {gpu: 7}`: `[{"unreadable":"a field has a value of the wrong type"}]`,
		`affinity: 7`:            `[{}]`,
		`tolerations: [` + strings.Repeat("{key: a},", 101) + `]`: `[{"unreadable":"they have 101 labels, values and tolerations, and at most 100 are possible"}]`,
	} {
		w := read[informers.Workload](t, kindOf("deployments.apps"), "kind: Deployment\nspec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}], "+spec+"}}}")
		assert.Equal(t, want, w.Shape.Placement)
	}
}

// TestHolding: a pod holds cards from the time it has a node until it is gone, whether it serves or not.
func TestHolding(t *testing.T) {
	t.Parallel()
	const owned = `labels: {pod-template-hash: 7d9c}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat-7d9c, controller: true}]`
	const cards = `spec: {nodeName: a, containers: [{resources: {limits: {amd.com/gpu: 2}}}]}`
	for _, tt := range []struct {
		name, metadata, rest string
		owner                string
		terminating, nothing bool
	}{
		{name: "of a Deployment", metadata: owned, rest: cards, owner: "models/Deployment/chat"},
		{name: "of nobody", metadata: "labels: {}", rest: cards, owner: "//"},
		{name: "of a CRD", metadata: `ownerReferences: [{apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, name: m, controller: true}]`, rest: cards, owner: "models/ModelServing/m"},
		{
			name: "worker", metadata: `labels: {leaderworkerset.sigs.k8s.io/name: set, leaderworkerset.sigs.k8s.io/worker-index: "1"}`, rest: cards, owner: "models/LeaderWorkerSet/set",
		},
		{name: "ends", metadata: owned + `, deletionTimestamp: "2026-11-01T12:00:00Z"`, rest: cards, owner: "models/Deployment/chat", terminating: true},
		{name: "without a node", metadata: owned, rest: strings.Replace(cards, "nodeName: a, ", "", 1), nothing: true},
		{name: "without cards", metadata: owned, rest: "spec: {nodeName: a}", nothing: true},
		{name: "has succeeded", metadata: owned, rest: cards + "\nstatus: {phase: Succeeded}", nothing: true},
		{name: "has failed", metadata: owned, rest: cards + "\nstatus: {phase: Failed}", nothing: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := read[informers.Pod](t, kindOf("pods"), fmt.Sprintf("kind: Pod\nmetadata: {namespace: models, name: p, %s}\n%s", tt.metadata, tt.rest)).Holding()
			if tt.nothing {
				assert.Nil(t, h)
				return
			}
			require.NotNil(t, h)
			assert.Equal(t, "a", h.Node.Value())
			assert.Equal(t, inventory.Cards{0, 2}, h.Cards.Value())
			assert.Equal(t, tt.owner, h.Owner.Value().String())
			assert.Equal(t, tt.terminating, h.Terminating)
		})
	}
}

// FuzzNode reads what a kubelet, or somebody with its credentials, writes.
func FuzzNode(f *testing.F) {
	f.Add("8", "Ready", "gpu", "1e99999999")
	f.Add("-1", "", "", "9999999999999999999999")
	f.Fuzz(func(t *testing.T, a, condition, key, b string) {
		u := &unstructured.Unstructured{Object: map[string]any{
			"kind": "Node", "metadata": map[string]any{"name": "a", "labels": map[string]any{key: a}}, "spec": map[string]any{"taints": []any{map[string]any{"key": key}, key}},
			"status": map[string]any{"allocatable": map[string]any{"nvidia.com/gpu": a, "amd.com/gpu": b}, "conditions": []any{map[string]any{"type": condition, "status": b}}},
		}}
		obj, err := kindOf("nodes").Transform(u)
		require.NoError(t, err)
		for _, n := range obj.(*informers.Node).Allocatable {
			assert.GreaterOrEqual(t, n, int64(inventory.Unreadable))
		}
	})
}
