//go:build system

package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// resourceSlice is a slice with four devices, of a generation of its pool.
const resourceSlice = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a-%[1]d}
spec:
  driver: gpu.example.com
  nodeName: a
  pool: {name: a, generation: %[1]d, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}}}
  - {name: gpu-1, attributes: {type: {string: gpu}}}
  - {name: gpu-2, attributes: {type: {string: gpu}}}
  - {name: gpu-3, attributes: {type: {string: %[2]s}}}`

// TestDevices: the plan follows the devices that slices have, and that claims leave.
func TestDevices(t *testing.T) {
	t.Parallel()
	r := newRig(t, "limiter.enabled=true")
	r.apply("{apiVersion: v1, kind: Node, metadata: {name: a}}")
	r.status("node", "", "a", `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`)
	_, err := r.Kubectl(t.Context(), "patch", "node", "a", "--type=merge", "-p", `{"spec": {"taints": []}}`) // not-ready, of a node that is created
	require.NoError(t, err)
	r.apply(fmt.Sprintf(resourceSlice, 1, "gpu"))
	r.apply(`
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.example.com}, spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"'}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: one, namespace: models}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: other, namespace: models}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: claims, namespace: models}, spec: {replicas: 1, selector: {matchLabels: {app: claims}}, template: {metadata: {labels: {app: claims}},
spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: server, image: server, resources: {claims: [{name: gpu}]}}]}}}}
---
{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: claims, namespace: models}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: claims}, modelID: m, minReplicas: 0,
variantProfile: {perfParms: {decodeParms: {alpha: "10", beta: "0"}, prefillParms: {gamma: "0", delta: "0"}}, maxBatchSize: 16}}}`)

	p := r.newPasses()
	_, d := r.desires(p, 4)
	assert.Contains(t, d.Short, `the nodes with devices of gpu.example.com with gpu.example.com/type="gpu" have 4 free places for pods of 1 card`)
	r.status("resourceclaim", "models", "other", `{"status": {"allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-1"}]}}}}`)
	r.desires(p, 3)
	r.apply(fmt.Sprintf(resourceSlice, 2, "fpga"))
	r.desires(p, 2)

	_, err = r.Kubectl(t.Context(), "-n", "models", "delete", "resourceclaimtemplate", "one")
	require.NoError(t, err)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, _, err := p.RunPass(t.Context())
		require.NoError(collect, err)
		problem := p.last.Snapshot.Groups[0].Variants[0].Problem
		require.NotNil(collect, problem)
		require.Equal(collect, snapshot.DevicesNotFound, problem.Reason)
	}, kubetest.Patience, tick)
	assert.Equal(t, 2, p.last.Decision.Groups[0].Variants[0].Desired, "the last decision stands")
}
