package informers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

func TestResourceSlice(t *testing.T) {
	t.Parallel()
	kind := kindOf("resourceslices.resource.k8s.io")
	s := read[informers.DeviceSlice](t, kind, `
kind: ResourceSlice
metadata: {name: a-gpu, resourceVersion: "7"}
spec:
  driver: gpu.nvidia.com
  nodeName: a
  pool: {name: a, generation: 3, resourceSliceCount: 2}
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}, gpu.nvidia.com/index: {int: 0}, shared: {bool: false}, driverVersion: {version: 1.0.0}}, capacity: {memory: {value: 80Gi}}}
  - {name: gpu-1, taints: [{key: broken, effect: NoSchedule}]}
  - {name: gpu-2, taints: [{key: seen, effect: None}]}
  - {name: gpu-0-mig, consumesCounters: [{counterSet: gpu-0}]}
  - {name: shared, allowMultipleAllocations: true}
  - 7`)
	assert.Equal(t, &informers.DeviceSlice{Identity: informers.Identity{Name: "a-gpu", Version: "7"}, DeviceSlice: inventory.DeviceSlice{
		Driver: "gpu.nvidia.com", Pool: "a", Generation: 3, Count: 2, Node: "a", Devices: []inventory.Device{
			{Name: "gpu-0", Attributes: []string{"gpu.nvidia.com/index=0", "gpu.nvidia.com/shared=false", `gpu.nvidia.com/type="gpu"`}}, {Name: "gpu-2"}, {},
		},
	}}, s)
	s = read[informers.DeviceSlice](t, kind, "kind: ResourceSlice\nspec: {driver: d, perDeviceNodeSelection: true, devices: [{name: x, nodeName: a}, {name: y, allNodes: true}]}")
	assert.Equal(t, []inventory.Device{{Name: "x", Node: "a"}}, s.Devices)
	s = read[informers.DeviceSlice](t, kind, "kind: ResourceSlice\nspec: {driver: d, allNodes: true, devices: [{name: x}]}")
	assert.Empty(t, s.Devices, "no node has it alone")
	s = read[informers.DeviceSlice](t, kind, "kind: ResourceSlice\nspec: {nodeName: a, devices: ["+strings.Repeat("{name: x},", 100_000)+"]}")
	assert.Len(t, s.Devices, 1024)
	assert.True(t, s.Invalid)
}

func TestResourceClaim(t *testing.T) {
	t.Parallel()
	const allocated = "kind: ResourceClaim\nstatus: {allocation: {devices: {results: [{driver: d, pool: a, device: x, request: r}, {driver: d, pool: a, device: y, adminAccess: true}, 7]}}}"
	c := read[informers.DeviceClaim](t, kindOf("resourceclaims.resource.k8s.io"), allocated)
	assert.Equal(t, []inventory.DeviceName{{Driver: "d", Pool: "a", Name: "x"}, {}}, c.Devices, "an administrator takes nothing")
	assert.Empty(t, read[informers.DeviceClaim](t, kindOf("resourceclaims.resource.k8s.io"), "kind: ResourceClaim\nspec: {devices: {}}").Devices)
}

func TestSelectorsOfDevices(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		give       string
		driver     string
		attributes []string
		wrong      bool
	}{
		{give: `device.driver == "gpu.nvidia.com"`, driver: "gpu.nvidia.com"},
		{give: `device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'`, driver: "gpu.nvidia.com", attributes: []string{`gpu.nvidia.com/type="gpu"`}},
		{give: `device.attributes["d"].b==2 && device.attributes["d"].a == true&&device.driver=="d"`, driver: "d", attributes: []string{"d/a=true", "d/b=2"}},
		{give: `device.driver == "d" || true`, wrong: true},
		{give: `device.driver == "a" && device.driver == "b"`, wrong: true},
		{give: `!(device.driver == "d")`, wrong: true},
		{give: `device.driver == "a\"b"`, wrong: true},
		{give: `device.attributes["d"].productName.lowerAscii().matches("^.*a100.*$")`, wrong: true},
		{give: `device.capacity["d"].memory.compareTo(quantity("40Gi")) >= 0`, wrong: true},
		{give: "", wrong: true},
	} {
		class := object(t, "kind: DeviceClass")
		class.Object["spec"] = map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": tt.give}}}}
		obj, err := kindOf("deviceclasses.resource.k8s.io").Transform(class)
		require.NoError(t, err)
		r, _ := obj.(*informers.DeviceRequest)
		assert.Equal(t, tt.wrong, r.Unsupported != "", tt.give)
		if !tt.wrong {
			assert.Equal(t, tt.driver, r.Driver, tt.give)
			assert.Equal(t, tt.attributes, r.Attributes, tt.give)
		}
	}
}

