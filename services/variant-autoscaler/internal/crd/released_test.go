//go:build system

package crd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// releasedCRD is a CRD as released versions of the workload variant autoscaler install it.
const releasedCRD = "testdata/released-crd.yaml"

const tick = 100 * time.Millisecond

// checkers returns a Checker that may get CRDs, and one that may not.
func checkers(t *testing.T, c *cluster.Cluster) map[string]*Checker {
	t.Helper()
	plain := c.RESTConfig()
	plain.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return map[string]*Checker{"from the CRD": newChecker(t, c.RESTConfig()), "from OpenAPI": newChecker(t, plain)}
}

// missingOfReleased are the fields that releasedCRD does not have.
var missingOfReleased = []string{
	"spec.variantID", "spec.accelerator", "spec.acceleratorCount", "spec.sloClassRef", "spec.variantProfile", "spec.schedule",
	"status.observedGeneration", "status.currentAlloc", "status.desiredOptimizedAlloc.lastUpdate", "status.decision", "status.predicted", "status.startSeconds",
}

// testReleasedCRD installs a released CRD, finds that it drops fields, and applies the remedy.
func testReleasedCRD(t *testing.T, c *cluster.Cluster) {
	t.Helper()
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
	}, kubetest.Patience, tick)
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
	}, kubetest.Patience, tick, name)
}
