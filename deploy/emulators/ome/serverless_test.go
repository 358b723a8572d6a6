package ome

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/golden"
)

func TestAdmissionSetsDefaults(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		"{spec: {engine: {}}}":               "{metadata: {annotations: {ome.io/deploymentMode: RawDeployment}}, spec: {engine: {minReplicas: 1, maxReplicas: 3}}}",
		"{spec: {engine: {minReplicas: 0}}}": "{metadata: {annotations: {ome.io/deploymentMode: RawDeployment}}, spec: {engine: {minReplicas: 0, maxReplicas: 3}}}",
		"{spec: {engine: {}, decoder: {}}}":  "{metadata: {annotations: {ome.io/deploymentMode: PDDisaggregated}}, spec: {engine: {minReplicas: 1, maxReplicas: 3}, decoder: {minReplicas: 1, maxReplicas: 3}}}",
		"{spec: {predictor: {}}}":            "{metadata: {annotations: {ome.io/deploymentMode: RawDeployment}}, spec: {predictor: {}}}",
		"{metadata: {annotations: {ome.io/deploymentMode: VirtualDeployment}}, spec: {router: {}}}": "{metadata: {annotations: {ome.io/deploymentMode: VirtualDeployment}}, spec: {router: {minReplicas: 1, maxReplicas: 2}}}",
	} {
		u := &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(give))}
		admit(u)
		got, err := json.Marshal(u.Object)
		require.NoError(t, err)
		expected, err := yaml.YAMLToJSON([]byte(want))
		require.NoError(t, err)
		assert.JSONEq(t, string(expected), string(got), give)
	}
}

// OME copies annotations of an InferenceService to its Services, except those for pods.
func TestAnnotationsOfServices(t *testing.T) {
	t.Parallel()
	s := parse(t, Release12, ", annotations: {traefik.ingress.kubernetes.io/service.serversscheme: h2c, prometheus.io/scrape: 'true', ome.io/inject-model-init: 'true'}", "engine: {}")
	list, err := components(s, &Options{Release: Release12})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"traefik.ingress.kubernetes.io/service.serversscheme": "h2c"}, buildService(s, &list[0]).Annotations)
	assert.Contains(t, buildDeployment(s, &list[0], &Options{}).Spec.Template.Annotations, "prometheus.io/scrape")
}
