package gatewayplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	webListener = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
	toChat      = "rules: [{backendRefs: [{name: chat, port: 80}]}]"
	redirect    = "rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]}]"
)

// TestRefusedGateways has settings that a load balancer cannot obey: the Gateway is not accepted, and the load balancer not programmed.
func TestRefusedGateways(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, parameters, spec string
		reason, message        string
	}{
		{
			"client certificates", "",
			"tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}}}", "UnsupportedValue",
			"spec.tls.frontend",
		},
		{
			"client certificates of a port", "",
			"tls: {frontend: {default: {}, perPort: [{port: 443, tls: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, " +
				"name: ca}]}}}]}}",
			"UnsupportedValue", "spec.tls.frontend",
		},
		{"certificate for backends", "", "tls: {backend: {clientCertificateRef: {name: client}}}", "UnsupportedValue", "spec.tls.backend"},
		{"default Gateway", "", "defaultScope: All", "UnsupportedValue", "spec.defaultScope"},
		{"addresses", "", "addresses: [{value: 10.0.0.1}]", "UnsupportedAddress", "spec.addresses"},
		{
			"unknown parameter", "idleTimeout: '1'", "", "InvalidParameters",
			"idleTimeout: unknown key: use one of loadBalancerId, idleTimeoutSeconds",
		},
		{"misspelled parameter", "drainMaximumSecond: '1'", "", "InvalidParameters", `unknown key: did you mean "drainMaximumSeconds"?`},
		{"idle timeout", "idleTimeoutSeconds: '0'", "", "InvalidParameters", "idleTimeoutSeconds"},
		{"health check", "healthCheckPath: /health", "", "InvalidParameters", "healthCheckProtocol HTTP"},
		{"drain", "drainMinimumSeconds: '20', drainMaximumSeconds: '10'", "", "InvalidParameters", "drainMinimumSeconds exceeds"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.gateway("web", tt.parameters, tt.spec, webListener)
			resolution := r.planner().ResolveGateways()
			assert.Empty(t, resolution.Balancers)
			require.Len(t, resolution.Unprogrammable, 1)
			assert.Equal(t, tt.reason, resolution.Unprogrammable[0].Problem.Reason)
			assert.Contains(t, resolution.Unprogrammable[0].Problem.Message, tt.message)
			assert.Empty(t, r.plan().Layout.Listeners)
		})
	}
}

// TestRedirectsTakeNoLiveHosts turns an old route into a redirect of all requests: requests of other namespaces keep their rules.
func TestRedirectsTakeNoLiveHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1)
	r.route("others", "old", "hostnames: [unused.example.com], "+toChat)
	r.route("models", "chat", "hostnames: [chat.example.com], "+toChat)
	r.serve()
	r.route("others", "old", redirect)
	p := r.serve()
	assert.Equal(t, "true", accepted(p, "models", "chat"), "it was served before")
	assert.Contains(t, accepted(p, "others", "old"), "UnsupportedValue")
	assert.Empty(t, p.Layout.RuleSets)
	setOf(t, p, "chat.example.com")

	r.route("models", "chat", "parentRefs: [{name: other, namespace: infra}], "+toChat)
	p = r.serve()
	assert.Equal(t, "true", accepted(p, "others", "old"), "nobody else has rules there now")
	r.route("models", "chat", toChat)
	p = r.serve()
	assert.Equal(t, "true", accepted(p, "others", "old"), "the redirect is served, and stays")
	assert.Contains(t, accepted(p, "models", "chat"), "an older rule redirects all requests")
}

