//go:build system

package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// all permits routes of all namespaces.
const all = "allowedRoutes: {namespaces: {from: All}}"

// TestGateways runs the program in one cluster, with a load balancer, ports and Services for each subtest.
func TestGateways(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t)
	tests := []struct {
		name string
		run  func(g *gatewayRig, id string, port int)
	}{
		{"routes", testRoutes}, {"certificates", testCertificates}, {"ownership", testOwnership}, {"foreign", testForeignObjects},
		{"lostrecord", testLostRecord}, {"pools", testPools}, {"refusals", testGatewayRefusals},
	}
	var document strings.Builder
	document.WriteString("podRanges: [10.0.0.0/24]\nloadBalancers:\n")
	balancers := map[string]string{}
	for _, tt := range tests {
		balancers[tt.name] = g.balancer(tt.name)
		fmt.Fprintf(&document, "- {id: %s, gateways: {namespaces: [infra]}}\n", balancers[tt.name])
	}
	g.configure(document.String())
	g.run()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			own := g.withTest(t)
			own.id, own.served = balancers[tt.name], map[string]*ocilbtest.Server{}
			tt.run(own, own.id, 1000*(i+1))
			own.settled()
		})
	}
}

// testRoutes changes routes in every way under load.
func testRoutes(g *gatewayRig, id string, port int) {
	g.pods("models", "chat", "1 2")
	g.pods("models", "embed", "3")
	g.gateway("infra", "routes", id, `idleTimeoutSeconds: "900", drainMaximumSeconds: "8"`,
		fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all))
	g.gatewayCondition("infra", "routes", "Programmed", "Programmed")
	g.route("models", "chat",
		"parentRefs: [{name: routes, namespace: infra}], hostnames: [chat.example.com], rules: [{backendRefs: [{name: chat, port: 80}]}]")
	g.routeCondition("models", "chat", "Accepted", "Accepted")
	g.routeCondition("models", "chat", "fairlead.dev/BackendsSynced", "Synced")
	client := g.client(port, nil)
	assert.Equal(g.t, "200 chat", get(client, "http://chat.example.com/v1"))
	assert.True(g.t, strings.HasPrefix(get(client, "http://other.example.com/v1"), "502"), "no route has the host")
	gateway := g.gatewayCondition("infra", "routes", "Programmed", "Programmed")
	require.Len(g.t, gateway.Status.Addresses, 1)
	assert.Equal(g.t, ocilbtest.Address, gateway.Status.Addresses[0].Value)
	for _, l := range g.emulator.Current(id).Listeners {
		assert.EqualValues(g.t, 900, l.ConnectionConfiguration.IdleTimeout)
	}

	stop := g.load(4, func() string { return get(client, "http://chat.example.com/v1") }, isOK("chat", "embed"))
	slow := g.load(2, func() string { return get(client, "http://chat.example.com/slow") }, func(got string) bool {
		return got == "200 "+strings.Repeat("chat", 20) || got == "200 "+strings.Repeat("embed", 20)
	})
	parents := "parentRefs: [{name: routes, namespace: infra}], hostnames: [chat.example.com]"
	for _, change := range []string{
		// another rule
		"rules: [{matches: [{path: {value: /v1}}, {path: {value: /slow}}], backendRefs: [{name: chat, port: 80}]}, {backendRefs: [{name: " +
			"embed, port: 80}]}]",
		"rules: [{backendRefs: [{name: embed, port: 80}]}]",                                               // another Service
		"rules: [{backendRefs: [{name: chat, port: 80, weight: 9}, {name: embed, port: 80, weight: 1}]}]", // a canary
		"rules: [{backendRefs: [{name: chat, port: 80, weight: 1}, {name: embed, port: 80, weight: 9}]}]", // other weights
		"rules: [{backendRefs: [{name: chat, port: 80}]}]",
	} {
		g.route("models", "chat", parents+", "+change)
		g.routeCondition("models", "chat", "Accepted", "Accepted")
		g.routeCondition("models", "chat", "fairlead.dev/BackendsSynced", "Synced")
	}
	g.pods("models", "chat", "2:finishing 4") // a roll-out
	g.routeCondition("models", "chat", "fairlead.dev/BackendsSynced", "Synced")
	g.noFailure(stop)
	g.noFailure(slow)

	var out, log string
	require.Eventually(g.t, func() bool { // drains take longer than a second without a write
		var code int
		g.settled()
		code, out, log = g.plan("-n", "infra", "routes")
		return code == 0
	}, kubetest.Patience, tick, "the cluster differs from the plan")
	assert.Contains(g.t, out, "load balancer "+id+": 0 changes of its layout\n", log)
	settled := time.Now()
	g.pods("models", "chat", "4 5")
	require.Eventually(g.t, func() bool { return len(g.writes(settled)) > 0 }, kubetest.Patience, tick)
	g.settled()
	for _, operation := range g.writes(settled) {
		assert.Contains(g.t, operation, "Backend", "an event of endpoints changes no listener and no policy")
	}

	require.NoError(g.t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(g.t.Context(), "chat", metav1.DeleteOptions{}))
	require.Eventually(g.t, func() bool {
		lb := g.emulator.Current(id)
		return len(lb.RoutingPolicies) == 0 && len(lb.BackendSets) == 1
	}, kubetest.Patience, tick, "the policy is deleted, and the sets after they have drained")
	require.NoError(g.t, g.dynamic.Resource(informers.Gateways).Namespace("infra").Delete(g.t.Context(), "routes", metav1.DeleteOptions{}))
	require.Eventually(g.t, func() bool {
		lb := g.emulator.Current(id)
		_, err := lbrecord.NewStore(g.kube.CoreV1(), "fairlead", "test").Read(g.t.Context(), id)
		return len(lb.Listeners)+len(lb.BackendSets) == 0 && err != nil
	}, kubetest.Patience, tick, "nothing is left, not even the record")
}

