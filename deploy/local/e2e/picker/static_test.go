package picker_test

import (
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// The headers by which a test says what the gateway hints: the subset as a list, and as a text with commas.
const (
	subsetList = "x-test-subset-list"
	subsetText = "x-test-subset-text"
)

// subsetFilter makes the subset hint of those headers, as a gateway does that balances within a locality.
const subsetFilter = `- name: envoy.filters.http.header_to_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
    request_rules:
    - header: ` + subsetList + `
      on_header_present: {metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset, type: PROTOBUF_VALUE, encode: BASE64}
      remove: true
    - header: ` + subsetText + `
      on_header_present: {metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset, type: STRING}
      remove: true
`

// TestEnvoy is what an Envoy shows that goes to the picked address, reports who served and hints subsets.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	s, err := stack.Install(t.Context(), c, stack.Options{Tag: tag, Servers: 3, Model: plainTokens, Filters: subsetFilter})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	before := extProcCounters(t, c)
	all := slices.Concat(exchanges(), exchangesWithTrailers(), exchangesWithDigests())
	t.Run("requests of every size and kind", func(t *testing.T) { assertExchanges(t, c, s.Gateway(), all) })
	t.Run("completions", func(t *testing.T) { assertCompletions(t, s.Gateway()) })
	t.Run("subset hint", func(t *testing.T) { assertSubset(t, c, s.Gateway()) })
	t.Run("a server that dies", func(t *testing.T) { assertLittleIsLost(t, c, s.Gateway()) })
	assertUnderstood(t, before, extProcCounters(t, c), len(all)+100)
}

// TestEnvoyWithRetries is the same Envoy with the retry policy of the example: it follows the picker's list.
func TestEnvoyWithRetries(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: what Envoy makes of the list of endpoints that the picker names")
	}
	t.Parallel()
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	s, err := stack.Install(t.Context(), c, stack.Options{Tag: tag, Servers: 3, Model: plainTokens, Retries: true, Filters: subsetFilter})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	before := extProcCounters(t, c)
	all := exchangesWithDigests()
	t.Run("requests with digests", func(t *testing.T) { assertExchanges(t, c, s.Gateway(), all) })
	t.Run("a server that dies", func(t *testing.T) { assertNothingNewIsLost(t, c, s.Gateway()) })
	require.NoError(t, s.UpgradePicker(t.Context(), tag, listing...))
	waitOnePicker(t, c)
	t.Run("conformance header", func(t *testing.T) { assertForced(t, c, s.Gateway()) })
	t.Run("a list of endpoints", func(t *testing.T) { assertListIsFollowed(t, c, s.Gateway()) })
	assertUnderstood(t, before, extProcCounters(t, c), len(all))
}

// listing are values with which the picker names all endpoints in their order, tells clients which they were, and obeys the
// header by which conformance tests choose.
var listing = []string{
	"gateway.explain=true",
	"config.apiVersion=inference.networking.x-k8s.io/v1alpha1", "config.kind=EndpointPickerConfig",
	"config.plugins[0].type=header-based-testing-filter", "config.plugins[1].type=predicted-wait-scorer",
	"config.plugins[2].type=max-score-picker", "config.plugins[2].parameters.maxNumOfEndpoints=3",
	"config.schedulingProfiles[0].name=default",
	"config.schedulingProfiles[0].plugins[0].pluginRef=header-based-testing-filter",
	"config.schedulingProfiles[0].plugins[1].pluginRef=predicted-wait-scorer",
	"config.schedulingProfiles[0].plugins[2].pluginRef=max-score-picker",
}

// waitOnePicker waits until the picker that was replaced has finished what it had.
func waitOnePicker(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + stack.Picker})
		require.NoError(collect, err)
		require.Len(collect, pods.Items, 1)
	}, kubetest.Patience, tick)
}

// assertForced names the endpoint in the header of conformance tests, and is told that it served.
func assertForced(t *testing.T, c *cluster.Cluster, gateway string) {
	e := exchange{method: http.MethodPost, path: "/tokenize", body: `{"prompt":"hello"}`}
	client := clientOf(t, &e, nil)
	for _, want := range serverAddresses(t, c) {
		host, _, err := net.SplitHostPort(want)
		require.NoError(t, err)
		for range 5 {
			got, err := e.send(t.Context(), client, gateway, http.Header{"Test-Epp-Endpoint-Selection": {host}})
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, got.status, got.body)
			require.Equal(t, want, got.served)
			require.Equal(t, want, got.header.Get("x-conformance-test-served-endpoint"))
		}
	}
	got, err := e.send(t.Context(), client, gateway, nil)
	require.NoError(t, err)
	require.Empty(t, got.header.Get("x-conformance-test-served-endpoint"), "nobody asked")
}

// assertListIsFollowed kills a model server that has requests which it cannot have begun to answer. The second of their lists
// answers them. All servers are suspended, so that each gets its share.
func assertListIsFollowed(t *testing.T, c *cluster.Cluster, gateway string) {
	const requests = 12
	addresses, v := serverAddresses(t, c), victimOf(t, c)
	resume := suspend(t, c)
	before := ofEndpoint(t.Context(), t, c, picks, v.address)
	var wg sync.WaitGroup
	seconds := atomic.Int64{}
	for range requests {
		wg.Go(func() {
			e := exchange{method: http.MethodPost, path: "/tokenize", body: `{"prompt":"hello"}`}
			got, err := e.send(t.Context(), clientOf(t, &e, nil), gateway, nil)
			if err != nil || got.status != http.StatusOK {
				t.Errorf("status %d, error %v: %s", got.status, err, got.body)
				return
			}
			named, _, _ := strings.Cut(got.header.Get("x-fairlead-pick-explained"), " of ")
			list := strings.Split(named, ",")
			if list[0] != v.address {
				assert.Equal(t, list[0], got.served)
				return
			}
			if assert.Greater(t, len(list), 1, "it was the only one: %v", got.header) {
				assert.Equal(t, list[1], got.served, "of %v", list)
				seconds.Add(1)
			}
		})
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		total := 0.0
		for _, address := range addresses {
			total += ofEndpoint(t.Context(), collect, c, inFlight, address)
		}
		require.InDelta(collect, requests, total, 0, "all are picked")
	}, kubetest.Patience, tick)
	sent := ofEndpoint(t.Context(), t, c, picks, v.address) - before
	require.Positive(t, sent, "the victim has its share")
	v.kill(t)
	resume()
	wg.Wait()
	assert.EqualValues(t, sent, seconds.Load())
	waitRestarted(t, c, v)
}

