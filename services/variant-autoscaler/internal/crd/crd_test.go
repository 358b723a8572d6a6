package crd

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// chartCRD is the CRD of the chart.
const chartCRD = "../../../../charts/variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml"

func newChecker(t *testing.T, config *rest.Config) *Checker {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	return New(client.RESTClient())
}

// TestErr shows what operators read.
func TestErr(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give State
		want string
	}{
		{"absent", State{}, "the cluster does not have the CRD variantautoscalings.llmd.ai: run `" + Remedy + "`"},
		{
			"fields", State{Installed: true, Missing: []string{"spec.schedule", "status.decision"}},
			"the CRD variantautoscalings.llmd.ai is of another version: it lacks spec.schedule, status.decision. Helm does not upgrade CRDs: run `" + Remedy + "`",
		},
		{
			"fields and defaults", State{Installed: true, Missing: []string{"spec.schedule"}, Defaults: []string{"spec.maxReplicas"}},
			"the CRD variantautoscalings.llmd.ai is of another version: it lacks spec.schedule, and sets defaults of spec.maxReplicas. Helm does not upgrade CRDs: run `" + Remedy + "`",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.EqualError(t, tt.give.AsError(), tt.want)
		})
	}
	assert.NoError(t, (&State{Installed: true}).AsError())
}

// roundTripper answers requests.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCheckOfOtherAnswers checks answers that an API server with this Kubernetes version does not give.
func TestCheckOfOtherAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, crd, openAPI string // an empty answer: 403
		want               State
		err                string
	}{
		{name: "other version", crd: `{"spec": {"versions": [{"name": "v1", "served": true}]}}`},
		{name: "version not served", crd: `{"spec": {"versions": [{"name": "v1alpha1"}]}}`},
		{
			name: "no subresource", crd: `{"spec": {"versions": [{"name": "v1alpha1", "served": true, "schema": {"openAPIV3Schema": {"properties": {
				"spec": {"x-kubernetes-preserve-unknown-fields": true}, "status": {"x-kubernetes-preserve-unknown-fields": true}}}}}]}}`,
			want: State{Installed: true, Missing: []string{"the subresource status"}},
		},
		{
			name: "empty schema", crd: `{"spec": {"versions": [{"name": "v1alpha1", "served": true, "subresources": {"status": {}}}]}}`,
			want: State{Installed: true, Missing: []string{"spec", "status"}},
		},
		{name: "no JSON", crd: `{`, err: "decode CRD variantautoscalings.llmd.ai"},
		{name: "no permission", err: "get OpenAPI document of llmd.ai/v1alpha1"},
		{name: "OpenAPI without the kind", openAPI: `{"components": {"schemas": {"a": {}}}}`, err: "has no VariantAutoscaling yet"},
		{
			name: "OpenAPI without the subresource", openAPI: `{"components": {"schemas": {"a": {
				"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}, "status": {"x-kubernetes-preserve-unknown-fields": true}},
				"x-kubernetes-group-version-kind": [{"group": "llmd.ai", "version": "v1alpha1", "kind": "VariantAutoscaling"}]}}}}`,
			want: State{Installed: true, Missing: []string{"the subresource status"}},
		},
		{name: "OpenAPI is no JSON", openAPI: `{`, err: "decode OpenAPI document of llmd.ai/v1alpha1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := roundTripper(func(r *http.Request) (*http.Response, error) {
				answer, w := map[string]string{crdPath: tt.crd, openAPIPath: tt.openAPI}[r.URL.Path], httptest.NewRecorder()
				if answer == "" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, err := w.WriteString(answer)
				return w.Result(), err
			})
			state, err := newChecker(t, &rest.Config{Transport: server}).Check(t.Context())
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, state)
		})
	}
}

// TestMissingFields removes fields of the chart's CRD.
func TestMissingFields(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path []string // properties; "[]" are the items of a list
		want []string
	}{
		{[]string{"spec", "schedule"}, []string{"spec.schedule"}},
		{[]string{"spec", "schedule", "[]", "timeZone"}, []string{"spec.schedule.timeZone"}},
		{[]string{"spec", "variantProfile", "perfParms", "decodeParms"}, []string{"spec.variantProfile.perfParms.decodeParms"}},
		{[]string{"status", "desiredOptimizedAlloc", "lastUpdate", "reason"}, []string{"status.desiredOptimizedAlloc.lastUpdate.reason"}},
		{[]string{"status", "currentAlloc", "numReplicas"}, []string{"status.currentAlloc.numReplicas"}},
		{[]string{"status", "currentAlloc", "load"}, nil}, // deprecated
		{[]string{"status", "currentAlloc", "ttftAverage"}, nil},
		{[]string{"spec", "unknown"}, nil},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.path, "."), func(t *testing.T) {
			t.Parallel()
			file, err := os.ReadFile(chartCRD)
			require.NoError(t, err)
			var crd struct {
				Spec struct {
					Versions []struct {
						Schema struct {
							Schema node `json:"openAPIV3Schema"`
						} `json:"schema"`
					} `json:"versions"`
				} `json:"spec"`
			}
			require.NoError(t, yaml.Unmarshal(file, &crd))
			schema := &crd.Spec.Versions[0].Schema.Schema
			parent, last := schema, len(tt.path)-1
			for _, name := range tt.path[:last] {
				parent = map[bool]*node{true: parent.Items, false: parent.Properties[name]}[name == "[]"]
			}
			delete(parent.Properties, tt.path[last])
			assert.Equal(t, State{Installed: true, Missing: tt.want}, stateOf(schema))
		})
	}
}
