package gateways

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
)

// change is one change of the objects of a route. The requests of the load, to chat.example.com/v1?k=1 with the header x-team: red, have a
// backend before and after it.
type change struct {
	name string
	do   func(w *world)
}

// spec changes the route, which is attached to all listeners.
func spec(fields string) func(*world) {
	return func(w *world) { w.route("models", "chat", fields) }
}

func rules(rules ...string) func(*world) {
	return spec("hostnames: [chat.example.com], rules: [" + strings.Join(rules, ", ") + "]")
}

const (
	ofChat  = "backendRefs: [{name: chat, port: 80}]"
	ofEmbed = "backendRefs: [{name: embed, port: 80}]"
	port81  = "{name: more, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
)

func listeners(all ...string) func(*world) {
	return func(w *world) { w.gateway("web", `drainMaximumSeconds: "30"`, all...) }
}

// changes are all kinds of changes of routes, and of what they depend on.
var changes = []change{
	{"a second hostname", spec("hostnames: [chat.example.com, more.example.com], rules: [{" + ofChat + "}]")},
	{"a wildcard", spec("hostnames: ['*.example.com'], rules: [{" + ofChat + "}]")},
	{"no hostname", spec("rules: [{" + ofChat + "}]")},
	{"the hostname again", rules("{" + ofChat + "}")},
	{"an exact path", rules("{matches: [{path: {type: Exact, value: /v1}}], "+ofEmbed+"}", "{"+ofChat+"}")},
	{"a prefix", rules("{matches: [{path: {value: /v1}}], "+ofChat+"}", "{"+ofEmbed+"}")},
	{"a longer prefix", rules("{matches: [{path: {value: /v1/models}}], "+ofChat+"}", "{"+ofEmbed+"}")},
	{
		"a regular expression",
		rules("{matches: [{path: {type: RegularExpression, value: '^/v.*'}}], "+ofChat+"}", "{matches: [{path: {value: /}}], "+ofEmbed+"}"),
	},
	{"a header", rules("{matches: [{headers: [{name: x-team, value: red}]}], "+ofEmbed+"}", "{"+ofChat+"}")},
	{"another value of the header", rules("{matches: [{headers: [{name: x-team, value: blue}]}], "+ofEmbed+"}", "{"+ofChat+"}")},
	{"a query parameter", rules("{matches: [{queryParams: [{name: k, value: '1'}]}], "+ofEmbed+"}", "{"+ofChat+"}")},
	{
		"several matches",
		rules(
			"{matches: [{path: {value: /a}}, {path: {value: /v1}, headers: [{name: x-team, value: red}], queryParams: [{name: k, value: "+
				"'1'}]}], "+ofChat+"}",
			"{"+ofEmbed+"}"),
	},
	{
		"the rules in another order",
		rules("{"+ofEmbed+"}",
			"{matches: [{path: {value: /a}}, {path: {value: /v1}, headers: [{name: x-team, value: red}], queryParams: [{name: k, value: "+
				"'1'}]}], "+ofChat+"}"),
	},
	{"a rule that cannot be programmed", rules("{matches: [{method: POST}], "+ofEmbed+"}", "{"+ofChat+"}")},
	{
		"a filter that cannot be programmed",
		rules("{matches: [{path: {value: /a}}], filters: [{type: URLRewrite, urlRewrite: {hostname: a.example.com}}], "+ofEmbed+"}",
			"{"+ofChat+"}"),
	},
	{"weights", rules("{backendRefs: [{name: chat, port: 80, weight: 9}, {name: embed, port: 80, weight: 1}]}")},
	{"other weights", rules("{backendRefs: [{name: chat, port: 80, weight: 1}, {name: embed, port: 80, weight: 9}]}")},
	{"a weight of zero", rules("{backendRefs: [{name: chat, port: 80, weight: 0}, {name: embed, port: 80, weight: 9}]}")},
	{"a Service that does not exist", rules("{backendRefs: [{name: chat, port: 80}, {name: gone, port: 80}]}")},
	{"an InferencePool", rules("{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool}]}")},
	{"the Service again", rules("{" + ofChat + "}")},
	{"a younger route with a better match", func(w *world) {
		w.route("models", "young", "hostnames: [chat.example.com], rules: [{matches: [{path: {type: Exact, value: /v1}}], "+ofEmbed+"}]")
	}},
	{"the older route is deleted", func(w *world) { w.remove("HTTPRoute", "models", "chat") }},
	{"the older route comes back", rules("{" + ofChat + "}")},
	{"the younger route is deleted", func(w *world) { w.remove("HTTPRoute", "models", "young") }},
	{"a second listener", listeners(webListener, port81)},
	{"one listener of the two", func(w *world) {
		w.apply("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: chat, namespace: models}\n" +
			"spec: {parentRefs: [{name: web, namespace: infra, sectionName: http}], rules: [{" + ofChat + "}]}\n")
	}},
	{"a redirect on the other listener", func(w *world) {
		w.apply("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: redirect, namespace: infra}\n" +
			"spec: {parentRefs: [{name: web, sectionName: more}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: " +
			"https}}]}]}\n")
	}},
	{"no redirect", func(w *world) { w.remove("HTTPRoute", "infra", "redirect") }},
	{"all listeners", rules("{" + ofChat + "}")},
	{
		"a listener for the hosts",
		listeners(webListener,
			"{name: hosts, port: 80, hostname: '*.example.com', protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"),
	},
	{
		"the listener for the hosts alone",
		listeners("{name: http, port: 80, hostname: '*.example.com', protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"),
	},
	{"the listener for all hosts alone", listeners(webListener)},
	{"an idle timeout", func(w *world) { w.gateway("web", `drainMaximumSeconds: "30", idleTimeoutSeconds: "900"`, webListener) }},
	{"a health check", func(w *world) {
		w.gateway("web", `drainMaximumSeconds: "30", healthCheckProtocol: HTTP, healthCheckPath: /health`, webListener)
	}},
	{
		"no other namespaces",
		listeners(strings.Replace(webListener, "from: All", "from: Selector, selector: {matchLabels: {team: llm}}", 1)),
	},
}

