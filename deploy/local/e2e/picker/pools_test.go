package picker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	// fifty is the number of InferencePools of TestManyPools, besides that of the examples.
	fifty = 50
	// firstPoolPort is the port of the picker's Service for pool 0; each pool has its own.
	firstPoolPort = 9010
	// poolServers is the number of model servers. Pool i has server i%poolServers.
	poolServers = 3
	// pause is the time between two requests of the load for one pool.
	pause = time.Second
)

// poolManifest is an InferencePool. NUMBER and PORT are filled in.
const poolManifest = `---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool-NUMBER}
spec:
  selector: {matchLabels: {pool-NUMBER: member}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: PORT}}
`

// poolHost is a virtual host of Envoy whose requests go to a pool.
const poolHost = `- name: pool-NUMBER
  domains: [pool-NUMBER.test]
  routes:
  - match: {prefix: "/"}
    route: {cluster: pool, timeout: 0s}
    typed_per_filter_config:
      envoy.filters.http.ext_proc:
        "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
        overrides: {grpc_service: {envoy_grpc: {cluster_name: picker, authority: "picker.default.svc:PORT"}}}
`

// ofPool fills in a template for a pool.
func ofPool(template string, i int) string {
	return strings.NewReplacer("NUMBER", fmt.Sprint(i), "PORT", fmt.Sprint(firstPoolPort+i)).Replace(template)
}

// manyPools is a cluster with one picker for many pools.
type manyPools struct {
	c       *cluster.Cluster
	gateway string
	client  *http.Client
	servers []string // pods
	address []string // of the servers
}

// TestManyPools has one picker for fifty InferencePools. Some of them break, appear and go; requests of the others do not notice.
// The configuration of its Envoy does not change: Envoy AI Gateway 1.0 adds a filter for each pool to all routes, and disables it
// for the routes of others a moment later, so a pool that appears there fails requests of others.
func TestManyPools(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: fifty pools")
	}
	t.Parallel()
	p := startManyPools(t)
	for i := range fifty {
		p.awaitServed(t, i)
	}
	p.awaitMetric(t, "fairlead_picker_pools 50")

	const breaks, goes, appears = 0, 1, fifty
	finish := p.load(t, 2, fifty)
	p.label(t, breaks, "") // no server is left
	p.kubectl(t, "delete", "inferencepool", fmt.Sprintf("pool-%d", goes))
	p.apply(t, appears)
	p.awaitServed(t, appears)
	p.movePort(t, appears, 2) // the address of an older pool
	for _, i := range []int{breaks, goes, appears} {
		p.awaitRefused(t, i)
	}
	p.awaitMetric(t, "fairlead_picker_pools 49")
	p.awaitMetric(t, `fairlead_picker_pools_refused{reason="conflict"} 1`)

	p.label(t, breaks, "member")
	p.apply(t, goes)
	p.movePort(t, appears, appears)
	for _, i := range []int{breaks, goes, appears} {
		p.awaitServed(t, i)
	}
	requests := finish()
	t.Logf("%d requests of the other pools", requests)
	assert.Greater(t, requests, fifty)
}

func startManyPools(t *testing.T) *manyPools {
	t.Helper()
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	var ports []string
	var hosts strings.Builder
	for i := range fifty + 1 {
		ports = append(ports, fmt.Sprint(firstPoolPort+i))
		hosts.WriteString(ofPool(poolHost, i))
	}
	s, err := stack.Install(t.Context(), c, stack.Options{Tag: tag, Servers: poolServers, Model: plainTokens, Hosts: hosts.String(), Picker: []string{
		"pool.name=", "pool.all=true", "inferencePool.create=false", "service.poolPorts={" + strings.Join(ports, ",") + "}",
	}})
	require.NoError(t, err)
	p := &manyPools{c: c, gateway: s.Gateway(), client: &http.Client{Timeout: kubetest.Patience}}
	t.Cleanup(p.client.CloseIdleConnections)
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.Len(t, pods.Items, poolServers)
	for i := range pods.Items {
		p.servers = append(p.servers, pods.Items[i].Name)
		p.address = append(p.address, pods.Items[i].Status.PodIP+":8000")
		labels := []string{"label", "pod", pods.Items[i].Name}
		for pool := i; pool <= fifty; pool += poolServers {
			labels = append(labels, fmt.Sprintf("pool-%d=member", pool))
		}
		p.kubectl(t, labels...)
	}
	var manifests strings.Builder
	for i := range fifty {
		manifests.WriteString(ofPool(poolManifest, i))
	}
	require.NoError(t, c.Apply(t.Context(), manifests.String()))
	return p
}

