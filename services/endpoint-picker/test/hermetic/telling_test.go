//go:build system

package hermetic

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// with returns upstream's configuration with further plugins, each of them in the profile.
func with(plugins ...string) string {
	config := upstreamConfig
	for _, p := range plugins {
		name, _, _ := strings.Cut(p, ",")
		config = strings.Replace(config, "schedulingProfiles:", "- {type: "+p+"}\nschedulingProfiles:", 1)
		config += "  - {pluginRef: " + name + "}\n"
	}
	return config
}

const byID = "parameters: {strategy: session_id, sessionIdConfig: {sources: [{header: X-Session-ID}]}}"

// A session stays on its server while that is there, however busy it becomes, and moves when it has gone.
func TestSessions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, plugin, header string
		token                bool // the client repeats what a response said
	}{
		{name: "filter", plugin: "session-affinity-filter", header: "x-session-token", token: true},
		{name: "scorer", plugin: "session-affinity-scorer", header: "x-session-token", token: true},
		{name: "filter by name", plugin: "session-affinity-filter, " + byID, header: "x-session-id"},
		{name: "scorer by name", plugin: "session-affinity-scorer, " + byID, header: "x-session-id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config := with(tt.plugin)
			config = strings.Replace(config, "{pluginRef: session-affinity-scorer}", "{pluginRef: session-affinity-scorer, weight: 100}", 1)
			r := start(t, world{pages: []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0.1, ""), pageOf(9, 9, 0.9, "")}, config: config})
			session := "my-session"
			talk := func() string {
				q := request{body: ofModel, headers: []string{tt.header, session}}
				if tt.token {
					q.rules.Reply = []string{tt.header}
				}
				s := r.ask(q)
				s.respond(response{pieces: completion})
				s.end()
				assert.Equal(t, session, strings.Join(s.gateway.RequestHeaders()[tt.header], ","), "the model server may want it too")
				if tt.token {
					session = strings.Join(s.gateway.ResponseHeaders()[tt.header], ",")
				}
				return s.picked()
			}
			assert.Equal(t, r.at(1), talk(), "a new one, by load")
			if tt.token {
				assert.Equal(t, base64.StdEncoding.EncodeToString([]byte(fmt.Sprint("ns/model-1:", r.servers[1].address.Port()))), session)
			}
			r.servers[1].show(pageOf(50, 50, 0.9, ""))
			r.scraped()
			for range 3 {
				assert.Equal(t, r.at(1), talk(), "an old one, whatever the load")
			}
			session, was := "another", session
			assert.Equal(t, r.at(0), talk())

			session = was
			r.api.remove(t, pathPods, podName(1))
			r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "its server has gone")
			assert.Equal(t, r.at(0), talk())
			r.servers[0].show(pageOf(50, 50, 0.9, ""))
			r.scraped(r.servers[0])
			assert.Equal(t, r.at(0), talk(), "it is on the other for good")
		})
	}
}

// TestSessionsOfRanks checks that a session stays on one of the servers of a pod, and that a token of the form without a port
// still names a pod with one port.
func TestSessionsOfRanks(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{"token": "", "identifier": ", " + byID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := strings.Replace(randomConfig, "session-affinity-filter}", "session-affinity-filter"+parameters+"}", 1)
			r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, config: config})
			l, err := net.Listen("tcp", netip.AddrPortFrom(r.servers[0].address.Addr(), 0).String())
			require.NoError(t, err)
			serveModel(t, l, pageOf(0, 0, 0, ""))
			ports := []uint16{r.servers[0].address.Port(), addressOf(l).Port()}
			r.api.put(t, pathPools, "pool", poolObject(ports...))
			r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "both ports")

			talk := func(token string) (endpoint, next string) {
				q := request{body: ofModel, headers: []string{"x-session-id", "chat", "x-session-token", token}}
				if parameters == "" {
					q.rules.Reply = []string{"x-session-token"}
				}
				s := r.ask(q)
				s.respond(response{pieces: completion})
				s.end()
				return s.picked(), strings.Join(s.gateway.ResponseHeaders()["x-session-token"], ",")
			}
			home, token := talk("")
			for range 20 {
				endpoint, _ := talk(token)
				require.Equal(t, home, endpoint)
			}
			if parameters != "" {
				return
			}
			old := base64.StdEncoding.EncodeToString([]byte("ns/model-0"))
			endpoint, next := talk(old)
			assert.Contains(t, endpoint, r.servers[0].address.Addr().String())
			again, _ := talk(next)
			assert.Equal(t, endpoint, again, "the answer to an old token has a new one")
		})
	}
}

