// Package picker_test tests the endpoint picker as its users meet it: behind a real Envoy, in front of model servers that
// come and go, installed by its chart.
package picker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tag     = "race"
	nextTag = "race-next"

	streams   = 32
	tokens    = 110 // of each answer; at 100 ms a token that is 11 s
	minStream = 10 * time.Second
	settle    = 3 * time.Minute
	tick      = 250 * time.Millisecond
)

// slowSteps make a token take a tenth of a second, so that streams are long and cost little.
var slowSteps = []string{"--step-base=100ms", "--step-per-seq=0s"}

// These helm values switch the draining off, of the model servers and of the picker.
var (
	serversNoDrain = []string{"drain.preStopSeconds=0", "drain.shutdownTimeoutSeconds=0"}
	pickerNoDrain  = []string{"drain.delay=0s", "drain.timeout=0s"}
)

// rolled is what came of one roll of everything under load.
type rolled struct {
	report  *chatload.Report
	results []chatload.Result
	picks   float64
	before  map[string]float64 // Envoy's counters about the picker
	after   map[string]float64
}

// rollEverything sends long completions without a pause, through an Envoy that does not retry, while the model servers and then the picker are replaced by those
// of another tag, until the old ones have gone.
func rollEverything(t *testing.T, o stack.Options) rolled {
	t.Helper()
	c := cluster.Start(t, cluster.Nodes(2), stack.Publish("127.0.0.1:0"))
	o.Tag, o.Servers, o.Model = tag, 3, append(o.Model, slowSteps...)
	s, err := stack.Install(t.Context(), c, o)
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	picks, out := watchPicks(t, c), rolled{before: extProcCounters(t, c)}
	finish := startLoad(t, chatload.Options{
		BaseURL: s.Gateway(), Model: stack.Model, Concurrency: streams, MaxTokens: tokens, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: time.Minute, Prompts: chatload.Prompts{Groups: 4, SharedTokens: 64, Seed: 1},
	})
	waitRunning(t, c, streams)
	require.NoError(t, s.UpgradeServers(t.Context(), nextTag))
	require.NoError(t, s.UpgradePicker(t.Context(), nextTag))
	waitOnly(t, c, nextTag)
	out.report, out.results = finish()
	out.picks, out.after = picks(), extProcCounters(t, c)
	return out
}

// waitOnly waits until all pods with images of the tests have one tag: the old pods have finished their requests.
func waitOnly(t *testing.T, c *cluster.Cluster, tag string) {
	t.Helper()
	client := c.Clientset()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		for _, p := range pods.Items {
			if image, ours := strings.CutPrefix(p.Spec.Containers[0].Image, stack.Registry()+"/"); ours {
				require.True(collect, strings.HasSuffix(image, ":"+tag), "%s has %s", p.Name, image)
			}
		}
	}, settle, tick)
}

func TestRoll_NoStreamIsLostWhileEverythingIsReplaced(t *testing.T) {
	t.Parallel()
	got := rollEverything(t, stack.Options{})
	require.Zero(t, got.report.Failed(), "%v %v", got.report.Failures, got.report.Examples)
	assert.GreaterOrEqual(t, got.report.Total.Requests, 2*streams, "the load did not span the roll")
	for _, r := range got.results {
		assert.GreaterOrEqual(t, r.Duration, minStream, "stream %d was short", r.Index)
		assert.Equal(t, tokens, r.Tokens)
		assert.Equal(t, r.PickedEndpoint, r.ServedEndpoint)
	}
	assert.GreaterOrEqual(t, got.picks, float64(got.report.Total.Requests), "picks")
	assertUnderstood(t, got.before, got.after, got.report.Total.Requests)
}

func TestRoll_WithoutDrainStreamsAreLost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give stack.Options
		long bool // left out of the short form
	}{
		{name: "the model servers do not drain", give: stack.Options{Values: serversNoDrain}, long: true},
		{name: "the picker does not drain", give: stack.Options{Picker: pickerNoDrain}},
		{name: "neither drains", give: stack.Options{Values: serversNoDrain, Picker: pickerNoDrain}, long: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && testing.Short() {
				t.Skip("the picker shows it in the short form")
			}
			t.Parallel()
			got := rollEverything(t, tt.give)
			assert.Positive(t, got.report.Failed(), "nothing was lost: the drain makes no difference")
		})
	}
}
