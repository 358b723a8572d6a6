package pass

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// claimed has the workloads of gpus, of which the pods of big claim two devices each. Node h has six devices: one pod of big has two of them,
// and somebody else has one.
var claimed = strings.NewReplacer(
	"nodeSelector: {gpu: H100}, containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]", "nodeSelector: {gpu: H100}, resourceClaims: [{name: gpu, resourceClaimTemplateName: two}], containers: [{}]",
	"spec: {nodeName: h, containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}", "spec: {nodeName: h, resourceClaims: [{name: gpu, resourceClaimTemplateName: two}], containers: [{}]}",
	`allocatable: {nvidia.com/gpu: "8"}`, `allocatable: {cpu: "8"}`, "{nvidia.com/gpu: 3}", "{cpu: 3}",
).Replace(gpus) + `
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: h}
spec: {driver: gpu.nvidia.com, nodeName: h, pool: {name: h, generation: 1, resourceSliceCount: 1}, devices: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}]}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpus}, spec: {selectors: [{cel: {expression: device.driver == "gpu.nvidia.com"}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: two}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpus, count: 2}}]}}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: big-1-gpu}
status: {allocation: {devices: {results: [{driver: gpu.nvidia.com, pool: h, device: a}, {driver: gpu.nvidia.com, pool: h, device: b}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: other}
status: {allocation: {devices: {results: [{driver: gpu.nvidia.com, pool: h, device: f}]}}}
`

// TestDevices: variants whose pods claim devices get what nodes have free of them.
func TestDevices(t *testing.T) {
	t.Parallel()
	r := limiter(t, claimed)
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 2, "small": 4}, r.pass(t), "three devices are free: one more pod of big fits")
	s, d := r.last()
	assert.Equal(t, snapshot.NodeSet{Name: "nodes with devices of gpu.nvidia.com (NVIDIA-H100)", Resource: "devices of gpu.nvidia.com", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: 3, Nodes: 1}}}, s.Nodes[0])
	assert.Equal(t, &snapshot.Pods{Set: 0, Cards: 2, Count: 1, Placed: 1}, s.Groups[0].Variants[0].Pods)
	assert.Equal(t, "the nodes with devices of gpu.nvidia.com (NVIDIA-H100) have 1 free place for pods of 2 cards. Add nodes, or free cards of them", d.Variants[0].Short)
}

// TestDeviceProblems: the variant keeps its replicas, and the other one is planned.
func TestDeviceProblems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, from, to, want, message string }{
		{"no template", "kind: ResourceClaimTemplate, metadata: {name: two}", "kind: ResourceClaimTemplate, metadata: {name: three}", snapshot.DevicesNotFound, "ResourceClaimTemplate ns/two does not exist"},
		{"no class", "deviceClassName: gpus", "deviceClassName: tpus", snapshot.DevicesNotFound, "DeviceClass tpus does not exist"},
		{"an expression", `== "gpu.nvidia.com"}}]`, `!= "gpu.nvidia.com"}}]`, snapshot.DevicesUnsupported, "the devices of DeviceClass gpus cannot be counted: of the expression"},
		{"no driver", "spec: {selectors: [{cel: {expression: device.driver == \"gpu.nvidia.com\"}}]}", "spec: {}", snapshot.DevicesUnsupported, "do not name one driver"},
		{"all devices", "count: 2", "allocationMode: All", snapshot.DevicesUnsupported, `the allocationMode "All"`},
		{"a shared claim", "nodeSelector: {gpu: H100}, resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]", "nodeSelector: {gpu: H100}, resourceClaims: [{name: gpu, resourceClaimName: all}]", snapshot.DevicesUnsupported, "use one template with one request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := strings.Replace(claimed, tt.from, tt.to, 1)
			require.NotEqual(t, claimed, objects)
			r := requireProblem(t, objects, tt.want, tt.message)
			assert.Empty(t, r.outcomes[0].Sources.Groups[0].Variants[0].Notes)
		})
	}
	r := limiter(t, claimed)
	r.load.Rate = 100e6
	before := r.pass(t)
	r.p.World.ResourceClaims = &unlisted{r.p.World.ResourceClaims}
	assert.Equal(t, before, r.pass(t))
	s, _ := r.last()
	assert.Equal(t, snapshot.InventoryUnknown, s.Groups[0].Variants[0].Problem.Reason)
	r = limiter(t, claimed)
	r.p.World.Nodes = &unlisted{r.p.World.Nodes}
	r.pass(t)
	s, _ = r.last()
	assert.Contains(t, s.Groups[0].Variants[0].Problem.Message, "nodes cannot be listed")
}
