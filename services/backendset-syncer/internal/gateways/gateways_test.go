package gateways

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

const toChat = "rules: [{backendRefs: [{name: chat, port: 80}]}]"

// TestFrozenGateways breaks what a programmed Gateway depends on: its listeners stay, and its endpoints are kept.
func TestFrozenGateways(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"the class is gone":          func(w *world) { w.remove("GatewayClass", "", "oci") },
		"the parameters are gone":    func(w *world) { w.remove("ConfigMap", "infra", "web") },
		"the parameters are invalid": func(w *world) { w.gateway("web", `typo: "1"`, webListener) },
		"it is no longer permitted": func(w *world) {
			w.configure("podRanges: [10.0.0.0/24]\nloadBalancers: [{id: " + balancerID + "}]")
			w.changed()
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nil, func(w *world) {
				w.service("models", "chat", "1 2")
				w.gateway("web", `drainMaximumSeconds: "5"`, webListener)
				w.route("models", "chat", toChat)
				w.settle()
				before := w.names()
				client := w.client(80, nil)
				stop := w.load(func() string { return get(client, "http://a.example.com/") }, oneOf("200 chat"))
				change(w)
				w.settle()
				w.service("models", "chat", "2:finishing 3")
				w.settle()
				stop()
				assert.Equal(t, before, w.names())
				assert.Equal(t, "200 chat", get(client, "http://a.example.com/"))
				var active []string
				for _, b := range w.Current(balancerID).BackendSets[before["sets"][1]].Backends {
					if !b.Drain {
						active = append(active, b.Name)
					}
				}
				assert.Equal(t, []string{"10.0.0.3:8000"}, active, "its endpoints are kept")
			})
		})
	}
}

