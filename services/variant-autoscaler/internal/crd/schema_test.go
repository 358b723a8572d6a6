//go:build system

package crd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

var resource = v1alpha1.SchemeGroupVersion.WithResource("variantautoscalings")

// install creates a CRD as Helm does: not by an apply.
func install(t *testing.T, c *cluster.Cluster, file string) {
	t.Helper()
	_, err := c.Kubectl(t.Context(), "create", "-f", file)
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/"+Name, "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
}

func dynamicClient(t *testing.T, c *cluster.Cluster) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	return client.Resource(resource).Namespace("default")
}

// variant returns an object with a spec in YAML.
func variant(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields), spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "VariantAutoscaling",
		"metadata": map[string]any{"name": name, "generateName": "variant-"}, "spec": fields,
	}}
}

const (
	minimal = `
scaleTargetRef: {kind: Deployment, name: llama}
modelID: meta/llama
`
	seed = `
scaleTargetRef: {kind: Deployment, name: vllm-llama-deployment}
modelID: meta/llama-3.1-8b
variantID: meta/llama-3.1-8b-A100-1
accelerator: A100
acceleratorCount: 1
sloClassRef: {name: service-classes-config, key: premium.yaml}
variantProfile:
  perfParms:
    decodeParms: {alpha: "20.58", beta: "0.41"}
    prefillParms: {gamma: "5.2", delta: "0.1"}
  maxBatchSize: 4
variantCost: "10.5"
`
	scheduled = minimal + `
schedule:
- {cron: "0 8 * * 1-5", timeZone: Europe/Berlin, duration: 10h, minReplicas: 2, maxReplicas: 8}
- {cron: "0 0 * * *", duration: 1h30m, maxReplicas: 1}
- {cron: "@daily", duration: 168h, minReplicas: 0}
`
)

// TestSchema tests the CRD of the chart, which replaces a released one.
func TestSchema(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	if !t.Run("released CRD", func(t *testing.T) { testReleasedCRD(t, c) }) {
		return
	}
	t.Run("accepted", func(t *testing.T) { testAccepted(t, c) })
	t.Run("refused", func(t *testing.T) { testRefused(t, c) })
	t.Run("printer columns", func(t *testing.T) { testPrinterColumns(t, c) })
	t.Run("released status", func(t *testing.T) { testReleasedStatus(t, c) })
}

// testAccepted creates objects of the shapes that users have. The API server must neither drop nor add a field.
func testAccepted(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamicClient(t, c)
	tests := []struct{ name, spec string }{
		{"minimal", minimal},
		{"seed", seed},
		{"seed-with-bounds", seed + "minReplicas: 0\nmaxReplicas: 10\n"},
		{"seed-equal-bounds", seed + "minReplicas: 3\nmaxReplicas: 3\n"},
		{"released-v04", `
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: ms-inference-scheduling-llm-d-modelservice-decode}
modelID: unsloth/Meta-Llama-3.1-8B
variantCost: "10.0"
`},
		{"released-v05-empty-api-version", `
scaleTargetRef: {apiVersion: "", kind: Deployment, name: llama}
modelID: meta/llama
variantCost: "40"
`},
		{"released-v06-bounds", minimal + "minReplicas: 1\nmaxReplicas: 10\nvariantCost: \"5.0\"\n"},
		{"released-v06-to-zero", minimal + "minReplicas: 0\n"},
		{"released-v07-leader-worker-set", `
scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: deepseek}
modelID: deepseek-ai/DeepSeek-R1
maxReplicas: 2
`},
		{"mixed-shapes", minimal + "accelerator: H100\nvariantProfile: {maxBatchSize: 8}\nmaxReplicas: 4\n"},
		{"profile-without-batch", minimal + "variantProfile: {perfParms: {decodeParms: {alpha: none}}}\n"},
		{"complex-accelerator", minimal + "variantID: meta/llama-H100-SXM4_80GB-16\naccelerator: H100-SXM4_80GB\nacceleratorCount: 16\n"},
		{"scheduled", scheduled},
		{"full-schedule", minimal + "schedule:\n" + strings.Repeat("- {cron: '* * * * *', duration: 1m, maxReplicas: 1}\n", 32)},
		{"largest", largest()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			object := variant(t, tt.name, tt.spec)
			created, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.NoError(t, err)
			assert.Equal(t, normalized(t, object.Object["spec"]), normalized(t, created.Object["spec"]), "the API server changed the spec")
		})
	}
}

