package syncer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

const (
	pickers      = 2
	pickerLabels = "app.kubernetes.io/name=endpoint-picker"
	proxyPort    = "8080"

	streams      = 16
	streamTokens = 60 // of each answer; at 100 ms a token that is 6 s
)

// While the objects are created, work requests are quick.
const setupWork = `{"latency": "200ms", "latencyTail": "200ms"}`

var (
	// pickerDrain outlasts the propagation to the load balancer, as the hook of model servers without a picker does.
	pickerDrain   = []string{"drain.delay=15s", "proxy.forwardedHeaders=append"}
	pickerNoDrain = []string{"drain.delay=0s", "drain.timeout=0s"}
)

// pickerRoll is what came of one roll of the pickers under load.
type pickerRoll struct {
	report  *chatload.Report
	results []chatload.Result
}

// TestGateway_NoStreamIsLostWhilePickersAreReplaced sends streams through a load balancer that the syncer has programmed from a Gateway and an
// HTTPRoute to an InferencePool. The backends are the proxy listeners of its picker. The model servers are replaced first.
func TestGateway_NoStreamIsLostWhilePickersAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: rolls take a minute")
	}
	t.Parallel()
	got := rollPickers(t, pickerDrain...)
	assert.Zero(t, got.report.Failed(), "%v %v", got.report.Failures, got.report.Examples)
	assert.GreaterOrEqual(t, got.report.Total.Requests, 2*streams, "the load did not span the roll")
	for _, r := range got.results {
		assert.Equal(t, streamTokens, r.Tokens)
		assert.Equal(t, r.PickedEndpoint, r.ServedEndpoint)
	}
}

func TestGateway_WithoutDrainStreamsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: rolls take a minute")
	}
	t.Parallel()
	got := rollPickers(t, pickerNoDrain...)
	assert.Positive(t, got.report.Failed(), "nothing was lost: the drain makes no difference")
}

// rollPickers replaces the pickers under load, after the model servers.
func rollPickers(t *testing.T, values ...string) pickerRoll {
	t.Helper()
	s := startSystem(t)
	models := s.serveGateway(values)
	load := stack.StartLoad(t.Context(), chatload.Options{
		BaseURL: models.Gateway(), Model: stack.Model, Concurrency: streams, MaxTokens: streamTokens, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 4, SharedTokens: 64, Seed: 1},
	})
	require.NoError(t, stack.WaitRunning(t.Context(), s.Cluster, streams))
	require.NoError(t, models.UpgradeServers(t.Context(), nextTag))
	require.NoError(t, stack.WaitOnly(t.Context(), s.Cluster, nextTag, stack.ServerImage))
	require.NoError(t, models.UpgradePicker(t.Context(), nextTag))
	require.NoError(t, stack.WaitOnly(t.Context(), s.Cluster, nextTag, stack.PickerImage))
	s.routedTo(nextTag)
	for _, address := range s.addresses(pickerLabels, nextTag, "9090") {
		page, err := stack.Fetch(t.Context(), s.Cluster, address, "/metrics")
		require.NoError(t, err)
		assert.Positive(t, stack.Sum(page, "fairlead_picker_picks_total"), "the picker %s gets requests", address)
	}
	report, results, err := load.Finish()
	require.NoError(t, err)
	t.Logf("%d requests in %s, %d failed: %v", report.Total.Requests, report.Elapsed.Round(time.Second), report.Failed(), report.Failures)
	s.assertLeastPrivilege()
	return pickerRoll{report, results}
}

// serveGateway installs model servers, their picker with helm values, and the syncer, and waits until the load balancer sends requests to all
// pickers.
func (s *system) serveGateway(values []string) *stack.Stack {
	s.t.Helper()
	s.change("modes", setupWork)
	s.change("loadBalancers/"+loadBalancer, `{"compartmentId": "ocid1.compartment.oc1..e2e", "displayName": "e2e"}`) // as Terraform would
	require.NoError(s.t, stack.InstallGatewayAPI(s.t.Context(), s.Cluster))
	var models *stack.Stack
	var g errgroup.Group
	g.Go(func() (err error) {
		models, err = stack.InstallProxies(s.t.Context(), s.Cluster, stack.Options{
			Tag: tag, Servers: servers, Model: []string{"--step-base=100ms", "--step-per-seq=0s"}, Picker: values,
		})
		return err
	})
	s.install("gateways.enabled=true", "config.loadBalancers[0].gateways.namespaces={default}", "discoveryInterval=1s") // InferencePools come later
	require.NoError(s.t, g.Wait())
	require.NoError(s.t, s.Apply(s.t.Context(), file(s.t, "gateway.yaml")))
	_, err := s.Kubectl(s.t.Context(), "wait", "--for=condition=Programmed", "gateways.gateway.networking.k8s.io/inference", stack.WaitTimeout)
	require.NoError(s.t, err)
	require.NoError(s.t, models.WaitGateway(s.t.Context()))
	s.routedTo(tag)
	s.change("modes", usualWork)
	return models
}

// routedTo waits until a backend set has exactly the pickers with an image.
func (s *system) routedTo(tag string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		want := s.addresses(pickerLabels, tag, proxyPort)
		require.Len(c, want, pickers)
		var found []backends
		for _, b := range s.backendSets() {
			found = append(found, b)
		}
		require.True(c, slices.ContainsFunc(found, func(b backends) bool {
			slices.Sort(b.active)
			return slices.Equal(b.active, slices.Sorted(slices.Values(want))) && len(b.draining) == 0
		}), "want %v, the sets are %v", want, found)
	}, kubetest.Patience, tick)
}