// testCertificates rotates a certificate under load.
func testCertificates(g *gatewayRig, id string, port int) {
	first, second := ocilbtest.NewAuthority(g.t), ocilbtest.NewAuthority(g.t)
	g.pods("models", "secure", "11")
	g.secret("infra", "a", first, "a.example.com")
	g.secret("infra", "b", first, "b.example.com")
	listener := "{name: %[1]s, port: %[2]d, protocol: HTTPS, hostname: %[1]s.example.com, tls: {certificateRefs: [{name: %[1]s}], " +
		"options: {oci.oraclecloud.com/tls-protocols: \"TLSv1.2,TLSv1.3\"}}, " + all + "}"
	g.gateway("infra", "certificates", id, `drainMaximumSeconds: "1"`, fmt.Sprintf(listener, "a", port), fmt.Sprintf(listener, "b", port),
		fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port+1, all))
	g.route("models", "secure",
		"parentRefs: [{name: certificates, namespace: infra, port: "+fmt.Sprint(port)+
			"}], rules: [{backendRefs: [{name: secure, port: 80}]}]")
	g.route("infra", "redirect",
		"parentRefs: [{name: certificates, sectionName: http}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: "+
			"https, statusCode: 301, port: "+fmt.Sprint(port)+"}}]}]")
	g.gatewayCondition("infra", "certificates", "Programmed", "Programmed")
	g.routeCondition("models", "secure", "fairlead.dev/BackendsSynced", "Synced")
	g.routeCondition("infra", "redirect", "Accepted", "Accepted")
	old := g.client(port, first)
	g.answers(old, "https://a.example.com/", "200 secure")
	g.answers(old, "https://b.example.com/", "200 secure")
	g.answers(g.client(port+1, nil), "http://a.example.com/x?y=z", fmt.Sprintf("301 https://a.example.com:%d/x?y=z", port))

	renewed := g.client(port, second)
	stop := g.load(4, func() string {
		if got := get(old, "https://a.example.com/"); strings.HasPrefix(got, "200") {
			return got
		}
		return get(renewed, "https://a.example.com/")
	}, isOK("secure"))
	g.secret("infra", "a", second, "a.example.com")
	g.answers(renewed, "https://a.example.com/", "200 secure")
	g.noFailure(stop)
	require.Eventually(g.t, func() bool { return len(g.emulator.Current(id).Certificates) == 2 }, kubetest.Patience, tick,
		"the old certificate is deleted")
	g.answers(old, "https://b.example.com/", "200 secure")

	g.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: infra}\ntype: kubernetes.io/tls\nstringData: {tls.crt: broken, " +
		"tls.key: broken}\n")
	require.Eventually(g.t, func() bool {
		gateway := g.gatewayCondition("infra", "certificates", "Programmed", "Programmed")
		return condition(gateway.Status.Listeners[0].Conditions, "ResolvedRefs") == "InvalidCertificateRef"
	}, kubetest.Patience, tick)
	g.settled()
	g.answers(renewed, "https://a.example.com/", "200 secure")
}

