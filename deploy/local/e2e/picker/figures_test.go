package picker_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// attempt limits one look at pods, one of which may be gone.
const attempt = 10 * time.Second

// watchPicks follows the pickers' pick counters, those of pods that go away too, until the returned function is called,
// which gives the sum of what came since.
func watchPicks(t *testing.T, c *cluster.Cluster) func() float64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client, latest := c.Clientset(), map[string]float64{}
	look := func() {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: stack.PickerPods})
		if err != nil {
			return // the last look tells
		}
		for _, p := range pods.Items {
			page, err := stack.Fetch(ctx, c, net.JoinHostPort(p.Status.PodIP, "9090"), "/metrics")
			if err == nil {
				latest[p.Name] = stack.Sum(page, "fairlead_picker_picks_total")
			}
		}
	}
	total := func() float64 {
		var n float64
		for _, picks := range latest {
			n += picks
		}
		return n
	}
	look()
	before := total()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			look()
			select {
			case <-ctx.Done():
			case <-time.After(tick):
			}
		}
	})
	return func() float64 {
		cancel()
		wg.Wait()
		ctx = t.Context()
		look()
		return total() - before
	}
}

// extProcCounters reads Envoy's counters about the picker, of the Envoy with a bootstrap of its own.
func extProcCounters(t *testing.T, c *cluster.Cluster) map[string]float64 {
	t.Helper()
	page, err := stack.EnvoyAdmin(t.Context(), c, "/stats?filter=ext_proc")
	require.NoError(t, err)
	found := map[string]float64{}
	for line := range strings.Lines(page) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			found[name[strings.LastIndexByte(name, '.')+1:]] = n
		}
	}
	require.Contains(t, found, "streams_started")
	return found
}

// gatewayCounters reads the same of the Envoy that Envoy Gateway runs.
func gatewayCounters(t *testing.T, c *cluster.Cluster) map[string]float64 {
	t.Helper()
	page, err := stack.GatewayStats(t.Context(), c, "ext_proc")
	require.NoError(t, err)
	found := map[string]float64{}
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, "envoy_http_ext_proc_")
		if name := rest[:max(0, strings.IndexAny(rest, " {"))]; ok && name != "" {
			found[name] = stack.Sum(page, "envoy_http_ext_proc_"+name)
		}
	}
	require.Contains(t, found, "streams_started")
	return found
}

// troubles are the counters that say that gateway and picker do not understand each other.
var troubles = []string{"spurious_msgs_received", "streams_failed", "rejected_header_mutations", "message_timeouts", "failure_mode_allowed"}

// assertUnderstood checks what Envoy counted about the picker since before: at least so many streams, and no trouble.
func assertUnderstood(t *testing.T, before, after map[string]float64, streams int) {
	t.Helper()
	for _, name := range troubles {
		require.Contains(t, after, name)
		assert.Zero(t, after[name]-before[name], name)
	}
	assert.GreaterOrEqual(t, after["streams_started"]-before["streams_started"], float64(streams), "streams_started")
}

// Metrics of the picker about one endpoint.
const (
	picks    = "fairlead_picker_endpoint_picks_total"
	inFlight = "fairlead_picker_endpoint_requests_in_flight"
)

// ofEndpoint returns the value of a metric of the picker, of one endpoint.
func ofEndpoint(ctx context.Context, t require.TestingT, c *cluster.Cluster, metric, address string) float64 {
	page, err := stack.Fetch(ctx, c, stack.PickerMetrics, "/metrics")
	require.NoError(t, err)
	var total float64
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, metric+`{endpoint="`+address+`"`) {
			total += stack.Sum(line, metric)
		}
	}
	return total
}

// servedByOthers is how many responses came from another endpoint than the picked one, as the picker was told.
func servedByOthers(t *testing.T, c *cluster.Cluster) float64 {
	t.Helper()
	page, err := stack.Fetch(t.Context(), c, stack.PickerMetrics, "/metrics")
	require.NoError(t, err)
	var total float64
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "fairlead_picker_responses_total{") && strings.Contains(line, `served="other"`) {
			total += stack.Sum(line, "fairlead_picker_responses_total")
		}
	}
	return total
}