func (p *manyPools) apply(t *testing.T, i int) {
	t.Helper()
	require.NoError(t, p.c.Apply(t.Context(), ofPool(poolManifest, i)))
}

func (p *manyPools) kubectl(t *testing.T, args ...string) {
	t.Helper()
	_, err := p.c.Kubectl(t.Context(), args...)
	require.NoError(t, err)
}

// label makes the server of a pool its member, or removes it.
func (p *manyPools) label(t *testing.T, i int, value string) {
	t.Helper()
	p.kubectl(t, "label", "--overwrite", "pod", p.servers[i%poolServers], fmt.Sprintf("pool-%d=%s", i, value))
}

// movePort gives a pool the address of the picker for another one.
func (p *manyPools) movePort(t *testing.T, i, to int) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"endpointPickerRef":{"port":{"number":%d}}}}`, firstPoolPort+to)
	p.kubectl(t, "patch", "inferencepool", fmt.Sprintf("pool-%d", i), "--type=merge", "--patch="+patch)
}

// awaitMetric waits until the picker's metrics have a line.
func (p *manyPools) awaitMetric(t *testing.T, line string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		page, err := stack.Fetch(t.Context(), p.c, stack.PickerMetrics, "/metrics")
		require.NoError(collect, err)
		require.Contains(collect, strings.Split(page, "\n"), line)
	}, kubetest.Patience, tick)
}

// outcome is the answer to a request: the status and, if it is not 200, the text; the endpoint that the picker reports.
type outcome struct {
	status       int
	text, picked string
}

// ask sends a completion to a pool.
func (p *manyPools) ask(ctx context.Context, i int) (outcome, error) {
	body := strings.NewReader(`{"model":"` + stack.Model + `","prompt":"hello","max_tokens":1}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.gateway+"/v1/completions", body)
	if err != nil {
		return outcome{}, err
	}
	request.Host = fmt.Sprintf("pool-%d.test", i)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return outcome{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	got := outcome{status: response.StatusCode, picked: response.Header.Get("x-fairlead-picked-endpoint")}
	if got.status != http.StatusOK {
		got.text = fmt.Sprintf("%s %v", text, response.Header)
	}
	return got, err
}

// served is the outcome of a request that the server of a pool serves.
func (p *manyPools) served(i int) outcome {
	return outcome{status: http.StatusOK, picked: p.address[i%poolServers]}
}

// awaitServed waits until the server of a pool serves its requests.
func (p *manyPools) awaitServed(t *testing.T, i int) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := p.ask(t.Context(), i)
		require.NoError(collect, err)
		require.Equal(collect, p.served(i), got, "pool %d", i)
	}, kubetest.Patience, tick)
}

// awaitRefused waits until the picker refuses the requests of a pool.
func (p *manyPools) awaitRefused(t *testing.T, i int) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := p.ask(t.Context(), i)
		require.NoError(collect, err)
		require.Equal(collect, http.StatusServiceUnavailable, got.status, "pool %d: %s", i, got.text)
		require.Contains(collect, got.text, "inference error: ServiceUnavailable", "pool %d", i)
	}, kubetest.Patience, tick)
}

// load sends requests to the pools from one number to another until the returned function is called, which returns their
// number. None may fail.
func (p *manyPools) load(t *testing.T, from, to int) (finish func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	sent := make([]int, to)
	for i := from; i < to; i++ {
		running.Go(func() {
			for ctx.Err() == nil {
				got, err := p.ask(t.Context(), i)
				if t.Context().Err() != nil {
					return // the test has failed
				}
				if err != nil {
					got.text = err.Error()
				}
				sent[i]++
				if !assert.Equal(t, p.served(i), got, "pool %d", i) {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return func() int {
		cancel()
		running.Wait()
		all := 0
		for _, n := range sent {
			all += n
		}
		return all
	}
}
