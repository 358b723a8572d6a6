package picker_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// TestEnvoyGateway is the picker as the backend of a plain HTTPRoute, behind Envoy Gateway and Envoy AI Gateway. The Envoy that
// they program goes to the one address that the picker names: there is no subset, no fallback and no retry.
func TestEnvoyGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: TestEnvoy sends the same requests through an Envoy with a bootstrap of its own")
	}
	t.Parallel()
	c := cluster.Start(t, cluster.Nodes(2), stack.PublishGateway("127.0.0.1:0"))
	s, err := stack.InstallGateway(t.Context(), c, stack.Options{Tag: tag, Servers: 3, Model: plainTokens})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	before := gatewayCounters(t, c)
	t.Run("objects", func(t *testing.T) { assertAccepted(t, c) })
	all := slices.Concat(exchanges(), exchangesWithTrailers())
	t.Run("requests of every size and kind", func(t *testing.T) { assertExchanges(t, c, s.Gateway(), all) })
	t.Run("completions", func(t *testing.T) { assertCompletions(t, s.Gateway()) })
	t.Run("everything is replaced", func(t *testing.T) { assertNothingIsLost(t, c, s) })
	t.Run("a server that dies", func(t *testing.T) { assertLittleIsLost(t, c, s.Gateway()) })
	assertUnderstood(t, before, gatewayCounters(t, c), len(all)+100)
}

// assertAccepted waits for what the controllers say of the objects.
func assertAccepted(t *testing.T, c *cluster.Cluster) {
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	tests := []struct {
		name  string
		group string
		kind  string // in plural
	}{
		{name: "models", group: "gateway.networking.k8s.io", kind: "httproutes"},
		{name: "models", group: "inference.networking.k8s.io", kind: "inferencepools"},
	}
	for _, tt := range tests {
		resource := client.Resource(schema.GroupVersionResource{Group: tt.group, Version: "v1", Resource: tt.kind}).Namespace(metav1.NamespaceDefault)
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			object, err := resource.Get(t.Context(), tt.name, metav1.GetOptions{})
			require.NoError(collect, err)
			require.Subset(collect, trueConditions(object.Object), []string{"Accepted", "ResolvedRefs"}, tt.kind)
		}, kubetest.Patience, tick)
	}
}

// trueConditions are the conditions that hold for every parent of a route or a pool.
func trueConditions(object map[string]any) []string {
	status, _ := object["status"].(map[string]any)
	parents, _ := status["parents"].([]any)
	count := map[string]int{}
	for _, parent := range parents {
		fields, _ := parent.(map[string]any)
		conditions, _ := fields["conditions"].([]any)
		for _, condition := range conditions {
			fields, _ := condition.(map[string]any)
			if kind, _ := fields["type"].(string); fields["status"] == "True" {
				count[kind]++
			}
		}
	}
	var out []string
	for kind, n := range count {
		if n == len(parents) {
			out = append(out, kind)
		}
	}
	return out
}

// assertNothingIsLost replaces the model servers and then the picker under load.
func assertNothingIsLost(t *testing.T, c *cluster.Cluster, s *stack.Stack) {
	finish := startLoad(t, shortStreams(s.Gateway()))
	require.NoError(t, stack.WaitRunning(t.Context(), c, 8))
	require.NoError(t, s.UpgradeServers(t.Context(), nextTag))
	require.NoError(t, s.UpgradePicker(t.Context(), nextTag))
	require.NoError(t, stack.WaitOnly(t.Context(), c, nextTag, stack.ServerImage, stack.PickerImage))
	report, _ := finish()
	assert.Zero(t, report.Failed(), "%v %v", report.Failures, report.Examples)
	assert.Len(t, report.Servers, 6, "old and new servers")
}

// assertLittleIsLost kills a model server under load. Lost are the answers that it had begun and, as this Envoy does not try
// again, the requests that were sent to it before the picker heard of its end, which fail with a status. None
// fails once the server is back. That the picker picks no pod that is not ready is shown by its own tests.
func assertLittleIsLost(t *testing.T, c *cluster.Cluster, gateway string) {
	finish := startLoad(t, shortStreams(gateway))
	require.NoError(t, stack.WaitRunning(t.Context(), c, 8))
	v := killServer(t, c)
	back := waitRestarted(t, c, v)
	_, results := finish()

	begun, refused := 0, 0
	for _, r := range results {
		if r.Class == chatload.ClassNone {
			continue
		}
		if r.Start.Before(v.killed) && r.Class != chatload.ClassStatus {
			begun++
			assert.Contains(t, []chatload.Class{chatload.ClassReset, chatload.ClassTruncated}, r.Class, "%v", r.Err)
			assert.Equal(t, v.address, r.ServedEndpoint)
			continue
		}
		refused++
		assert.Equal(t, http.StatusServiceUnavailable, r.Status, "%v", r.Err)
		assert.True(t, r.Start.Before(back), "request %d began %s after the victim was ready again", r.Index, r.Start.Sub(back))
	}
	assert.Positive(t, begun+refused, "no request met the death: the test shows nothing")
	t.Logf("of %d requests, %d lost their answer and %d were refused", len(results), begun, refused)
}