// TestEveryChange makes every kind of change of a route under load: no request fails if the next change comes while the last one is
// written. In the long lane, no request fails if it waits for the last one either, in some modes of the load balancer.
func TestEveryChange(t *testing.T) {
	t.Parallel()
	all := map[string]*ocilb.Modes{"default": nil}
	if testlane.Long {
		for name, modes := range ocilbtest.SomeModes() {
			all[name] = modes
		}
	}
	for name, modes := range all {
		for _, hurry := range []bool{true, false}[:testlane.Repetitions(1, 2)] {
			t.Run(fmt.Sprintf("%s, hurry %t", name, hurry), func(t *testing.T) {
				t.Parallel()
				inWorld(t, modes, func(w *world) { testEveryChange(w, hurry) })
			})
		}
	}
}

func testEveryChange(w *world, hurry bool) {
	w.service("models", "chat", "1 2")
	w.service("models", "embed", "3")
	w.apply("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: pool, namespace: models}\n" +
		"spec: {selector: {matchLabels: {app: llm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: {number: " +
		"9002}, failureMode: FailOpen}}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: pod-9, namespace: models, labels: {app: llm}}\nstatus: {podIP: 10.0.0.9, " +
		"conditions: " +
		"[{type: Ready, status: 'True'}]}\n")
	w.serve("10.0.0.9:8000", "pod")
	w.gateway("web", `drainMaximumSeconds: "30"`, webListener)
	w.route("models", "chat", "hostnames: [chat.example.com], rules: [{"+ofChat+"}]")
	w.settle()
	client := w.client(80, nil)
	request := func() string {
		r, _ := http.NewRequest(http.MethodGet, "http://chat.example.com/v1?k=1", http.NoBody)
		r.Header.Set("X-Team", "red")
		return do(client, r)
	}
	for i, c := range changes {
		stop := w.load(request, oneOf("200 chat", "200 embed", "200 pod"))
		c.do(w)
		if hurry {
			time.Sleep(time.Duration(3+5*i%17) * time.Second)
		} else {
			w.settle()
		}
		stop()
		if w.t.Failed() {
			w.t.Fatalf("after %s", c.name)
		}
		if !hurry && strings.HasPrefix(w.routeCondition("models", "chat", "Accepted"), "True/") {
			assert.NotContains(w.t, w.routeCondition("models", "chat", "Accepted"), "old", c.name)
		}
	}
	w.settle()
	assert.Equal(w.t, "True/Accepted", w.routeCondition("models", "chat", "Accepted"))
	assert.Equal(w.t, "True/Synced", w.routeCondition("models", "chat", gatewaySynced))
	assert.Len(w.t, w.names()["sets"], 2, "sets that no route needs are deleted")
	assert.Len(w.t, w.names()["listeners"], 1)
}

// TestShares has a canary whose Service does not exist: its share of the requests gets status 500, and no other request fails.
func TestShares(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.stop()
		w.options = gatewayplan.Options{Responder: responder}
		w.start()
		w.network.Serve(w.t, "10.0.0.99:8500",
			http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) }))
		w.apply("apiVersion: v1\nkind: Service\nmetadata: {name: responder, namespace: fairlead}\nspec: {ports: [{name: no-backends, " +
			"port: 500, targetPort: 8500}]}\n---\n" +
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: responder-1, namespace: fairlead, labels: " +
			"{kubernetes.io/service-name: responder}}\naddressType: IPv4\n" +
			"ports: [{name: no-backends, port: 8500, protocol: TCP}]\nendpoints: [{addresses: [10.0.0.99]}]\n")
		w.service("models", "chat", "1 2 3")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", "rules: [{backendRefs: [{name: chat, port: 80, weight: 80}, {name: canary, port: 80, weight: 20}]}]")
		w.settle()
		client := w.client(80, nil)
		got := map[string]int{}
		for range 300 {
			got[get(client, "http://a.example.com/")]++
		}
		assert.Len(t, got, 2)
		assert.InDelta(t, 60, got["500 "], 12, "%v", got)
		assert.Equal(t, "False/BackendNotFound", w.routeCondition("models", "chat", "ResolvedRefs"))
		assert.Contains(t, w.routeMessage("models", "chat", "ResolvedRefs"), "its share of the requests gets status 500")
		w.ForgetCalls()
		w.service("models", "canary", "4")
		w.settle()
		assert.Empty(t, w.layoutWrites(), "the set stays when the Service comes")
		assert.Equal(t, "True/ResolvedRefs", w.routeCondition("models", "chat", "ResolvedRefs"))
		clear(got)
		for range 300 {
			got[get(client, "http://a.example.com/")]++
		}
		assert.InDelta(t, 60, got["200 canary"], 12, "%v", got)
		assert.Zero(t, got["500 "])
	})
}