// normalized returns a value as it is after it went through JSON, where numbers are of one type.
func normalized(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// largest returns a spec with every field at its bound.
func largest() string {
	model := strings.Repeat("m", 512)
	return fmt.Sprintf(`
scaleTargetRef: {apiVersion: %s, kind: %s, name: %s}
modelID: %s
variantID: %s-A-1
accelerator: %s
acceleratorCount: 10000
sloClassRef: {name: %s, key: %[7]s}
variantProfile:
  perfParms:
    decodeParms: {alpha: "%064d", %s: "1", c: "1", d: "1", e: "1", f: "1", g: "1", h: "1"}
    prefillParms: {gamma: "1"}
  maxBatchSize: 65536
variantCost: "9999999.%020d"
minReplicas: 100000
maxReplicas: 100000
schedule:
- {cron: %s, timeZone: %s, duration: 168h0m0.000000000000000000000s, minReplicas: 100000, maxReplicas: 100000}
`, strings.Repeat("v", 317), strings.Repeat("k", 63), strings.Repeat("n", 253), model, strings.Repeat("i", 696), strings.Repeat("a", 128),
		strings.Repeat("c", 253), 1, strings.Repeat("p", 63), 1, strings.Repeat("r", 128), strings.Repeat("z", 64))
}

// testRefused creates objects that would cost or mislead somebody else. Each has one mistake, which the API server names.
func testRefused(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamicClient(t, c)
	long := func(n int) string { return strings.Repeat("x", n) }
	entry := func(fields string) string { return minimal + "schedule: [{" + fields + "}]\n" }
	profile := func(fields string) string { return minimal + "variantProfile: {" + fields + "}\n" }
	tests := []struct{ name, spec, want string }{
		{"nothing", "{}", "spec.modelID"},
		{"no-target", "modelID: m", "spec.scaleTargetRef"},
		{"no-model", "scaleTargetRef: {kind: Deployment, name: d}", "spec.modelID"},
		{"no-kind", "{modelID: m, scaleTargetRef: {name: d}}", "spec.scaleTargetRef.kind"},
		{"no-name", "{modelID: m, scaleTargetRef: {kind: Deployment}}", "spec.scaleTargetRef.name"},
		{"empty-kind", "{modelID: m, scaleTargetRef: {kind: '', name: d}}", "spec.scaleTargetRef.kind"},
		{"empty-name", "{modelID: m, scaleTargetRef: {kind: Deployment, name: ''}}", "spec.scaleTargetRef.name"},
		{"empty-model", "{modelID: '', scaleTargetRef: {kind: Deployment, name: d}}", "spec.modelID"},
		{"misspelled", minimal + "replicas: 3\n", `unknown field "spec.replicas"`},
		{"long-api-version", "{modelID: m, scaleTargetRef: {apiVersion: " + long(318) + ", kind: Deployment, name: d}}", "spec.scaleTargetRef.apiVersion"},
		{"long-kind", "{modelID: m, scaleTargetRef: {kind: " + long(64) + ", name: d}}", "spec.scaleTargetRef.kind"},
		{"long-name", "{modelID: m, scaleTargetRef: {kind: Deployment, name: " + long(254) + "}}", "spec.scaleTargetRef.name"},
		{"long-model", "{scaleTargetRef: {kind: Deployment, name: d}, modelID: " + long(513) + "}", "spec.modelID"},
		{"variant-without-count", minimal + "variantID: llama-A100\n", "spec.variantID"},
		{"variant-with-zero", minimal + "variantID: llama-A100-0\n", "spec.variantID"},
		{"long-variant", minimal + "variantID: " + long(697) + "-A-1\n", "spec.variantID"},
		{"empty-accelerator", minimal + "accelerator: ''\n", "spec.accelerator"},
		{"long-accelerator", minimal + "accelerator: " + long(129) + "\n", "spec.accelerator"},
		{"no-accelerators", minimal + "acceleratorCount: 0\n", "spec.acceleratorCount"},
		{"many-accelerators", minimal + "acceleratorCount: 10001\n", "spec.acceleratorCount"},
		{"part-of-accelerator", minimal + "acceleratorCount: 0.5\n", "spec.acceleratorCount"},
		{"long-class", minimal + "sloClassRef: {name: " + long(254) + ", key: k}\n", "spec.sloClassRef.name"},
		{"long-class-key", minimal + "sloClassRef: {name: n, key: " + long(254) + "}\n", "spec.sloClassRef.key"},
		{"empty-class", minimal + "sloClassRef: {name: '', key: k}\n", "spec.sloClassRef.name"},
		{"no-batch", profile("maxBatchSize: 0"), "spec.variantProfile.maxBatchSize"},
		{"huge-batch", profile("maxBatchSize: 65537"), "spec.variantProfile.maxBatchSize"},
		{"empty-parameters", profile("perfParms: {decodeParms: {}}"), "decodeParms"},
		{"many-parameters", profile("perfParms: {prefillParms: {a: '', b: '', c: '', d: '', e: '', f: '', g: '', h: '', i: ''}}"), "prefillParms"},
		{"long-parameter", profile("perfParms: {decodeParms: {alpha: " + long(65) + "}}"), "decodeParms.alpha"},
		{"long-parameter-name", profile("perfParms: {prefillParms: {" + long(64) + ": '1'}}"), "names of parameters"},
		{"numeric-parameter", profile("perfParms: {decodeParms: {alpha: 20.58}}"), "decodeParms.alpha"},
		{"numeric-cost", minimal + "variantCost: 10\n", "spec.variantCost"},
		{"cost-without-number", minimal + "variantCost: cheap\n", "spec.variantCost"},
		{"negative-cost", minimal + "variantCost: '-1'\n", "spec.variantCost"},
		{"nan-cost", minimal + "variantCost: NaN\n", "spec.variantCost"},
		{"exponent-cost", minimal + "variantCost: '1e30'\n", "spec.variantCost"},
		{"huge-cost", minimal + "variantCost: '1" + strings.Repeat("0", 30) + "'\n", "spec.variantCost"},
		{"ten-million-cost", minimal + "variantCost: '10000000'\n", "spec.variantCost"},
		{"long-cost", minimal + "variantCost: '1." + strings.Repeat("0", 21) + "'\n", "spec.variantCost"},
		{"negative-min", minimal + "minReplicas: -1\n", "spec.minReplicas"},
		{"huge-min", minimal + "minReplicas: 100001\n", "spec.minReplicas"},
		{"no-max", minimal + "maxReplicas: 0\n", "spec.maxReplicas"},
		{"huge-max", minimal + "maxReplicas: 1000000000\n", "spec.maxReplicas"},
		{"overflowing-max", minimal + "maxReplicas: 100000000000000000000\n", "spec.maxReplicas"},
		{"max-below-min", minimal + "minReplicas: 3\nmaxReplicas: 2\n", "maxReplicas must not be less than minReplicas"},
		{"long-schedule", minimal + "schedule:\n" + strings.Repeat("- {cron: '* * * * *', duration: 1m, maxReplicas: 1}\n", 33), "spec.schedule"},
		{"entry-without-cron", entry("duration: 1h, minReplicas: 1"), "schedule[0].cron"},
		{"entry-without-duration", entry("cron: '* * * * *', minReplicas: 1"), "schedule[0].duration"},
		{"entry-without-bounds", entry("cron: '* * * * *', duration: 1h"), "minReplicas or maxReplicas is required"},
		{"entry-max-below-min", entry("cron: '* * * * *', duration: 1h, minReplicas: 3, maxReplicas: 2"), "maxReplicas must not be less than minReplicas"},
		{"entry-long-cron", entry("cron: " + long(129) + ", duration: 1h, minReplicas: 1"), "schedule[0].cron"},
		{"entry-long-zone", entry("cron: '* * * * *', timeZone: " + long(65) + ", duration: 1h, minReplicas: 1"), "schedule[0].timeZone"},
		{"entry-no-duration", entry("cron: '* * * * *', duration: soon, minReplicas: 1"), "schedule[0].duration"},
		{"entry-negative-duration", entry("cron: '* * * * *', duration: -1h, minReplicas: 1"), "must be a duration from 1m to 168h"},
		{"entry-short-duration", entry("cron: '* * * * *', duration: 59s, minReplicas: 1"), "must be a duration from 1m to 168h"},
		{"entry-long-duration", entry("cron: '* * * * *', duration: 169h, minReplicas: 1"), "must be a duration from 1m to 168h"},
		{"entry-huge-min", entry("cron: '* * * * *', duration: 1h, minReplicas: 100001"), "schedule[0].minReplicas"},
		{"entry-huge-max", entry("cron: '* * * * *', duration: 1h, maxReplicas: 100001"), "schedule[0].maxReplicas"},
		{"entry-no-max", entry("cron: '* * * * *', duration: 1h, maxReplicas: 0"), "schedule[0].maxReplicas"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := client.Create(t.Context(), variant(t, tt.name, tt.spec), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.ErrorContains(t, err, tt.want)
			assert.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), err)
		})
	}
}

