package crd

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/kubetest/cluster"
)

// releasedCRD is a CRD as released versions of the workload variant autoscaler install it.
const releasedCRD = "testdata/released-crd.yaml"

const (
	patience = 20 * time.Second
	tick     = 100 * time.Millisecond
)

// checkers returns a Checker that may get CRDs, and one that may not.
func checkers(t *testing.T, c *cluster.Cluster) map[string]*Checker {
	t.Helper()
	plain := c.RESTConfig()
	plain.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return map[string]*Checker{"from the CRD": newChecker(t, c.RESTConfig()), "from OpenAPI": newChecker(t, plain)}
}

func newChecker(t *testing.T, config *rest.Config) *Checker {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	return New(client.RESTClient())
}

// missingOfReleased are the fields that releasedCRD does not have.
var missingOfReleased = []string{
	"spec.variantID", "spec.accelerator", "spec.acceleratorCount", "spec.sloClassRef", "spec.variantProfile", "spec.schedule",
	"status.observedGeneration", "status.currentAlloc", "status.desiredOptimizedAlloc.lastUpdate", "status.decision", "status.predicted",
}

// TestReleasedCRD installs a released CRD, finds that it drops fields, and applies the remedy.
func TestReleasedCRD(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	checkers := checkers(t, c)
	for name, checker := range checkers {
		state, err := checker.Check(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, State{}, state, name)
	}
	install(t, c, releasedCRD)

	want := State{Installed: true, Missing: missingOfReleased, Defaults: []string{"spec.variantCost", "spec.minReplicas", "spec.maxReplicas"}}
	for name, checker := range checkers {
		awaitState(t, name, checker, want)
	}
	client := dynamicClient(t, c)
	object, err := client.Create(t.Context(), variant(t, "llama", scheduled+"accelerator: A100\n"), metav1.CreateOptions{})
	require.NoError(t, err)
	dropped, _, err := unstructured.NestedMap(object.Object, "spec")
	require.NoError(t, err)
	assert.NotContains(t, dropped, "schedule")
	assert.NotContains(t, dropped, "accelerator")
	assert.EqualValues(t, 10, dropped["maxReplicas"])

	// The remedy replaces all of the schema, though another program has made it.
	arguments := strings.Fields(strings.ReplaceAll(Remedy, "charts/variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml", chartCRD))
	_, err = c.Kubectl(t.Context(), arguments[1:]...)
	require.NoError(t, err)
	for name, checker := range checkers {
		awaitState(t, name, checker, State{Installed: true})
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		created, err := client.Create(t.Context(), variant(t, "", scheduled), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if assert.NoError(collect, err) {
			assert.Contains(collect, created.Object["spec"], "schedule")
			assert.NotContains(collect, created.Object["spec"], "maxReplicas")
		}
	}, patience, tick)
	// Objects keep the defaults that were in force when they were made.
	object, err = client.Get(t.Context(), "llama", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 10, object.Object["spec"].(map[string]any)["maxReplicas"])
}

// awaitState waits for a state: the API server publishes OpenAPI documents some time after a change.
func awaitState(t *testing.T, name string, checker *Checker, want State) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		state, err := checker.Check(t.Context())
		assert.NoError(collect, err)
		assert.Equal(collect, want, state)
	}, patience, tick, name)
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
			assert.EqualError(t, tt.give.Err(), tt.want)
		})
	}
	assert.NoError(t, (&State{Installed: true}).Err())
}

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
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := map[string]string{crdPath: tt.crd, openAPIPath: tt.openAPI}[r.URL.Path]
				if answer == "" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = w.Write([]byte(answer))
			}))
			t.Cleanup(server.Close)
			state, err := newChecker(t, &rest.Config{Host: server.URL}).Check(t.Context())
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