// TestClaimsAreOfServedHosts has a rule that one listener takes and another has no room for: its namespace gets the hosts of the first.
func TestClaimsAreOfServedHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config = strings.Replace(r.config, "namespaces: [infra]", "namespaces: [infra], conditions: 20", 1)
	r.gateway("web", "", "", "{name: one, port: 81, protocol: HTTP, hostname: h1.example.com, allowedRoutes: {namespaces: {from: All}}}",
		webListener)
	r.service("models", "chat", 1)
	var hosts []string
	for i := range 16 {
		hosts = append(hosts, fmt.Sprintf("h%d.example.com", i))
	}
	r.route("models", "chat", "hostnames: ["+strings.Join(hosts, ", ")+"], "+toChat)
	p := r.serve()
	assert.Equal(t, "true", accepted(p, "models", "chat"))
	require.Len(t, p.Layout.Policies, 1)
	assert.Len(t, p.Record.Claims, 1, "the other listener does not serve the other hosts")
}

// TestLostHostsHaveOneMessage has a route that loses all of its hosts. Each plan names the same one, so that the status does not change.
func TestLostHostsHaveOneMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1)
	hosts := "hostnames: [a.example.com, b.example.com, c.example.com, d.example.com], " + toChat
	r.route("models", "chat", hosts)
	r.route("others", "thief", hosts)
	want := accepted(r.serve(), "others", "thief")
	assert.Contains(t, want, "host d.example.com")
	for range 20 {
		assert.Equal(t, want, accepted(r.serve(), "others", "thief"))
	}
}

// TestParametersOfSets has two Gateways with different parameters on a load balancer: each set gets those of the Gateway that uses it.
func TestParametersOfSets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "drainMaximumSeconds: '10'", "", webListener)
	r.gateway("second", "drainMaximumSeconds: '20', healthCheckProtocol: HTTP, healthCheckPath: /health", "",
		strings.Replace(webListener, "port: 80", "port: 81", 1))
	for i, name := range []string{"a", "b", "both"} {
		r.service("models", name, i)
	}
	r.route("models", "a", "rules: [{matches: [{path: {value: /a}}], backendRefs: [{name: a, port: 80}]}]")
	r.route("models", "b",
		"parentRefs: [{name: second, namespace: infra}], rules: [{matches: [{path: {value: /b}}], backendRefs: [{name: b, port: 80}]}]")
	r.route("models", "both",
		"parentRefs: [{name: second, namespace: infra}, {name: web, namespace: infra}], rules: [{matches: [{path: {value: /both}}], "+
			"backendRefs: [{name: both, port: 80}]}]")
	p := r.serve()
	health := map[string]plan.HealthChecker{}
	for _, s := range p.Layout.Sets {
		health[s.Name] = s.Health
	}
	name, s := setOf(t, p, "'/a'")
	assert.Equal(t, 10*time.Second, s.Wanted.Drain.Maximum)
	assert.Nil(t, s.Wanted.Health)
	assert.Equal(t, "TCP", health[name].Protocol)
	name, s = setOf(t, p, "'/b'")
	assert.Equal(t, 20*time.Second, s.Wanted.Drain.Maximum)
	require.NotNil(t, s.Wanted.Health)
	assert.Equal(t, "/health", s.Wanted.Health.URLPath)
	assert.Equal(t, "HTTP", health[name].Protocol)
	_, s = setOf(t, p, "'/both'")
	assert.Equal(t, 10*time.Second, s.Wanted.Drain.Maximum, "the oldest of its Gateways decides")
}

// TestHealthOfTheResponder has an HTTP health check for model servers: the responder answers 404 and 500, and stays healthy.
func TestHealthOfTheResponder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Responder.Namespace, r.options.Responder.Name = "fairlead", "responder"
	r.gateway("web", "healthCheckProtocol: HTTP, healthCheckPath: /health", "", webListener)
	r.service("models", "chat", 1)
	r.route("models", "chat", toChat)
	p := r.serve()
	require.Len(t, p.Layout.Sets, 3)
	for _, s := range p.Layout.Sets {
		want := "TCP"
		if strings.Contains(s.Name, "chat") {
			want = "HTTP"
		}
		assert.Equal(t, want, s.Health.Protocol, s.Name)
		require.NotNil(t, p.Sets[s.Name].Wanted.Health, s.Name)
		assert.Equal(t, want, p.Sets[s.Name].Wanted.Health.Protocol, s.Name)
	}
}