// TestLongExpressions: the API permits 10 KiB, and a few comparisons of names have more bytes than other texts may have.
func TestLongExpressions(t *testing.T) {
	t.Parallel()
	of := func(terms int) *informers.DeviceRequest {
		all := []string{`device.driver == "gpu.nvidia.com"`}
		for n := range terms {
			all = append(all, fmt.Sprintf(`device.attributes["gpu.nvidia.com"].attribute%02d == "NVIDIA H100 80GB HBM3"`, n))
		}
		class := object(t, "kind: DeviceClass")
		class.Object["spec"] = map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": strings.Join(all, " && ")}}}}
		obj, err := kindOf("deviceclasses.resource.k8s.io").Transform(class)
		require.NoError(t, err)
		r, _ := obj.(*informers.DeviceRequest)
		return r
	}
	assert.Empty(t, of(5).Unsupported)
	assert.Len(t, of(5).Attributes, 5)
	assert.NotEmpty(t, of(80).Unsupported, "too many attributes")
	assert.NotEmpty(t, of(1000).Unsupported, "too many bytes")
	assert.Less(t, len(of(1000).Unsupported), 1000)
}

func TestResourceClaimTemplate(t *testing.T) {
	t.Parallel()
	of := func(requests string) *informers.DeviceRequest {
		return read[informers.DeviceRequest](t, kindOf("resourceclaimtemplates.resource.k8s.io"), "kind: ResourceClaimTemplate\nspec: {spec: {devices: {"+requests+"}}}")
	}
	r := of("requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 4}}]")
	assert.Equal(t, []any{"gpu.nvidia.com", int64(4), ""}, []any{r.Class, r.Number, r.Unsupported})
	assert.EqualValues(t, 1, of("requests: [{exactly: {deviceClassName: x}}]").Number)
	for _, requests := range []string{
		"", "requests: []", "requests: [{exactly: {deviceClassName: x}}, {exactly: {deviceClassName: x}}]", "requests: [{firstAvailable: []}]", "requests: [7]",
		"requests: [{exactly: {deviceClassName: x, allocationMode: All}}]", "requests: [{exactly: {deviceClassName: x, adminAccess: true}}]", "requests: [{exactly: {count: 1}}]",
		"requests: [{exactly: {deviceClassName: x, count: 1000000}}]", "requests: [{exactly: {deviceClassName: x, count: many}}]", "requests: [{exactly: {deviceClassName: x, capacity: {requests: {}}}}]",
		"requests: [{exactly: {deviceClassName: x}}], constraints: [{matchAttribute: d/numa}]", "requests: [{exactly: {deviceClassName: x, selectors: [" + strings.Repeat("{cel: {expression: x}},", 40) + "]}}]",
	} {
		assert.NotEmpty(t, of(requests).Unsupported, requests)
	}
}

func TestPodClaims(t *testing.T) {
	t.Parallel()
	of := func(spec string) *informers.PodClaims {
		return read[informers.Workload](t, kindOf("deployments.apps"), "kind: Deployment\nspec: {template: {spec: {nodeSelector: {gpu: H100}, "+spec+"}}}").Claims
	}
	assert.Nil(t, of("containers: []"))
	assert.Equal(t, &informers.PodClaims{Template: "gpus", Pods: 1, Placement: `[{"nodeSelector":{"gpu":"H100"}}]`}, of("resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]"))
	for _, spec := range []string{"resourceClaims: [{name: gpu, resourceClaimName: shared}]", "resourceClaims: [{resourceClaimTemplateName: a}, {resourceClaimTemplateName: a}]", "resourceClaims: [7]"} {
		assert.NotEmpty(t, of(spec).Unsupported, spec)
	}
	const set = "kind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: {size: 3, LEADER workerTemplate: {spec: {resourceClaims: [{resourceClaimTemplateName: gpus}]}}}}"
	sets := kindOf("leaderworkersets.leaderworkerset.x-k8s.io")
	assert.EqualValues(t, 3, read[informers.Workload](t, sets, strings.Replace(set, "LEADER", "", 1)).Claims.Pods)
	assert.EqualValues(t, 2, read[informers.Workload](t, sets, strings.Replace(set, "LEADER", "leaderTemplate: {spec: {}},", 1)).Claims.Pods)
	assert.NotEmpty(t, read[informers.Workload](t, sets, strings.Replace(set, "LEADER", "leaderTemplate: {spec: {resourceClaims: [{resourceClaimTemplateName: other}]}},", 1)).Claims.Unsupported)

	p := read[informers.Pod](t, kindOf("pods"), "kind: Pod\nspec: {nodeName: a, resourceClaims: [{name: gpu}]}")
	assert.True(t, p.Holding().Claims)
}