// assertSubset sends requests with hints and looks at who answers.
func assertSubset(t *testing.T, c *cluster.Cluster, gateway string) {
	addrs := serverAddresses(t, c)
	require.Len(t, addrs, 3)
	host, _, err := net.SplitHostPort(addrs[0])
	require.NoError(t, err)
	tests := []struct {
		name string
		give []string
		want []string // none: the request is refused
	}{
		{name: "one endpoint", give: addrs[:1], want: addrs[:1]},
		{name: "another endpoint", give: addrs[2:], want: addrs[2:]},
		{name: "two endpoints", give: addrs[1:], want: addrs[1:]},
		{name: "an endpoint and one that does not exist", give: []string{"192.0.2.1:8000", addrs[1]}, want: addrs[1:2]},
		{name: "another port of a server", give: []string{net.JoinHostPort(host, "8001")}},
		{name: "an endpoint that does not exist", give: []string{"192.0.2.1:8000"}},
		{name: "nothing", give: []string{}},
	}
	for _, tt := range tests {
		for form, header := range map[string]http.Header{
			"list": {http.CanonicalHeaderKey(subsetList): {encodeList(t, tt.give)}},
			"text": {http.CanonicalHeaderKey(subsetText): {strings.Join(tt.give, ",")}},
		} {
			if form == "text" && len(tt.give) == 0 {
				continue // an empty header makes no metadata
			}
			t.Run(tt.name+" as a "+form, func(t *testing.T) {
				e := exchange{method: http.MethodPost, path: "/tokenize", body: `{"prompt":"hello"}`}
				client := clientOf(t, &e, nil)
				for range 10 {
					got, err := e.send(t.Context(), client, gateway, header)
					require.NoError(t, err)
					if len(tt.want) == 0 {
						require.Equal(t, http.StatusServiceUnavailable, got.status)
						require.Equal(t, "rejected-no-endpoints", got.header.Get("x-llm-d-request-dropped-reason"))
						continue
					}
					require.Equal(t, http.StatusOK, got.status, got.body)
					require.Contains(t, tt.want, got.served)
					require.Equal(t, got.picked, got.served)
				}
			})
		}
	}
}

// encodeList writes a list as the filter takes it.
func encodeList(t *testing.T, items []string) string {
	t.Helper()
	values := make([]*structpb.Value, len(items))
	for i, item := range items {
		values[i] = structpb.NewStringValue(item)
	}
	raw, err := proto.Marshal(structpb.NewListValue(&structpb.ListValue{Values: values}))
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(raw)
}

// assertNothingNewIsLost kills a model server under load. Answers that it had begun are lost, as nobody can end them. Every
// other request is answered by another server, whether it was in its queue or sent when it was dead, and Envoy reports it to
// the picker. A hint pins one request to the server while the server is suspended, so that at least one meets its death.
func assertNothingNewIsLost(t *testing.T, c *cluster.Cluster, gateway string) {
	before := servedByOthers(t, c)
	finish := startLoad(t, shortStreams(gateway))
	require.NoError(t, stack.WaitRunning(t.Context(), c, 8))
	v := victimOf(t, c)
	v.signal(t, syscall.SIGSTOP)
	picked := ofEndpoint(t.Context(), t, c, picks, v.address)
	pinned := make(chan answered, 1)
	go func() {
		e := exchange{method: http.MethodPost, path: "/tokenize", body: `{"prompt":"hello"}`}
		got, err := e.send(t.Context(), clientOf(t, &e, nil), gateway, http.Header{http.CanonicalHeaderKey(subsetText): {v.address}})
		assert.NoError(t, err)
		pinned <- got
	}()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Greater(collect, ofEndpoint(t.Context(), collect, c, picks, v.address), picked)
	}, kubetest.Patience, tick, "a request is sent to the suspended server")
	v.kill(t)
	waitRestarted(t, c, v)
	got := <-pinned
	_, results := finish()
	assert.Equal(t, http.StatusOK, got.status, got.body)
	assert.Equal(t, v.address, got.picked)
	assert.NotEqual(t, v.address, got.served)

	elsewhere := 1 // the pinned one
	for _, r := range results {
		switch r.Class {
		case chatload.ClassNone:
		case chatload.ClassPicked: // a whole answer, by another server than the picked one
			elsewhere++
			assert.Equal(t, v.address, r.PickedEndpoint)
		default:
			assert.Contains(t, []chatload.Class{chatload.ClassReset, chatload.ClassTruncated}, r.Class, "%v", r.Err)
			assert.Equal(t, v.address, r.ServedEndpoint)
			assert.True(t, r.Start.Before(v.killed), "request %d began %s after the kill", r.Index, r.Start.Sub(v.killed))
		}
	}
	assert.InDelta(t, elsewhere, servedByOthers(t, c)-before, 0, "what Envoy tells the picker")
}