// TestSeveralGateways has two Gateways on a load balancer, which want the same port, and deletes one of them.
func TestSeveralGateways(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "5"`, webListener)
		time.Sleep(time.Second)
		w.gateway("second", `drainMaximumSeconds: "5"`, strings.Replace(webListener, "port: 80", "port: 81", 1),
			strings.Replace(webListener, "name: http", "name: taken", 1))
		w.route("models", "chat", toChat)
		w.settle()
		assert.Equal(t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
		assert.Equal(t, "True/ListenersNotValid", w.gatewayCondition("second", "Accepted"))
		assert.Equal(t, "False/HostnameConflict", w.listenerCondition("second", "taken", "Accepted"))
		assert.Equal(t, "True/HostnameConflict", w.listenerCondition("second", "taken", "Conflicted"))
		stop := w.load(func() string { return get(w.client(80, nil), "http://a.example.com/") }, oneOf("200 chat"))
		w.remove("Gateway", "infra", "second")
		w.settle()
		stop()
		assert.Len(t, w.names()["listeners"], 1)
		w.gateway("second", `drainMaximumSeconds: "5"`, webListener)
		w.remove("Gateway", "infra", "web")
		w.settle()
		assert.Equal(t, "True/Programmed", w.gatewayCondition("second", "Programmed"), "the port is free")
	})
}

// TestLimits has more Services than the load balancer has backend sets, and than a namespace may have.
func TestLimits(t *testing.T) {
	t.Parallel()
	modes := ocilb.DefaultOptions().Modes
	modes.Limits.BackendSets = 6
	inWorld(t, &modes, func(w *world) {
		w.configure("podRanges: [10.0.0.0/24]\nloadBalancers: [{id: " + balancerID + ", gateways: {namespaces: [infra], backendSets: 6}}]")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		route := func(ns, name, to string) {
			w.route(ns, name, fmt.Sprintf("hostnames: [%s.example.com], rules: [{backendRefs: [{name: %s, port: 80}]}]", name, to))
		}
		for i := range 5 {
			name := fmt.Sprintf("s%d", i)
			w.service("models", name, fmt.Sprint(i+1))
			route("models", name, name)
			time.Sleep(time.Second)
		}
		for i := range 3 {
			name := fmt.Sprintf("o%d", i)
			w.service("others", name, fmt.Sprint(i+101))
			route("others", name, name)
			time.Sleep(time.Second)
		}
		w.settle()
		assert.Equal(t, "True/Accepted", w.routeCondition("models", "s2", "Accepted"))
		assert.Equal(t, "False/CapacityExceeded", w.routeCondition("models", "s3", "Accepted"),
			"half of the sets are left for other namespaces")
		assert.Equal(t, "True/Accepted", w.routeCondition("others", "o0", "Accepted"))
		assert.Equal(t, "False/CapacityExceeded", w.routeCondition("others", "o1", "Accepted"),
			"the load balancer has 6 sets, of which one is for changes")
		stop := w.load(func() string { return get(w.client(80, nil), "http://s2.example.com/") }, oneOf("200 s2", "200 s3"))
		w.service("models", "s4", "50")
		for i, name := range []string{"s1", "s2", "s0"} { // three rules get other sets at once
			route("models", name, []string{"s4", "s3", "s2"}[i])
		}
		w.settle()
		stop()
		assert.Equal(t, "200 s4", get(w.client(80, nil), "http://s1.example.com/"))
		for _, c := range w.Calls() {
			assert.NotEqual(t, "LimitExceeded", c.Code, "%s: limits are checked before the call", c.Operation)
		}
		w.remove("HTTPRoute", "models", "s0")
		w.settle()
		assert.Equal(t, "True/Accepted", w.routeCondition("models", "s3", "Accepted"), w.routeMessage("models", "s3", "Accepted"))
	})
}

// TestReferenceGrants has references to other namespaces.
func TestReferenceGrants(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("others", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", "rules: [{backendRefs: [{name: chat, namespace: others, port: 80}]}]")
		w.settle()
		assert.Equal(t, "False/RefNotPermitted", w.routeCondition("models", "chat", "ResolvedRefs"))
		assert.Contains(t, get(w.client(80, nil), "http://a.example.com/"), "502")
		w.apply("apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: others}\n" +
			"spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: models}], to: [{group: '', kind: Service}]}\n")
		w.settle()
		assert.Equal(t, "True/ResolvedRefs", w.routeCondition("models", "chat", "ResolvedRefs"))
		assert.Equal(t, "200 chat", get(w.client(80, nil), "http://a.example.com/"))
		w.remove("ReferenceGrant", "others", "a")
		w.settle()
		assert.Contains(t, get(w.client(80, nil), "http://a.example.com/"), "502")
	})
}

// TestPools has an InferencePool that fails open: its pods are the backends while its endpoint picker has no ready proxy.
func TestPools(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.apply("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: pool, namespace: models}\n" +
			"spec: {selector: {matchLabels: {app: llm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: {number: " +
			"9002}, failureMode: FailOpen}}\n")
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: pod-%[1]d, namespace: models, labels: {app: %[2]s}}\nstatus: {podIP: " +
			"10.0.0.%[1]d, conditions: [{type: Ready, status: 'True'}]}\n"
		w.serve("10.0.0.9:8000", "pod")
		w.apply(fmt.Sprintf(pod, 9, "llm") + "\n---\n" + fmt.Sprintf(pod, 8, "other"))
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "pool", "rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool}]}]")
		w.settle()
		client := w.client(80, nil)
		if !assert.Equal(t, "200 pod", get(client, "http://a.example.com/")) {
			w.logRefusals()
		}
		stop := w.load(func() string { return get(client, "http://a.example.com/") }, oneOf("200 pod", "200 picker"))
		w.service("models", "picker", "1")
		w.apply("apiVersion: v1\nkind: Service\nmetadata: {name: picker, namespace: models}\nspec: {ports: [{name: http, port: 80, " +
			"targetPort: 8000, appProtocol: fairlead.dev/http-proxy}]}\n")
		w.settle()
		assert.Equal(t, "200 picker", get(client, "http://a.example.com/"))
		w.service("models", "picker", "1:finishing")
		w.apply("apiVersion: v1\nkind: Service\nmetadata: {name: picker, namespace: models}\nspec: {ports: [{name: http, port: 80, " +
			"targetPort: 8000, appProtocol: fairlead.dev/http-proxy}]}\n")
		w.settle()
		w.service("models", "picker", "")
		w.settle()
		assert.Equal(t, "200 pod", get(client, "http://a.example.com/"))
		stop()
	})
}

// TestPortChanges turns an HTTP listener into an HTTPS listener, and back.
func TestPortChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		authority := ocilbtest.NewAuthority(t)
		w.secret(authority)
		w.service("models", "chat", "1")
		listeners := func(protocol, tls string) []string {
			var all []string
			for _, host := range []string{"a", "b"} {
				all = append(all,
					fmt.Sprintf("{name: %s, port: 80, protocol: %s, hostname: %s.example.com%s, allowedRoutes: {namespaces: {from: All}}}",
						host, protocol, host, tls))
			}
			return all
		}
		w.gateway("web", `drainMaximumSeconds: "1"`, listeners("HTTP", "")...)
		w.route("models", "chat", toChat)
		w.settle()
		assert.Equal(t, "200 chat", get(w.client(80, nil), "http://a.example.com/"))
		w.gateway("web", `drainMaximumSeconds: "1"`, listeners("HTTPS", ", tls: {certificateRefs: [{name: tls}]}")...)
		w.settle()
		assert.Equal(t, "200 chat", get(w.client(80, authority), "https://a.example.com/"))
		assert.Equal(t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
		w.gateway("web", `drainMaximumSeconds: "1"`, listeners("HTTP", "")...)
		w.settle()
		assert.Equal(t, "200 chat", get(w.client(80, nil), "http://b.example.com/"))
	})
}

// TestForeignStatus keeps the entries of other controllers, and removes those of parents that are gone.
func TestForeignStatus(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		w.settle()
		r := informers.FindObject[gatewayv1.HTTPRoute](w.caches.Load().Routes, cache.ObjectName{Namespace: "models", Name: "chat"})
		other := r.Status.Parents[0].DeepCopy()
		other.ControllerName = "example.com/other"
		w.setStatus("HTTPRoute", "models", "chat", map[string]any{"parents": []any{other, r.Status.Parents[0]}})
		w.settle()
		w.remove("Gateway", "infra", "web")
		w.settle()
		r = informers.FindObject[gatewayv1.HTTPRoute](w.caches.Load().Routes, cache.ObjectName{Namespace: "models", Name: "chat"})
		require.Len(t, r.Status.Parents, 1)
		assert.EqualValues(t, "example.com/other", r.Status.Parents[0].ControllerName)
	})
}

// TestForeignRules keeps the rules of others in a routing policy of the program.
func TestForeignRules(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		w.settle()
		name := w.names()["policies"][0]
		require.Nil(t, w.Edit(balancerID, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			p := *lb.RoutingPolicies[name]
			own := p.Rules[0]
			own.Name, own.Condition = "terraform", "any(http.request.url.path eq '/terraform')"
			p.Rules = append([]ocilb.RoutingRule{own}, p.Rules...)
			lb.RoutingPolicies[name] = &p
			return nil
		}))
		time.Sleep(6 * time.Minute)
		w.route("models", "chat", "rules: [{matches: [{path: {value: /v1}}], backendRefs: [{name: chat, port: 80}]}]")
		w.settle()
		rules := w.Current(balancerID).RoutingPolicies[name].Rules
		require.Len(t, rules, 2)
		assert.Equal(t, "terraform", rules[0].Name)
		assert.Contains(t, rules[1].Condition, "/v1")

		w.remove("HTTPRoute", "models", "chat")
		w.settle()
		w.onlyForeign(name)
		assert.Equal(t, name, *w.Current(balancerID).Listeners[w.names()["listeners"][0]].RoutingPolicyName, "the listener obeys the rule")
		w.remove("Gateway", "infra", "web")
		w.settle()
		w.onlyForeign(name)
		assert.Empty(t, w.names()["listeners"])
		kept := "backendSets " + w.names()["sets"][0]
		assert.Equal(t, []string{kept}, w.recorded(), "the record has let go of the policy, and keeps the set of its rule")
		w.service("models", "chat", "2")
		w.settle()
		assert.Equal(t, "10.0.0.2:8000", w.Current(balancerID).BackendSets[w.names()["sets"][0]].Backends[0].Name, "the rule is served")

		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		w.settle()
		assert.Equal(t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
		assert.Equal(t, []string{name}, w.names()["policies"], "the listener takes its policy up again")
		assert.Len(t, w.Current(balancerID).RoutingPolicies[name].Rules, 2)

		w.remove("Gateway", "infra", "web") // while the route stays
		w.settle()
		w.onlyForeign(name)
		require.Nil(t, w.Edit(balancerID, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			delete(lb.RoutingPolicies, name)
			return nil
		}))
		time.Sleep(6 * time.Minute)
		w.settle()
		assert.Empty(t, w.names()["sets"])
		assert.Empty(t, w.recorded(), "nothing is left, not even the record")
	})
}

// TestRenamedListener gives a listener of a Gateway another name: it keeps its listener of the load balancer, and the rules of others.
func TestRenamedListener(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		w.settle()
		before := w.names()
		require.Nil(t, w.Edit(balancerID, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			p := *lb.RoutingPolicies[before["policies"][0]]
			own := p.Rules[0]
			own.Name, own.Condition = "terraform", "any(http.request.url.path eq '/terraform')"
			p.Rules = append([]ocilb.RoutingRule{own}, p.Rules...)
			lb.RoutingPolicies[p.Name] = &p
			return nil
		}))
		time.Sleep(6 * time.Minute)
		stop := w.load(func() string { return get(w.client(80, nil), "http://a.example.com/") }, oneOf("200 chat"))
		w.gateway("web", `drainMaximumSeconds: "1"`, strings.Replace(webListener, "name: http", "name: renamed", 1))
		w.settle()
		stop()
		assert.Equal(t, before, w.names())
		assert.Len(t, w.Current(balancerID).RoutingPolicies[before["policies"][0]].Rules, 2)
		assert.Equal(t, "True/Programmed", w.listenerCondition("web", "renamed", "Programmed"))
	})
}

// recorded returns the objects of the record.
func (w *world) recorded() []string {
	w.t.Helper()
	rec, err := w.reconciler.p.Records.Read(context.Background(), balancerID)
	if errors.Is(err, lbrecord.ErrMissing) {
		return nil
	}
	require.NoError(w.t, err)
	var all []string
	for _, o := range rec.Objects {
		all = append(all, string(o.Kind)+" "+o.Name)
	}
	return all
}

// onlyForeign checks that a routing policy has the rule of Terraform and nothing else.
func (w *world) onlyForeign(policy string) {
	w.t.Helper()
	p := w.Current(balancerID).RoutingPolicies[policy]
	require.NotNil(w.t, p)
	require.Len(w.t, p.Rules, 1)
	assert.Equal(w.t, "terraform", p.Rules[0].Name)
}