func condition(all []metav1.Condition, kind string) string {
	for _, c := range all {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

// testOwnership has a tenant who claims the host of another one.
func testOwnership(g *gatewayRig, id string, port int) {
	g.pods("models", "victim", "21")
	g.pods("others", "evil", "22")
	g.gateway("infra", "ownership", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all))
	spec := "parentRefs: [{name: ownership, namespace: infra}], hostnames: [chat.example.com], rules: [{%sbackendRefs: [{name: %s, " +
		"port: 80}]}]"
	g.route("models", "victim", fmt.Sprintf(spec, "", "victim"))
	g.routeCondition("models", "victim", "Accepted", "Accepted")
	g.route("others", "evil", fmt.Sprintf(spec, "matches: [{path: {value: /v1}}], ", "evil"))
	c := g.routeCondition("others", "evil", "Accepted", "HostConflict")
	assert.NotContains(g.t, c.Message, "models", "it names no objects of other namespaces")
	client := g.client(port, nil)
	assert.Equal(g.t, "200 victim", get(client, "http://chat.example.com/v1"))
	require.NoError(g.t,
		g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(g.t.Context(), "victim", metav1.DeleteOptions{}))
	g.routeCondition("others", "evil", "Accepted", "Accepted")
	g.answers(client, "http://chat.example.com/v1", "200 evil")
}

// testForeignObjects has objects of Terraform on the load balancer, and a field in a listener of the program.
func testForeignObjects(g *gatewayRig, id string, port int) {
	g.pods("models", "foreign", "31")
	g.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		lb.BackendSets["terraform"] = &ocilb.BackendSet{Name: "terraform", Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{
			{Name: "10.0.0.31:8000", IPAddress: "10.0.0.31", Port: 8000, Weight: 1},
		},
			HealthChecker: ocilb.HealthChecker{
				Protocol: "TCP", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000, ResponseBodyRegex: ".*",
			}}
		lb.Listeners["terraform"] = &ocilb.Listener{
			Name: "terraform", DefaultBackendSetName: "terraform", Port: port + 1, Protocol: "HTTP",
			ConnectionConfiguration: &ocilb.ConnectionConfiguration{IdleTimeout: 60},
		}
		return nil
	})
	g.gateway("infra", "foreign", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all),
		fmt.Sprintf("{name: taken, port: %d, protocol: HTTP, %s}", port+1, all))
	g.route("models", "foreign", "parentRefs: [{name: foreign, namespace: infra}], rules: [{backendRefs: [{name: foreign, port: 80}]}]")
	g.routeCondition("models", "foreign", "fairlead.dev/BackendsSynced", "Synced")
	gateway := g.gatewayCondition("infra", "foreign", "Accepted", "ListenersNotValid")
	assert.Equal(g.t, "PortUnavailable", condition(gateway.Status.Listeners[1].Conditions, "Accepted"))
	var own string
	for _, o := range g.record(id).Objects {
		if o.Kind == lbrecord.Listener {
			own = o.Name
		}
	}
	require.NotEmpty(g.t, own)
	version := 1
	g.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		c := *lb.Listeners[own].ConnectionConfiguration
		c.BackendTCPProxyProtocolVersion = &version
		lb.Listeners[own].ConnectionConfiguration = &c
		return nil
	})
	g.route("models", "foreign",
		"parentRefs: [{name: foreign, namespace: infra}], rules: [{matches: [{path: {value: /a}}], backendRefs: [{name: foreign, "+
			"port: 80}]}]")
	g.routeCondition("models", "foreign", "Accepted", "Accepted")
	require.NoError(g.t,
		g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(g.t.Context(), "foreign", metav1.DeleteOptions{}))
	require.Eventually(g.t, func() bool { return g.emulator.Current(id).Listeners[own].RoutingPolicyName == nil }, kubetest.Patience, tick)
	require.NotNil(g.t, g.emulator.Current(id).Listeners[own].ConnectionConfiguration.BackendTCPProxyProtocolVersion)
	assert.EqualValues(g.t, 600, g.emulator.Current(id).Listeners[own].ConnectionConfiguration.IdleTimeout)
	require.NoError(g.t, g.dynamic.Resource(informers.Gateways).Namespace("infra").Delete(g.t.Context(), "foreign", metav1.DeleteOptions{}))
	require.Eventually(g.t, func() bool {
		lb := g.emulator.Current(id)
		return len(lb.Listeners) == 1 && len(lb.BackendSets) == 1
	}, kubetest.Patience, tick)
	assert.NotNil(g.t, g.emulator.Current(id).Listeners["terraform"])
	assert.Len(g.t, g.emulator.Current(id).BackendSets["terraform"].Backends, 1)
}

