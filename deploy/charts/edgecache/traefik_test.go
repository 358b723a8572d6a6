package edgecache_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// traefikChart is a folder with Traefik's own chart. The file of its output is compared with it, if it is set.
const traefikChart = "FAIRLEAD_TRAEFIK_CHART"

// chartOutput is what a whole-system test runs: the output of Traefik's chart with the values of the example.
func chartOutput(t *testing.T) objects.Set {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(helm.Repository(), "deploy/local/e2e/edge/testdata/traefik-chart.yaml"))
	require.NoError(t, err)
	set, err := helm.Objects(raw)
	require.NoError(t, err)
	return set
}

func exampleValues(t *testing.T) helm.Values {
	t.Helper()
	v, err := helm.ReadValues(filepath.Join(helm.Repository(), "deploy/examples/edge-cache/traefik-values.yaml"))
	require.NoError(t, err)
	return v
}

// typed converts a part of values.
func typed[T any](t *testing.T, from any) T {
	t.Helper()
	var to struct {
		Part T `json:"part"`
	}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"part": from}, &to))
	return to.Part
}

// TestTraefikValues checks that the output that the whole-system test runs is that of the documented values: each of them is in it.
func TestTraefikValues(t *testing.T) {
	t.Parallel()
	values, set := exampleValues(t), chartOutput(t)
	pod := objects.The[appsv1.Deployment](t, set).Spec.Template.Spec
	deployment := values["deployment"].(map[string]any)
	assert.Equal(t, typed[[]corev1.Container](t, deployment["initContainers"]), pod.InitContainers)
	for _, v := range typed[[]corev1.Volume](t, deployment["additionalVolumes"]) {
		assert.Contains(t, pod.Volumes, v)
	}
	require.Len(t, pod.Containers, 1)
	traefik := pod.Containers[0]
	for _, m := range typed[[]corev1.VolumeMount](t, values["additionalVolumeMounts"]) {
		assert.Contains(t, traefik.VolumeMounts, m)
	}
	for _, a := range values["additionalArguments"].([]any) {
		assert.Contains(t, traefik.Args, a)
	}
	assert.Equal(t, typed[map[string]string](t, values["nodeSelector"]), pod.NodeSelector)
	assert.Equal(t, values["serviceAccount"].(map[string]any)["name"], pod.ServiceAccountName)
	assert.Equal(t, typed[corev1.PodSecurityContext](t, values["podSecurityContext"]).FSGroup, pod.SecurityContext.FSGroup)
	class := values["ingressClass"].(map[string]any)["name"].(string)
	assert.Equal(t, class, objects.The[networkingv1.IngressClass](t, set).Name)
	assert.Contains(t, traefik.Args, "--providers.kubernetesingress.ingressClass="+class)

	// Each container has something at the path of the token, so Kubernetes mounts none.
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		assert.True(t, slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == serviceAccountPath }), c.Name)
	}
}

// TestTraefikChartOutput renders Traefik's own chart, where it is at hand.
func TestTraefikChartOutput(t *testing.T) {
	t.Parallel()
	chart := os.Getenv(traefikChart)
	if chart == "" {
		t.Skip(traefikChart + " is not set to a folder with Traefik's chart")
	}
	raw, err := helm.Run(exampleValues(t), "template", "hangzhou", chart, "--namespace", "ingress")
	require.NoError(t, err)
	want, err := helm.Objects([]byte(raw))
	require.NoError(t, err)
	assert.Equal(t, objects.Set(want), chartOutput(t))
}
