package schema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/schema"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	const budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {"
	const pool = "{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, "
	validator, err := schema.New("1.34")
	require.NoError(t, err)
	tests := []struct {
		name string
		give string
		want string // in the error; empty: none
	}{
		{name: "built-in kind", give: budget + "maxUnavailable: 1}}"},
		{name: "unknown field", give: budget + "maxUnavailible: 1}}", want: "maxUnavailible"},
		{name: "wrong type", give: budget + "selector: a}}", want: "/spec/selector"},
		{name: "required field", give: "{apiVersion: apps/v1, kind: Deployment, spec: {template: {}}}", want: "selector"},
		{name: "unknown kind", give: "{apiVersion: apps/v1, kind: Deploy}", want: "no schema"},
		{name: "custom resource", give: pool + "targetPorts: [{number: 8000}], endpointPickerRef: {name: a, port: {number: 1}}}}"},
		{name: "unknown field of a custom resource", give: pool + "targetPorts: [{number: 8000, name: a}]}}", want: "name"},
		{name: "value out of range in a custom resource", give: pool + "targetPorts: [{number: 80000}]}}", want: "maximum"},
		{
			name: "unknown field of metadata",
			give: "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {lables: {}}, spec: {selector: {}, endpoints: []}}", want: "lables",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := helm.Objects([]byte(tt.give))
			require.NoError(t, err)
			require.Len(t, objects, 1)
			err = validator.Validate(objects[0])
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
