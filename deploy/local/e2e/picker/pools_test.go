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
	pause = 200 * time.Millisecond
)

// poolManifest is an InferencePool, and a route to it by its host. NUMBER and PORT are filled in.
const poolManifest = `---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool-NUMBER}
spec:
  selector: {matchLabels: {pool-NUMBER: member}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: PORT}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pool-NUMBER, labels: {pools: many}}
spec:
  parentRefs: [{name: inference}]
  hostnames: [pool-NUMBER.test]
  rules:
  - backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool-NUMBER}]
    timeouts: {request: 0s}
`

// idleManifest closes idle connections to model servers before these do, as the example does for its route.
const idleManifest = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: pools}
spec:
  targetSelectors: [{group: gateway.networking.k8s.io, kind: HTTPRoute, matchLabels: {pools: many}}]
  timeout: {http: {connectionIdleTimeout: 3s}}
`

// manyPools is a cluster with one picker for many pools.
type manyPools struct {
	c       *cluster.Cluster
	gateway string
	client  *http.Client
	servers []string // pods
	address []string // of the servers
}

// TestManyPools has one picker for fifty InferencePools behind Envoy Gateway and Envoy AI Gateway. Some of them break, appear and
// go; requests of the others do not notice.
func TestManyPools(t *testing.T) {
	t.Parallel()
	p := startManyPools(t)
	for i := range fifty {
		p.awaitServed(t, i)
	}
	page := p.metrics(t)
	assert.Contains(t, page, "\nfairlead_picker_pools 51\n", "with that of the examples")

	const breaks, goes, misdirects = 0, 1, 2
	finish := p.load(t, 3, fifty)
	p.label(t, breaks, "")             // no server is left
	p.apply(t, fifty)                  // another pool appears
	p.delete(t, "inferencepool", goes) // its route stays
	p.patch(t, misdirects, `{"spec":{"targetPorts":[{"number":1}]}}`)
	p.awaitServed(t, fifty)
	p.awaitStatus(t, breaks, http.StatusServiceUnavailable)
	p.awaitStatus(t, goes, http.StatusInternalServerError)
	p.awaitStatus(t, misdirects, http.StatusServiceUnavailable)
	assert.Contains(t, p.metrics(t), "\nfairlead_picker_pools 51\n", "one came and one went")

	p.label(t, breaks, "member")
	p.apply(t, goes)
	p.patch(t, misdirects, `{"spec":{"targetPorts":[{"number":8000}]}}`)
	for _, i := range []int{breaks, goes, misdirects} {
		p.awaitServed(t, i)
	}
	requests := finish()
	t.Logf("%d requests of the other pools", requests)
	assert.Greater(t, requests, 2*fifty)
}

func startManyPools(t *testing.T) *manyPools {
	t.Helper()
	c := cluster.Start(t, stack.PublishGateway("127.0.0.1:0"))
	var ports []string
	for i := range fifty + 1 {
		ports = append(ports, fmt.Sprint(firstPoolPort+i))
	}
	s, err := stack.InstallGateway(t.Context(), c, stack.Options{Tag: tag, Servers: poolServers, Model: plainTokens, Picker: []string{
		"pool.name=", "pool.all=true", "service.poolPorts={" + strings.Join(ports, ",") + "}",
	}})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	p := &manyPools{c: c, gateway: s.Gateway(), client: &http.Client{Timeout: time.Minute}}
	t.Cleanup(p.client.CloseIdleConnections)
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + stack.Pool})
	require.NoError(t, err)
	require.Len(t, pods.Items, poolServers)
	for i := range pods.Items {
		p.servers = append(p.servers, pods.Items[i].Name)
		p.address = append(p.address, pods.Items[i].Status.PodIP+":8000")
	}
	for i := range fifty + 1 {
		p.label(t, i, "member")
	}
	require.NoError(t, c.Apply(t.Context(), idleManifest))
	var manifests strings.Builder
	for i := range fifty {
		manifests.WriteString(manifestOf(i))
	}
	require.NoError(t, c.Apply(t.Context(), manifests.String()))
	return p
}

func manifestOf(i int) string {
	return strings.NewReplacer("NUMBER", fmt.Sprint(i), "PORT", fmt.Sprint(firstPoolPort+i)).Replace(poolManifest)
}

func (p *manyPools) apply(t *testing.T, i int) {
	t.Helper()
	require.NoError(t, p.c.Apply(t.Context(), manifestOf(i)))
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

func (p *manyPools) delete(t *testing.T, kind string, i int) {
	t.Helper()
	p.kubectl(t, "delete", kind, fmt.Sprintf("pool-%d", i))
}

func (p *manyPools) patch(t *testing.T, i int, patch string) {
	t.Helper()
	p.kubectl(t, "patch", "inferencepool", fmt.Sprintf("pool-%d", i), "--type=merge", "--patch="+patch)
}

func (p *manyPools) metrics(t *testing.T) string {
	t.Helper()
	page, err := stack.Fetch(t.Context(), p.c, stack.PickerMetrics, "/metrics")
	require.NoError(t, err)
	return page
}

// ask sends a completion to a pool. It returns the status, and the endpoint that the picker reports.
func (p *manyPools) ask(ctx context.Context, i int) (status int, picked string, err error) {
	body := strings.NewReader(`{"model":"` + stack.Model + `","prompt":"hello","max_tokens":1}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.gateway+"/v1/completions", body)
	if err != nil {
		return 0, "", err
	}
	request.Host = fmt.Sprintf("pool-%d.test", i)
	response, err := p.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header.Get("x-fairlead-picked-endpoint"), err
}

// awaitServed waits until the server of a pool serves its requests.
func (p *manyPools) awaitServed(t *testing.T, i int) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		status, picked, err := p.ask(t.Context(), i)
		require.NoError(collect, err)
		require.Equal(collect, http.StatusOK, status, "pool %d", i)
		require.Equal(collect, p.address[i%poolServers], picked, "pool %d", i)
	}, settle, tick)
}

// awaitStatus waits until requests of a pool get a status.
func (p *manyPools) awaitStatus(t *testing.T, i, want int) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		status, _, err := p.ask(t.Context(), i)
		require.NoError(collect, err)
		require.Equal(collect, want, status, "pool %d", i)
	}, settle, tick)
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
				status, picked, err := p.ask(t.Context(), i)
				sent[i]++
				if !assert.NoError(t, err, "pool %d", i) || !assert.Equal(t, http.StatusOK, status, "pool %d", i) {
					return
				}
				assert.Equal(t, p.address[i%poolServers], picked, "pool %d", i)
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
