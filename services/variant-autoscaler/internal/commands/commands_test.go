package commands

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"fairlead.dev/pkg/dryrun"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// TestPlanShowsConfigMaps: plan --cluster prints each ConfigMap that it looked for, found or not.
func TestPlanShowsConfigMaps(t *testing.T) {
	t.Parallel()
	configMap := func(name string, data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "system", "name": name}, "data": data,
		}}
	}
	w := &dryrun.World{}
	w.Objects = []*unstructured.Unstructured{
		configMap("kube-root-ca.crt", nil), configMap("a-accelerator-unit-costs", nil), configMap("b-accelerator-unit-costs", nil),
		configMap("wva-service-classes-config", map[string]any{"premium.yaml": "data: [{model: m, slo-ttft: 500}]", "bad": "["}),
	}
	var log strings.Builder
	s := settingsOf(w, settings.Options{Namespace: "system"}, &log)
	class, problem := s.Class("a", "m", "")
	require.Nil(t, problem)
	assert.InDelta(t, 500, class.Targets.TTFT, 0)
	text := log.String()
	for _, want := range []string{
		"ConfigMap system/workload-variant-autoscaler-variantautoscaling-config (optimization): not found\n", "ConfigMap system/*-variantautoscaling-config (optimization): not found\n",
		"ConfigMap system/a-accelerator-unit-costs (accelerators): ignored, as several ConfigMaps of this kind exist: a-accelerator-unit-costs, b-accelerator-unit-costs; name one",
		"ConfigMap system/accelerator-unit-costs (accelerators): not found\n", "ConfigMap system/service-classes-config (classes): not found\n",
		"ConfigMap system/wva-service-classes-config (classes): in force\n", `ConfigMap system/wva-service-classes-config: key "bad": ignored: line 1, column 1: it is not YAML: `,
		"ConfigMap system/variant-autoscaler-limits (limits): not found\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "kube-root-ca.crt")
	assert.NotContains(t, text, "*-service-classes-config (classes)", "it was found")
}

// TestPlanReadsInventory: nodes and quotas are read for the limiter alone, and a user who may not list them learns it.
func TestPlanReadsInventory(t *testing.T) {
	t.Parallel()
	inventory := slices.DeleteFunc(informers.Declare("").EnabledKinds(), func(k kit.Kind) bool { return k.Required })
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "a"}}}
	queue := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": map[string]any{"name": "a"}}}
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range inventory {
		lists[k.Resource] = k.Name + "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, node, queue)
	w, err := dryrun.ReadCluster(t.Context(), client, inventory)
	require.NoError(t, err)
	caches, err := informers.Declare("").Read(w.Snapshot)
	require.NoError(t, err)
	assert.True(t, caches.Nodes.Listed())
	assert.Len(t, caches.Nodes.List(), 1)
	assert.Len(t, caches.ClusterQueues.List(), 1)
	assert.False(t, caches.Pods.Listed(), "other kinds were not read")

	kubetest.FailAlways(client, "list", "nodes", apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no role")))
	w, err = dryrun.ReadCluster(t.Context(), client, inventory)
	require.NoError(t, err)
	caches, err = informers.Declare("").Read(w.Snapshot)
	require.NoError(t, err)
	assert.False(t, caches.Nodes.Listed())
	assert.Contains(t, w.Skipped[0], "nodes: skipped, because this user may not list them")
}

const recorded = `{"snapshot":{"settings":{"split":"capacity"},"groups":[{"namespace":"ns","model":"m","priority":1,"targets":{"itlMs":100},` +
	`"load":{"state":"MetricsFound","rate":20000000,"inputTokens":100,"outputTokens":100},"variants":[` +
	`{"namespace":"ns","name":"big","cards":1,"cost":40000000,"now":1,"ready":1,"profile":{"alpha":10,"maxBatch":16}},` +
	`{"namespace":"ns","name":"small","cards":1,"cost":23000000,"now":1,"ready":1,"profile":{"alpha":20,"maxBatch":16}}]}]}}`

func TestPlan(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "now.json")
	require.NoError(t, os.WriteFile(file, []byte(recorded), 0o600))
	run := func(args ...string) (string, error) {
		var out, log bytes.Buffer
		command := New(strings.NewReader(recorded), &out, &log)
		command.SetArgs(append([]string{"plan"}, args...))
		err := command.Execute()
		return out.String(), err
	}
	text, err := run("--snapshot=" + file)
	require.NoError(t, err)
	assert.Contains(t, text, "cost per hour: plan 63")
	assert.NotContains(t, text, "changes against the snapshot")

	text, err = run("--snapshot=-", "--cost=ns/big=100", "--output=table")
	require.NoError(t, err)
	assert.Contains(t, text, "changes against the snapshot:")
	assert.Regexp(t, `ns/big +1 -> 0`, text)

	text, err = run("--snapshot=-", "--headroom-percent=100")
	require.NoError(t, err)
	assert.Contains(t, text, "changes against the snapshot:", "of a snapshot, the flags are questions")

	asJSON, err := run("--snapshot=-", "--rate=ns/m=40", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, asJSON, `"rate":40000000`)
	again, err := run("--snapshot="+file, "--rate=ns/m=40", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t, asJSON, again, "the same snapshot gives the same decision")

	for want, args := range map[string][]string{
		"at least one of the flags":        {},
		"none of the others can be":        {"--snapshot=-", "--cluster"},
		`--output "yaml" is not one of`:    {"--snapshot=-", "--output=yaml"},
		"no such file":                     {"--snapshot=" + file + "x"},
		"the snapshot has nothing of this": {"--snapshot=-", "--max=ns/x=1"},
		"--split \"half\" is not one of":   {"--snapshot=-", "--split=half"},
		"unknown command":                  {"now"},
		"kubeconfig":                       {"--cluster", "--kubeconfig=" + file + "x"},
	} {
		_, err := run(args...)
		require.ErrorContains(t, err, want, args)
	}
}
