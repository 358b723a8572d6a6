//go:build system

package hermetic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// toZero removes the servers from the file of endpoints, and returns when the picker knows.
func (r *rig) toZero() {
	r.t.Helper()
	all := r.servers
	r.servers = nil
	r.writeFile(nil)
	r.servers = all
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 0 }, "no endpoints")
}

// waitingRequests is the number of waiting requests by the metrics of both names, which are equal.
func (r *rig) waitingRequests() int {
	r.t.Helper()
	page := r.metrics()
	require.Equal(r.t, page.sum("fairlead_picker_waiting_requests"), page.sum("llm_d_epp_flow_control_queue_size"))
	return int(page.sum("fairlead_picker_waiting_requests"))
}

// numbered sends a request with a number to the proxy, and returns the status of the response. It returns 0 without a response.
func (r *rig) numbered(c *http.Client, number int) int {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.proxy()+"/v1/completions", strings.NewReader(ofModel))
	if err != nil {
		return 0
	}
	request.Header.Set("X-Number", strconv.Itoa(number))
	response, err := c.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

// TestWaiting has a pool without servers: requests of each carrier wait, and are answered once there is one.
func TestWaiting(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{} // by number of the request
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions("--request-body-timeout=2s")}, func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		got[q.Header.Get("X-Number")]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(strings.Join(completion, "")))
	})
	r.toZero()

	const each = 20
	var sending sync.WaitGroup
	statuses := make([]int, each)
	client := r.client()
	for i := range each {
		sending.Go(func() { statuses[i] = r.numbered(client, i) })
	}
	var picked [each]decided
	for i := range each {
		sending.Go(func() { picked[i] = r.decide("", completionOf(fmt.Sprint(i))) })
	}
	var streams []*stream
	for range each {
		q := request{body: ofModel}
		s := r.open(q.rules)
		s.send(q.first())
		s.body(q)
		streams = append(streams, s)
	}
	r.await(func() bool { return r.waitingRequests() == 3*each }, "all wait")
	time.Sleep(2500 * time.Millisecond) // no time limit for clients counts while they wait
	r.writeFile(nil)
	sending.Wait()
	for i := range each {
		assert.Equal(t, http.StatusOK, statuses[i])
		require.Len(t, picked[i].Endpoints, 1)
		assert.Equal(t, r.at(0), picked[i].Endpoints[0].Address)
		r.ended(picked[i], object{"event": "completed", "status": 200})
		assert.Equal(t, 1, got[fmt.Sprint(i)], "nothing is sent twice")
	}
	for _, s := range streams {
		s.answered()
		assert.Equal(t, r.at(0), s.picked())
		s.cancel()
	}
	assert.Equal(t, 0, r.waitingRequests())
	r.settle()
	assert.Equal(t, 3.0*each, r.metrics().sum("llm_d_epp_flow_control_request_queue_duration_seconds", "outcome", "Dispatched"))
}

// TestWaiting_WhileAReplicaRestarts has requests at two replicas, of which one gets SIGTERM: its requests wait on, and it ends after them.
func TestWaiting_WhileAReplicaRestarts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{}
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}}, func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[q.Header.Get("X-Number")]++
	})
	other := r.replica()
	r.toZero()
	other.await(func() bool { return other.get(other.health(), "/readyz") == "ok\n" }, "ready")
	other.await(func() bool { return other.metrics().sum("llm_d_epp_ready_endpoints") == 0 }, "no endpoints")

	const each = 20
	var sending sync.WaitGroup
	statuses := make([]int, 2*each)
	for i := range statuses {
		picker := []*rig{r, other}[i%2]
		client := picker.client()
		sending.Go(func() { statuses[i] = picker.numbered(client, i) })
	}
	r.await(func() bool { return r.waitingRequests() == each && other.waitingRequests() == each }, "all wait")
	other.stop()
	other.await(func() bool { return other.logs.FilterMessage("Started draining").Len() == 1 }, "drains")
	r.writeFile(nil)
	sending.Wait()
	<-other.stopped
	for i, status := range statuses {
		assert.Equal(t, http.StatusOK, status, i)
		assert.Equal(t, 1, got[fmt.Sprint(i)], "request %d", i)
	}
}