// testPrinterColumns shows what kubectl prints.
func testPrinterColumns(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamicClient(t, c)
	_, err := client.Create(t.Context(), variant(t, "llama-8b-a100", seed), metav1.CreateOptions{})
	require.NoError(t, err)
	status := `{"status": {"decision": "Optimal", "currentAlloc": {"numReplicas": 2}, "desiredOptimizedAlloc": {"numReplicas": 3}, "conditions": [
		{"type": "MetricsAvailable", "status": "True", "reason": "MetricsFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
	_, err = c.Kubectl(t.Context(), "patch", "va", "llama-8b-a100", "--subresource=status", "--type=merge", "-p", status)
	require.NoError(t, err)
	text, err := c.Kubectl(t.Context(), "get", "va", "llama-8b-a100")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 2)
	assert.Equal(t, []string{"NAME", "MODEL", "VARIANTID", "ACCELERATOR", "CURRENTREPLICAS", "OPTIMIZED", "METRICSREADY", "REASON", "AGE"}, strings.Fields(lines[0]))
	row := strings.Fields(lines[1])
	assert.Equal(t, []string{"llama-8b-a100", "meta/llama-3.1-8b", "meta/llama-3.1-8b-A100-1", "A100", "2", "3", "True", "Optimal"}, row[:len(row)-1])
}

// testReleasedStatus writes the status of earlier versions: clients that write it must not be refused, and it can be read.
func testReleasedStatus(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := dynamicClient(t, c)
	_, err := client.Create(t.Context(), variant(t, "old", minimal), metav1.CreateOptions{})
	require.NoError(t, err)
	file, err := os.ReadFile("testdata/released-status.yaml")
	require.NoError(t, err)
	patch, err := yaml.YAMLToJSON(file)
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "patch", "va", "old", "--subresource=status", "--type=merge", "-p", string(patch))
	require.NoError(t, err)
	got, err := client.Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	var want map[string]any
	require.NoError(t, yaml.Unmarshal(file, &want))
	assert.Equal(t, normalized(t, want["status"]), normalized(t, got.Object["status"]), "the API server dropped a field")
}
