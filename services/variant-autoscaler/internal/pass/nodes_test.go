package pass

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// gpus has variants whose pods request two cards of H100 and one of L40S, and nodes of both.
var gpus = strings.NewReplacer(
	"{name: big}, spec: {replicas: 1}", "{name: big}, spec: {replicas: 1, template: {spec: {nodeSelector: {gpu: H100}, containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}}}",
	"{name: small}, spec: {replicas: 1}", "{name: small}, spec: {replicas: 1, template: {spec: {nodeSelector: {gpu: L40S}, containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}}}",
).Replace(variants) + `
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: H100, nvidia.com/gpu.product: NVIDIA-H100}}, status: {allocatable: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: l, labels: {gpu: L40S}}, status: {allocatable: {nvidia.com/gpu: "4"}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: cpu, labels: {gpu: H100}}, status: {allocatable: {cpu: "4"}, conditions: [{type: Ready, status: "True"}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: big-1, labels: {pod-template-hash: x}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: big-x, controller: true}]}
spec: {nodeName: h, containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: batch}
spec: {nodeName: h, containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec: {nodeName: h, containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}
status: {phase: Succeeded}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}
`

// limiter returns a rig with the limiter on.
func limiter(t *testing.T, objects string) *rig {
	t.Helper()
	r := start(t, objects)
	r.p.Limiter = true
	return r
}

// requireProblem runs a pass in which the first variant has a problem and keeps its replica, and the second one is planned.
func requireProblem(t *testing.T, objects, reason, message string) *rig {
	t.Helper()
	r := limiter(t, objects)
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 1, "small": 4}, r.pass(t))
	s, d := r.last()
	require.NotNil(t, s.Groups[0].Variants[0].Problem)
	assert.Equal(t, reason, s.Groups[0].Variants[0].Problem.Reason)
	assert.Contains(t, d.Variants[0].Message, message)
	return r
}

// last returns the last snapshot and decision of the first group.
func (r *rig) last() (*snapshot.Snapshot, *decision.Group) {
	o := r.outcomes[len(r.outcomes)-1]
	return o.Snapshot, &o.Decision.Groups[0]
}

// TestNodes: variants get what nodes have free, and no more.
func TestNodes(t *testing.T) {
	t.Parallel()
	r := start(t, gpus)
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 7, "small": 1}, r.pass(t), "the limiter is off")
	s, _ := r.last()
	assert.Empty(t, s.Nodes)

	r = limiter(t, gpus)
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 2, "small": 4}, r.pass(t), "3 of 8 cards are free: one more pod of big fits, and four of small")
	s, d := r.last()
	assert.Equal(t, []snapshot.NodeSet{
		{Name: "nodes with nvidia.com/gpu (NVIDIA-H100)", Resource: "nvidia.com/gpu", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: 3, Nodes: 1}}},
		{Name: "nodes with nvidia.com/gpu", Resource: "nvidia.com/gpu", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: 4, Nodes: 1}}},
	}, s.Nodes)
	assert.Equal(t, &snapshot.Pods{Set: 0, Cards: 2, Count: 1, Placed: 1}, s.Groups[0].Variants[0].Pods)
	assert.Equal(t, decision.LimitBinding, d.Variants[0].Reason)
	assert.Equal(t, "the nodes with nvidia.com/gpu (NVIDIA-H100) have 1 free place for pods of 2 cards. Add nodes, or free cards of them", d.Variants[0].Short)
}

// TestNodesByConfigMap: a key of the workload-variant-autoscaler turns the limiter on.
func TestNodesByConfigMap(t *testing.T) {
	t.Parallel()
	r := start(t, gpus)
	r.load.Rate = 100e6
	require.Empty(t, r.settings.SetSources(settings.Saturation,
		settings.Source{Name: "s", Data: map[string]string{"default": "enableLimiter: true"}}))
	assert.Equal(t, map[string]int{"big": 2, "small": 4}, r.pass(t))
}

// TestNodesAreNotKnown: variants keep the last decision while nodes cannot be listed.
func TestNodesAreNotKnown(t *testing.T) {
	t.Parallel()
	r := limiter(t, gpus)
	r.load.Rate = 100e6
	r.pass(t)
	r.p.World.Nodes = &unlisted{r.p.World.Nodes}
	r.load.Rate = 1e6
	r.now = r.now.Add(r.p.Window * 2)
	assert.Equal(t, map[string]int{"big": 2, "small": 4}, r.pass(t))
	s, d := r.last()
	assert.Equal(t, snapshot.InventoryUnknown, s.Groups[0].Variants[0].Problem.Reason)
	assert.Equal(t, decision.Excluded, d.Variants[0].Reason)
	assert.Contains(t, d.Variants[0].Message, "grant list and watch of nodes")

	r = limiter(t, strings.Replace(gpus, "limits: {nvidia.com/gpu: 2}", "limits: {cpu: 2}", 1))
	r.p.World.Nodes = &unlisted{r.p.World.Nodes}
	r.pass(t)
	s, _ = r.last()
	assert.Nil(t, s.Groups[0].Variants[0].Problem, "it needs no cards")
	assert.NotNil(t, s.Groups[0].Variants[1].Problem)
}

type unlisted struct{ kit.Reader }

func (*unlisted) Listed() bool { return false }

// TestInvalidNode: the variant that could use the node keeps its replicas, and the other one is planned.
func TestInvalidNode(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string]string{
		"cards":   strings.Replace(gpus, `{nvidia.com/gpu: "8"}`, `{nvidia.com/gpu: "1000000"}`, 1),
		"request": strings.Replace(gpus, "limits: {nvidia.com/gpu: 3}", `limits: {nvidia.com/gpu: "-3"}`, 1),
	} {
		r := limiter(t, objects)
		r.load.Rate = 100e6
		assert.Equal(t, map[string]int{"big": 1, "small": 4}, r.pass(t), name)
		s, _ := r.last()
		assert.Equal(t, snapshot.InventoryInvalid, s.Groups[0].Variants[0].Problem.Reason, name)
		assert.Nil(t, s.Groups[0].Variants[1].Problem, name)
	}
}

// TestVariantWithoutCards: nodes do not limit it, and its owner learns that.
func TestVariantWithoutCards(t *testing.T) {
	t.Parallel()
	r := limiter(t, strings.Replace(gpus, "limits: {nvidia.com/gpu: 2}", "limits: {cpu: 2}", 1))
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 7, "small": 1}, r.pass(t))
	assert.Equal(t, snapshot.NotLimited, r.outcomes[0].Sources.Groups[0].Variants[0].Notes[0].Reason)
}