// TestWaiting_ClientsThatLeave has clients of each carrier that do not wait for as long.
func TestWaiting_ClientsThatLeave(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions()}, echo)
	r.toZero()
	body, err := json.Marshal(completionOf("x"))
	require.NoError(t, err)
	for name, begin := range map[string]func() (leave func()){
		"ext_proc": func() func() {
			s := r.open(envoytest.Rules{})
			s.send(request{body: ofModel}.first())
			s.body(request{body: ofModel})
			return s.cancel
		},
		"proxy": func() func() { return r.impatient(r.proxy()+"/v1/completions", ofModel) },
		"decision": func() func() {
			return r.impatient("http://"+r.address("decision-bind-address")+"/v1/pick", string(body))
		},
	} {
		leave := begin()
		r.await(func() bool { return r.waitingRequests() == 1 }, "%s waits", name)
		leave()
		r.await(func() bool { return r.waitingRequests() == 0 }, "%s left", name)
	}
	r.await(func() bool {
		return r.metrics().sum("llm_d_epp_flow_control_request_queue_duration_seconds", "outcome", "EvictedContextCancelled") == 3
	}, "three left")
}

// impatient sends a request, and returns the function that ends it before its answer.
func (r *rig) impatient(url, body string) (leave func()) {
	r.t.Helper()
	ctx, cancel := limited()
	ended := make(chan struct{})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("Content-Type", "application/json")
	client := r.client()
	go func() {
		defer close(ended)
		response, err := client.Do(request)
		if assert.Error(r.t, err) {
			return
		}
		_ = response.Body.Close()
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestWaiting_NoLongerThanEnvoy has a picker that lets requests wait for longer than this test would.
func TestWaiting_NoLongerThanEnvoy(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, config: patientConfig}, echo)
	r.toZero()
	ctx, cancel := limited()
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.proxy()+"/v1/completions", strings.NewReader(ofModel))
	require.NoError(t, err)
	request.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", "1500")
	response, err := r.client().Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
}

const patientConfig = `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
flowControl: {noEndpointRequestTTL: 1h}
plugins: [{type: predicted-wait-scorer}]
`

// TestWaiting_EndOfDrain has requests of each carrier that still wait at the end of a drain. They are refused, not cut.
func TestWaiting_EndOfDrain(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}, config: patientConfig, flags: withDecisions("--drain-timeout=2s")}, echo)
	r.toZero()
	var sending sync.WaitGroup
	var ofProxy, ofDecision int
	client := r.client()
	sending.Go(func() { ofProxy = r.numbered(client, 0) })
	sending.Go(func() {
		ofDecision, _ = r.post("http://"+r.address("decision-bind-address")+"/v1/pick", completionOf("x"))
	})
	s := r.open(envoytest.Rules{})
	s.send(request{body: ofModel}.first())
	s.body(request{body: ofModel})
	r.await(func() bool { return r.waitingRequests() == 3 }, "all wait")
	r.stop()
	sending.Wait()
	assert.Equal(t, http.StatusServiceUnavailable, ofProxy)
	assert.Equal(t, http.StatusServiceUnavailable, ofDecision)
	s.await(func(g *envoytest.Gateway) bool { return g.ImmediateResponse() != nil }, "refused")
	<-r.stopped
}

// TestHolds follows the stream of waiting requests.
func TestHolds(t *testing.T) {
	t.Parallel()
	r := startProxy(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}}, echo)
	r.toZero()
	ctx, cancel := limited()
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address("metrics-bind-address")+"/v1/holds", http.NoBody)
	require.NoError(t, err)
	response, err := r.client().Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	lines := bufio.NewScanner(response.Body)
	next := func() (line struct {
		Pool   string
		Models []struct {
			Model   string
			Waiting int
		}
	}) {
		for lines.Scan() {
			if text := lines.Bytes(); len(text) > 0 {
				require.NoError(t, json.Unmarshal(text, &line))
				return line
			}
		}
		require.NoError(t, lines.Err())
		return line
	}
	first := next()
	assert.Equal(t, "servers", first.Pool)
	assert.Empty(t, first.Models)
	leave := r.impatient(r.proxy()+"/v1/completions", ofModel)
	second := next()
	require.Len(t, second.Models, 1)
	assert.Equal(t, "my-model", second.Models[0].Model)
	assert.Equal(t, 1, second.Models[0].Waiting)
	leave()
	third := next()
	require.Len(t, third.Models, 1)
	assert.Zero(t, third.Models[0].Waiting)

	r.stop()
	assert.False(t, lines.Scan(), "the picker ends the stream when it ends")
	<-r.stopped
}
