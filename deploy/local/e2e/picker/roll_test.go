// Package picker_test tests the endpoint picker as its users meet it: behind a real Envoy, in front of model servers that
// come and go, installed by its chart.
package picker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tag     = "race"
	nextTag = "race-next"

	streams = 32
	tokens  = 110 // of each answer; at 100 ms a token that is 11 s
	tick    = 250 * time.Millisecond
)

// slowSteps make a token take a tenth of a second, so that streams are long and cost little.
var slowSteps = []string{"--step-base=100ms", "--step-per-seq=0s"}

// These helm values switch the draining off, of the model servers and of the picker.
var (
	serversNoDrain = []string{"drain.preStopSeconds=0", "drain.shutdownTimeoutSeconds=0"}
	pickerNoDrain  = []string{"drain.delay=0s", "drain.timeout=0s"}
	pickerNoDelay  = []string{"drain.delay=0s"}
)

// sent is what became of one load.
type sent struct {
	report  *chatload.Report
	results []chatload.Result
}

// rolled is what came of one roll of everything under load.
type rolled struct {
	loads  []sent
	picks  float64
	before map[string]float64 // Envoy's counters about the picker
	after  map[string]float64
}

// failed is the number of failed requests of all loads.
func (r *rolled) failed() (n int) {
	for _, l := range r.loads {
		n += l.report.Failed()
	}
	return n
}

// rollBehindEnvoy rolls everything behind an Envoy that does not retry.
func rollBehindEnvoy(t *testing.T, o stack.Options) rolled {
	t.Helper()
	c := cluster.Start(t, cluster.Nodes(2), stack.Publish("127.0.0.1:0"))
	s, err := stack.Install(t.Context(), c, rollable(o))
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	before := extProcCounters(t, c)
	out := rollEverything(t, c, s, longStreams(s.Gateway()))
	out.before, out.after = before, extProcCounters(t, c)
	return out
}

// rollAtListener rolls everything while clients send their requests to the Service of two pickers, without a gateway. Some send
// the next request at once on the connection of the last one. Others leave their connections idle for a while, or open one for each
// request. No client retries: a request of chatload cannot be sent twice, not even by net/http when a used connection turns out to be
// closed.
func rollAtListener(t *testing.T, o stack.Options) rolled {
	t.Helper()
	c := cluster.Start(t, cluster.Nodes(2))
	c.NeedsOwn(t, "connects to a port of a node")
	s, l, err := stack.InstallListener(t.Context(), c, rollable(o))
	require.NoError(t, err)
	busy := longStreams(l.BaseURL())
	busy.Dial = l.Dial
	pausing := busy
	pausing.Concurrency, pausing.Rate, pausing.MaxTokens, pausing.Prompts.Seed = 0, shortRate, shortTokens, 2
	fresh := pausing
	fresh.KeepAlive, fresh.Prompts.Seed = false, 3
	return rollEverything(t, c, s, busy, pausing, fresh)
}

// The loads of short completions: half a second for an answer, at random times, so that from none to a dozen connections are in use.
const (
	shortRate   = 10 // requests per second
	shortTokens = 5
)

// rollable are the options of a stack that is rolled.
func rollable(o stack.Options) stack.Options {
	o.Tag, o.Servers, o.Model = tag, 3, append(o.Model, slowSteps...)
	return o
}

// longStreams are the options of a load of long completions without a pause.
func longStreams(base string) chatload.Options {
	return chatload.Options{
		BaseURL: base, Model: stack.Model, Concurrency: streams, MaxTokens: tokens, IgnoreEOS: true, KeepAlive: true,
		RequirePicked: true, Timeout: kubetest.Patience, Prompts: chatload.Prompts{Groups: 4, SharedTokens: 64, Seed: 1},
	}
}

// rollEverything sends loads while the model servers and then the picker are replaced by those of another tag, until the old ones
// have gone. The first load has longStreams.
func rollEverything(t *testing.T, c *cluster.Cluster, s *stack.Stack, loads ...chatload.Options) rolled {
	t.Helper()
	picks := watchPicks(t, c)
	finish := make([]func() (*chatload.Report, []chatload.Result), len(loads))
	for i, load := range loads {
		finish[i] = startLoad(t, load)
	}
	require.NoError(t, stack.WaitRunning(t.Context(), c, streams))
	require.NoError(t, s.UpgradeServers(t.Context(), nextTag))
	require.NoError(t, s.UpgradePicker(t.Context(), nextTag))
	require.NoError(t, stack.WaitOnly(t.Context(), c, nextTag, stack.ServerImage, stack.PickerImage))
	var out rolled
	for _, f := range finish {
		report, results := f()
		t.Logf("%d requests in %s, %d failed: %v", report.Total.Requests, report.Elapsed.Round(time.Second), report.Failed(), report.Failures)
		out.loads = append(out.loads, sent{report, results})
	}
	out.picks = picks()
	return out
}

func TestRoll_NoStreamIsLostWhileEverythingIsReplaced(t *testing.T) {
	t.Parallel()
	got := rollBehindEnvoy(t, stack.Options{})
	requests := assertNoneLost(t, &got)
	assertUnderstood(t, got.before, got.after, requests)
}

// TestRoll_NoStreamIsLostAtTheProxyListener has every setting that the documentation tells operators to use, and no other one.
func TestRoll_NoStreamIsLostAtTheProxyListener(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: another roll, which takes a minute")
	}
	t.Parallel()
	got := rollAtListener(t, stack.Options{})
	assertNoneLost(t, &got)
}

// assertNoneLost checks every answer, and returns the number of requests.
func assertNoneLost(t *testing.T, got *rolled) (requests int) {
	t.Helper()
	for _, l := range got.loads {
		assert.Zero(t, l.report.Failed(), "%v %v", l.report.Failures, l.report.Examples)
		requests += l.report.Total.Requests
		for _, r := range l.results {
			assert.Equal(t, r.PickedEndpoint, r.ServedEndpoint)
		}
	}
	long := got.loads[0]
	assert.GreaterOrEqual(t, long.report.Total.Requests, 2*streams, "the load did not span the roll")
	for _, r := range long.results {
		assert.Equal(t, tokens, r.Tokens)
	}
	assert.GreaterOrEqual(t, got.picks, float64(requests), "picks")
	return requests
}

func TestRoll_WithoutDrainStreamsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: another roll, which takes a minute")
	}
	t.Parallel()
	tests := []struct {
		name string
		roll func(*testing.T, stack.Options) rolled
		give stack.Options
	}{
		{name: "the model servers do not drain", roll: rollBehindEnvoy, give: stack.Options{Values: serversNoDrain}},
		{name: "the picker does not drain", roll: rollBehindEnvoy, give: stack.Options{Picker: pickerNoDrain}},
		{name: "neither drains", roll: rollBehindEnvoy, give: stack.Options{Values: serversNoDrain, Picker: pickerNoDrain}},
		{name: "the model servers behind the proxy listener do not drain", roll: rollAtListener, give: stack.Options{Values: serversNoDrain}},
		{name: "the proxy listener closes before Services notice", roll: rollAtListener, give: stack.Options{Picker: pickerNoDelay}},
		{name: "the proxy listener does not drain", roll: rollAtListener, give: stack.Options{Picker: pickerNoDrain}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.roll(t, tt.give)
			assert.Positive(t, got.failed(), "nothing was lost: the drain makes no difference")
		})
	}
}