// TestConditionsOfOthers has a policy with rules of others: their conditions count toward the limit of the policy.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config = strings.Replace(r.config, "namespaces: [infra]", "namespaces: [infra], conditions: 20", 1)
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1)
	r.route("models", "chat", "hostnames: [chat.example.com], "+toChat)
	p := r.serve()
	name := p.Layout.Policies[0].Name
	own := r.live.Policies[name]
	for i := range 3 {
		own.Rules = append(own.Rules, plan.Rule{
			Name: fmt.Sprint("terraform", i), Set: own.Rules[0].Set,
			Condition: "all(http.request.url.path eq '/a', any(http.request.url.path eq '/b', http.request.url.path eq '/c'), " +
				"http.request.url.path eq '/d', http.request.url.path eq '/e')",
		})
	}
	r.live.Policies[name] = own
	r.route("others", "more", "hostnames: [more.example.com], rules: [{backendRefs: [{name: chat, port: 80}]}]")
	assert.Contains(t, accepted(r.plan(), "others", "more"), "CapacityExceeded")
}

// TestRuleSetsAreLimited has rule sets of others, which leave room for one rule.
func TestRuleSetsAreLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener, "{name: more, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}")
	for i := range 49 {
		r.live.RuleSets[fmt.Sprint("terraform", i)] = lblayout.RuleSet{Name: fmt.Sprint("terraform", i)}
	}
	r.route("infra", "redirect", "parentRefs: [{name: web, sectionName: http}], "+redirect)
	r.route("infra", "second", "parentRefs: [{name: web, sectionName: more}], "+redirect)
	p := r.serve()
	assert.Equal(t, "true", accepted(p, "infra", "redirect"))
	assert.Contains(t, accepted(p, "infra", "second"), "CapacityExceeded")
}

// TestSetsOfPoolsKnowTheirPods: a set of a pool that fails open has the pods, which other Services may have, too.
func TestSetsOfPoolsKnowTheirPods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener)
	r.apply("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: pool, namespace: models}\n" +
		"spec: {selector: {matchLabels: {app: llm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: {number: " +
		"9002}, failureMode: FailOpen}}")
	r.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: llm-1, namespace: models, labels: {app: llm}}\n" +
		"status: {podIP: 10.0.0.7, phase: Running, conditions: [{type: Ready, status: 'True'}]}")
	r.route("models", "route",
		"rules: [{matches: [{path: {value: /a}}], backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool}]}]")
	_, s := setOf(t, r.serve(), "'/a'")
	require.Len(t, s.Wanted.Endpoints, 1)
	assert.Equal(t, []string{"models/picker"}, s.Wanted.Services)
	pod := r.objects[slices.IndexFunc(r.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Pod" })]
	assert.Equal(t, string(pod.GetUID()), s.Wanted.Endpoints[0].Pod)
}

// TestSetsKnowTheirServices, because the addresses of their pods can become those of other Services.
func TestSetsKnowTheirServices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1)
	r.service("models", "canary", 2)
	r.service("models", "gone", 3)
	r.route("models", "shared", "rules: [{backendRefs: [{name: chat, port: 80}, {name: canary, port: 80}]}]")
	r.route("models", "gone", "rules: [{matches: [{path: {value: /gone}}], backendRefs: [{name: gone, port: 80}]}]")
	r.serve()
	r.objects = slices.DeleteFunc(r.objects,
		func(u *unstructured.Unstructured) bool { return u.GetKind() == "Service" && u.GetName() == "gone" })
	var services []string
	for _, s := range r.plan().Sets { // the policy still uses the set of the Service that is gone
		services = append(services, s.Wanted.Services...)
	}
	assert.ElementsMatch(t, []string{"models/chat", "models/canary", "models/gone"}, services)
}
