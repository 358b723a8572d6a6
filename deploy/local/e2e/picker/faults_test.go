package picker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// faulty is a pool of model servers behind one picker, whose clients have no gateway.
type faulty struct {
	t        *testing.T
	cluster  *cluster.Cluster
	stack    *stack.Stack
	listener *stack.Listener
	servers  []string // ip:port
	upgrades int
}

const (
	faultyRequests = 500
	// faultyClients are the requests at a time, so that few are on their way when a server begins to fail.
	faultyClients = 6
)

// startFaulty installs three model servers, whose answers take a few milliseconds.
func startFaulty(t *testing.T) *faulty {
	t.Helper()
	c := cluster.Start(t)
	c.NeedsOwn(t, "connects to a port of a node")
	s, l, err := stack.InstallListener(t.Context(), c, stack.Options{
		Tag: tag, Servers: 3, Model: append(plainTokens, "--step-base=2ms", "--step-per-seq=0s", "--prefill-per-token=2us"),
		Picker: []string{onePicker, "drain.delay=3s", "drain.timeout=0s"}, // the Service forgets a picker before it goes
	})
	require.NoError(t, err)
	return &faulty{t: t, cluster: c, stack: s, listener: l, servers: serverAddresses(t, c)}
}

// onePicker makes the numbers of ejections those of one picker.
const onePicker = "replicas=1"

// give gives some of the servers a fault, and none to the others.
func (f *faulty) give(fault string, servers ...int) {
	f.t.Helper()
	for i, address := range f.servers {
		body := "{}"
		if slices.Contains(servers, i) {
			body = fmt.Sprintf(`{"answer":%q}`, fault)
		}
		client := &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f.cluster.Dial(ctx, address) }}}
		response, err := client.Post("http://"+address+"/admin/faults", "application/json", strings.NewReader(body))
		require.NoError(f.t, err)
		require.NoError(f.t, response.Body.Close())
		require.Equal(f.t, http.StatusOK, response.StatusCode)
	}
}

// load sends requests to a new picker, which knows of no failures. It returns the parts of the requests that failed in the first third, and
// later.
func (f *faulty) load(attempts int, patience time.Duration) (early, late float64) {
	f.t.Helper()
	f.upgrades++
	require.NoError(f.t, f.stack.UpgradePicker(f.t.Context(), tag, fmt.Sprintf("proxy.maxAttempts=%d", attempts),
		fmt.Sprintf("podAnnotations.upgrade=n%d", f.upgrades)))
	waitOnePicker(f.t, f.cluster)
	report, err := chatload.Run(f.t.Context(), chatload.Options{
		BaseURL: f.listener.BaseURL(), Dial: f.listener.Dial, Model: stack.Model, Concurrency: faultyClients, Requests: faultyRequests, MaxTokens: 8,
		IgnoreEOS: true, KeepAlive: true, Timeout: patience, Prompts: chatload.Prompts{Groups: 4 * faultyRequests, SharedTokens: 256, Seed: uint64(f.upgrades)},
		OnResult: func(r chatload.Result) {
			switch {
			case r.Class == chatload.ClassNone, r.Class == chatload.ClassPicked: // a whole answer, in the second case by another server
			case r.Index < faultyRequests/3:
				early += 1.0 / faultyRequests
			default:
				late += 1.0 / faultyRequests
			}
		},
	})
	require.NoError(f.t, err)
	f.t.Logf("%d failed: %v", report.Failed(), report.Failures)
	return early, late
}

// TestFaults has model servers of which one, or all, have each fault of the emulator.
func TestFaults(t *testing.T) {
	type fault struct {
		name     string
		seen     bool          // clients see it, as another server cannot help: the answer has begun, or the request may be wrong
		patience time.Duration // of clients, if the server never answers
	}
	const silence = 3 * time.Second
	faults := []fault{ // of the short form, for which hermetic TestFaults has more
		{name: "error-sglang"}, {name: "half", seen: true},
	}
	params := []string{",delay=50ms"}
	if !testing.Short() {
		faults = append(faults, []fault{
			{name: "500"}, {name: "502"}, {name: "503"}, {name: "504"}, {name: "429"}, {name: "404", seen: true}, {name: "422", seen: true},
			{name: "error-openai"}, {name: "error-anthropic"}, {name: "empty-body"}, {name: "empty-stream"}, {name: "comments", seen: true},
			{name: "login"}, {name: "page"}, {name: "drop", seen: true},
			{name: "hang", seen: true, patience: silence}, {name: "silence", seen: true, patience: silence},
			{name: "stall", seen: true, patience: silence},
		}...)
		params = []string{"", ",delay=50ms,rate=0.1"}
	}
	t.Parallel()
	f := startFaulty(t)
	for i, tt := range faults {
		broken := i % len(f.servers)
		for _, p := range params {
			t.Run(tt.name+p, func(t *testing.T) {
				f.t = t
				f.give(tt.name+p, broken)
				early, late := f.load(1, tt.patience)
				assert.Positive(t, early+late, "no request met the fault: the test shows nothing")
				assert.LessOrEqual(t, early, 0.03)
				assert.LessOrEqual(t, late, 0.01)
			})
		}
		if testing.Short() {
			continue
		}
		t.Run(tt.name+" and other servers", func(t *testing.T) {
			f.t = t
			f.give(tt.name, broken)
			early, late := f.load(3, tt.patience)
			if !tt.seen {
				assert.Zero(t, early+late, "another server answers")
			}
		})
		if tt.patience > 0 {
			continue
		}
		t.Run(tt.name+" everywhere", func(t *testing.T) {
			f.t = t
			f.give(tt.name, 0, 1, 2)
			early, late := f.load(3, 0)
			assert.InDelta(t, 1, early+late, 1e-9)
			page, err := stack.Fetch(t.Context(), f.cluster, stack.PickerMetrics, "/debug/pools.json")
			require.NoError(t, err)
			assert.LessOrEqual(t, strings.Count(page, `"ejected": true`), len(f.servers)/2)
		})
	}
}
