package endpointpicker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
)

// TestSGLangExample checks that the example has only known fields, and the settings that docs/services/endpoint-picker-model-servers.md asks for.
func TestSGLangExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(helm.Repository(), "deploy", "examples", "inference", "sglang.yaml"))
	require.NoError(t, err)
	var d appsv1.Deployment
	require.NoError(t, sigsyaml.UnmarshalStrict(text, &d))
	pod := d.Spec.Template
	assert.Equal(t, d.Spec.Selector.MatchLabels["app"], pod.Labels["app"])
	assert.Equal(t, "sglang", pod.Labels["llm-d.ai/engine-type"])
	require.Len(t, pod.Spec.Containers, 1)
	server := pod.Spec.Containers[0]
	assert.Subset(t, server.Args, []string{"--enable-metrics", "--enable-cache-report", "--host=0.0.0.0", "--port=8000"})
	require.NotNil(t, server.Lifecycle.PreStop.Sleep)
	assert.Greater(t, *pod.Spec.TerminationGracePeriodSeconds, server.Lifecycle.PreStop.Sleep.Seconds+60)
	assert.Equal(t, "/health", server.ReadinessProbe.HTTPGet.Path)
	assert.NotNil(t, server.StartupProbe)
	assert.Nil(t, server.LivenessProbe.HTTPGet, "its health fails while it finishes requests")
}