// testLostRecord deletes the record.
func testLostRecord(g *gatewayRig, id string, port int) {
	g.pods("models", "lost", "41")
	g.gateway("infra", "lost", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all))
	g.route("models", "lost", "parentRefs: [{name: lost, namespace: infra}], rules: [{backendRefs: [{name: lost, port: 80}]}]")
	g.routeCondition("models", "lost", "fairlead.dev/BackendsSynced", "Synced")
	g.settled()
	before := g.writes(time.Time{})
	require.NoError(g.t, g.kube.CoreV1().ConfigMaps("fairlead").Delete(g.t.Context(), lbrecord.ConfigMapName(id), metav1.DeleteOptions{}))
	gateway := g.gatewayCondition("infra", "lost", "Programmed", "RecordLost")
	code, _, log := g.plan("-n", "infra", "lost")
	assert.Equal(g.t, 1, code)
	assert.Contains(g.t, log, "backendset-syncer adopt")
	assert.Contains(g.t, gateway.Status.Conditions[len(gateway.Status.Conditions)-1].Message+gateway.Status.Conditions[0].Message, "adopt")
	g.pods("models", "lost", "41 42")
	require.NoError(g.t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(g.t.Context(), "lost", metav1.DeleteOptions{}))
	g.settled()
	assert.Equal(g.t, before, g.writes(time.Time{}), "nothing is written without a record")
	assert.Equal(g.t, "200 lost", get(g.client(port, nil), "http://any.example.com/"))
}