// randomConfig places sessions without an endpoint at random.
const randomConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: session-affinity-filter}
- {type: random-picker}
`

func TestScoresForGateways(t *testing.T) {
	t.Parallel()
	pages := []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0, "")}
	r := start(t, world{pages: pages, config: upstreamConfig, flags: []string{"--emit-endpoint-scores"}})
	s := r.ask(request{body: ofModel})
	s.end()
	// queue 2x0, cache 2x0.5, no prefix, room for the adapter 0.8 or none said
	require.Len(t, s.gateway.Scores(), 2)
	assert.InDelta(t, 3.0, s.gateway.Scores()[r.at(1)]-s.gateway.Scores()[r.at(0)], 1e-9, "2 x (1-0) of queues, 2 x (1-0.5) of caches")

	r = start(t, world{pages: pages, config: upstreamConfig})
	s = r.ask(request{body: ofModel})
	s.end()
	assert.Nil(t, s.gateway.Scores(), "off by default")
}

// Conformance tests of gateways choose the endpoint, and expect a report of the one that served.
func TestSelectionByConformanceTests(t *testing.T) {
	t.Parallel()
	const selection, told, echo = "test-epp-endpoint-selection", "x-conformance-test-served-endpoint", "x-echo-set-header"
	rules := envoytest.Rules{Set: []string{echo}, Reply: []string{told}}
	config := strings.Replace(strings.Replace(upstreamConfig, "- type: queue-scorer", "- type: header-based-testing-filter\n- type: queue-scorer", 1),
		"  plugins:\n  -", "  plugins:\n  - pluginRef: header-based-testing-filter\n  -", 1)
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r := start(t, world{mode: m, pages: []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0.1, ""), pageOf(9, 9, 0.9, "")}, config: config})
			ip := func(i int) string { return r.servers[i].address.Addr().String() }
			for give, want := range map[string]int{ip(2): 2, r.at(0): 0, ip(2) + ", " + ip(0): 0, r.at(2) + "," + r.at(1): 1} {
				s := r.ask(request{body: ofModel, headers: []string{selection, give}, rules: rules})
				assert.Equal(t, r.at(want), s.picked(), give)
				s.respond(response{served: r.at(want)})
				s.end()
				assert.Equal(t, []string{r.at(want)}, s.gateway.ResponseHeaders()[told])
			}
			for _, served := range []string{"", "-"} { // the gateway does not report it: the echo server does
				s := r.ask(request{body: ofModel, headers: []string{selection, ip(0)}, rules: rules})
				assert.Equal(t, []string{told + ":" + r.at(0)}, s.gateway.RequestHeaders()[echo])
				s.respond(response{served: served})
				s.end()
				assert.Empty(t, s.gateway.ResponseHeaders()[told])
			}
			gone := r.ask(request{body: ofModel, headers: []string{selection, "10.0.0.1"}}).refused()
			assert.Equal(t, 503, gone.status)
			assert.Equal(t, r.at(1), r.serve(request{body: ofModel}, response{}), "nobody is told without the header")
		})
	}
}

// A missing pool is no reason to restart the picker: it waits, alive and not ready, and answers what comes all the same.
func TestHealthWithoutAPool(t *testing.T) {
	t.Parallel()
	r := build(t, world{pages: []string{pageOf(0, 0, 0, "")}, absent: true, objects: map[string]map[string]object{pathPools: {"other": poolObject(1)}}})
	t.Cleanup(r.settle)
	const serving, not = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING
	ready := []string{"", "readiness", "inference-extension", "envoy.service.ext_proc.v3.ExternalProcessor"}
	assert.Equal(t, serving, r.serving("liveness"))
	assert.Equal(t, "ok\n", r.get(r.health(), "/healthz"))
	for _, service := range ready {
		assert.Equal(t, not, r.serving(service), service)
	}
	assert.NotEqual(t, "ok\n", r.get(r.health(), "/readyz"))
	for _, q := range []request{{body: ofModel}, {path: "/v1/models"}} {
		found := r.ask(q).refused()
		assert.Equal(t, 503, found.status)
		assert.Equal(t, "rejected-no-endpoints", found.reason)
	}

	r.api.put(t, pathPools, "pool", poolObject(r.servers[0].address.Port()))
	r.await(func() bool { return r.serving("readiness") == serving }, "ready")
	for _, service := range append(ready, "liveness") {
		r.await(func() bool { return r.serving(service) == serving }, "serving %s", service)
	}
	assert.Equal(t, r.at(0), r.serve(request{body: ofModel}, response{}))

	r.api.remove(t, pathPools, "pool")
	r.await(func() bool { return r.serving("readiness") == not }, "unready")
	assert.Equal(t, serving, r.serving("liveness"))
	r.api.put(t, pathPools, "pool", poolObject(r.servers[0].address.Port()))
	r.await(func() bool { return r.serving("readiness") == serving }, "ready again")
}

// A pod that is not ready, or has another label, is not picked; nor is one that was deleted.
func TestPodsOfThePool(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{byPool, bySelector} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r := start(t, world{mode: m, pages: []string{pageOf(0, 0, 0, "")}})
			l, err := net.Listen("tcp", netip.AddrPortFrom(newHost(), r.servers[0].address.Port()).String())
			require.NoError(t, err)
			r.servers = append(r.servers, serveModel(t, l, pageOf(9, 9, 0.9, "")))
			second := r.servers[1].address.Addr().String()
			only := request{body: ofModel, subset: list(r.at(1))}
			there := func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }
			gone := func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 1 }
			for name, change := range map[string]func(){
				"unready": func() { r.api.put(t, pathPods, podName(1), podObject(second, false, nil)) },
				"deleted": func() { r.api.remove(t, pathPods, podName(1)) },
				"being deleted": func() {
					pod := podObject(second, true, nil)
					pod["metadata"].(object)["deletionTimestamp"] = "2026-11-21T12:00:00Z"
					r.api.put(t, pathPods, podName(1), pod)
				},
				"another label": func() { r.api.put(t, pathPods, podName(1), podObject(second, true, map[string]string{"app": "other"})) },
			} {
				r.api.put(t, pathPods, podName(1), podObject(second, true, nil))
				r.await(there, "there, before it is "+name)
				assert.Equal(t, r.at(1), r.serve(only, response{}), name)
				change()
				r.await(gone, name)
				assert.Equal(t, nobodyAllowed, r.ask(only).refused(), name)
			}
		})
	}
}