// testPools sends requests to an InferencePool whose proxies roll.
func testPools(g *gatewayRig, id string, port int) {
	picker := func(name, pods string) {
		for _, f := range strings.Fields(pods) {
			n, _, _ := strings.Cut(f, ":")
			g.serve("10.0.0."+n+":8000", "proxy")
		}
		g.apply(fmt.Sprintf(
			"apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: models}\nspec: {ports: [{name: grpc, port: 9002}, {name: "+
				"http, port: 80, targetPort: 8000, appProtocol: fairlead.dev/http-proxy}]}\n",
			name) + slice("models", name, pods))
	}
	picker("picker", "51 52")
	g.apply("apiVersion: v1\nkind: Service\nmetadata: {name: plain, namespace: models}\nspec: {ports: [{name: grpc, port: 9002}]}\n")
	for name, service := range map[string]string{"pool": "picker", "closed": "plain"} {
		g.apply(fmt.Sprintf("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: %s, namespace: models}\n"+
			"spec: {selector: {matchLabels: {app: x}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: %s, port: {number: 9002}, "+
			"failureMode: FailClose}}\n", name, service))
	}
	g.gateway("infra", "pools", id, `drainMinimumSeconds: "4", drainMaximumSeconds: "8"`, // a slow request takes 2 s
		fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all))
	ref := "parentRefs: [{name: pools, namespace: infra}], hostnames: [%[1]s.example.com], rules: [{backendRefs: [{group: " +
		"inference.networking.k8s.io, kind: InferencePool, name: %[1]s}]}]"
	g.route("models", "pool", fmt.Sprintf(ref, "pool"))
	g.route("models", "closed", fmt.Sprintf(ref, "closed"))
	g.routeCondition("models", "pool", "fairlead.dev/BackendsSynced", "Synced")
	c := g.routeCondition("models", "closed", "ResolvedRefs", "NoEndpointPickerProxy")
	assert.Contains(g.t, c.Message, "appProtocol fairlead.dev/http-proxy")
	client := g.client(port, nil)
	stop := g.load(4, func() string { return get(client, "http://pool.example.com/v1") }, isOK("proxy"))
	slow := g.load(2, func() string { return get(client, "http://pool.example.com/slow") }, isOK(strings.Repeat("proxy", 20)))
	for _, pods := range []string{"51:finishing 52 53", "52 53", "52:finishing 53 54", "53 54"} {
		picker("picker", pods)
		g.routeCondition("models", "pool", "fairlead.dev/BackendsSynced", "Synced")
		time.Sleep(3 * time.Second)
	}
	g.noFailure(stop)
	g.noFailure(slow)
}

// TestReadinessGateOfARoute has a pod with the readiness gate behind a route only: the gate opens when the load balancer sends requests to
// the pod.
func TestReadinessGateOfARoute(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t)
	id, port := g.balancer("gates"), 1000
	g.configure(fmt.Sprintf("podRanges: [10.0.0.0/24]\nloadBalancers: [{id: %s, gateways: {namespaces: [infra]}}]", id))
	g.run(func(c *config.Config) { c.Gates.Enabled, c.Verify = true, time.Hour })
	g.gateway("infra", "gates", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port, all))
	g.gatewayCondition("infra", "gates", "Programmed", "Programmed")
	g.route("models", "gated", "parentRefs: [{name: gates, namespace: infra}], rules: [{backendRefs: [{name: gated, port: 80}]}]")
	pod := g.gatedPod("gated-61")
	g.serve("10.0.0.61:8000", "gated")
	g.service("models", "gated", "")
	g.apply(sliceOf(pod, "gated", "61:notready"))
	g.routeCondition("models", "gated", "fairlead.dev/BackendsSynced", "Synced")
	g.settled()
	release := g.holdBackends()
	g.containersReady(pod)
	g.gate("gated-61", "False WaitingForLoadBalancer")
	time.Sleep(11 * time.Second)
	g.gate("gated-61", "False WaitingForLoadBalancer")
	release()
	g.gate("gated-61", "True InService")
	assert.Equal(g.t, "200 gated", get(g.client(port, nil), "http://any.example.com/"))
}

// holdBackends makes writes of backends fail until release is called.
func (g *gatewayRig) holdBackends() (release func()) {
	g.t.Helper()
	g.emulator.SetFaults(ocilb.Fault{
		Operations: []string{"CreateBackend", "UpdateBackend", "CreateBackendSet", "UpdateBackendSet"}, Kind: ocilb.FaultStatus,
		Status: 409, Code: "IncorrectState", Count: 1 << 20,
	})
	return func() { g.emulator.SetFaults() }
}

// testGatewayRefusals has Gateways that may not be programmed.
func testGatewayRefusals(g *gatewayRig, id string, port int) {
	g.gateway("models", "thief", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP}", port))
	g.gatewayCondition("models", "thief", "Accepted", "NotAllowed")
	g.gateway("infra", "typo", id, `idleTimeout: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP}", port))
	// the program may see the Gateway first
	g.gatewayCondition("infra", "typo", "Accepted", "InvalidParameters", "idleTimeout: unknown key")
	assert.Empty(g.t, g.emulator.Current(id).Listeners)
}
