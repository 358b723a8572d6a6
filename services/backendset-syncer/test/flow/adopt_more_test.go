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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// TestMoreAdoptions has load balancers with certificates, and a record that was lost, under load.
func TestMoreAdoptions(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t)
	ids := map[string]string{}
	document := "podRanges: [10.0.0.0/24]\nloadBalancers:\n"
	for _, name := range []string{"certificates", "lost", "alias"} {
		ids[name] = g.balancer(name)
		document += fmt.Sprintf("- {id: %s, gateways: {namespaces: [infra]}}\n", ids[name])
	}
	g.configure(document)
	t.Run("certificates", func(t *testing.T) { testAdoptedCertificates(g.withTest(t), ids["certificates"], 1000) })
	t.Run("lost", func(t *testing.T) { testRecovery(g.withTest(t), ids["lost"], 2000) })
	t.Run("alias", func(t *testing.T) { testAlias(g.withTest(t), ids["alias"], 3000) })
}

// withTest returns the rig for a subtest.
func (g *gatewayRig) withTest(t *testing.T) *gatewayRig {
	own, inner := *g, *g.rig
	own.rig, inner.t = &inner, t
	return &own
}

// aliased are a GatewayClass of oke-gateway-api whose parameters are a GatewayConfig, and a Gateway without parameters of its own.
const aliased = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: oke-alias}
spec:
  controllerName: oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller
  parametersRef: {group: oke-gateway-api.gemyago.github.io, kind: GatewayConfig, name: alias, namespace: infra}
---
apiVersion: oke-gateway-api.gemyago.github.io/v1
kind: GatewayConfig
metadata: {name: alias, namespace: infra}
spec: {loadBalancerId: %[1]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: alias, namespace: infra}
spec:
  gatewayClassName: oke-alias
  listeners:
  - {name: http, port: %[2]d, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
`

// testAlias has a Gateway of a class of oke-gateway-api: without the flag the program leaves it alone, with it the program serves it.
func testAlias(g *gatewayRig, id string, port int) {
	stop := g.run()
	g.pods("models", "alias", "91")
	g.apply(fmt.Sprintf(aliased, id, port))
	g.gateway("infra", "beside", id, `drainMaximumSeconds: "1"`, fmt.Sprintf("{name: http, port: %d, protocol: HTTP}", port+1))
	g.route("models", "alias", "parentRefs: [{name: alias, namespace: infra}], rules: [{backendRefs: [{name: alias, port: 80}]}]")
	g.gatewayCondition("infra", "beside", "Programmed", "Programmed")
	g.settled()
	assert.Len(g.t, g.emulator.Current(id).Listeners, 1, "the listener of the Gateway of the program's own class")
	assert.Equal(g.t, "Pending", g.classReason("oke-alias"), "the reason that the CRD gives to new classes")
	stop()

	stop = g.run(func(c *config.Config) { c.Gateways.OKE = true })
	g.gatewayCondition("infra", "alias", "Programmed", "Programmed")
	g.routeCondition("models", "alias", "fairlead.dev/BackendsSynced", "Synced")
	assert.Equal(g.t, "Accepted", g.classReason("oke-alias"))
	client := g.client(port, nil)
	g.answers(client, "http://any.example.com/", "200 alias")
	route, err := g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Get(g.t.Context(), "alias", metav1.GetOptions{})
	require.NoError(g.t, err)
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	require.Len(g.t, parents, 1)
	assert.Equal(g.t, "oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller", parents[0].(map[string]any)["controllerName"])

	under := g.load(1, func() string { return get(client, "http://any.example.com/") }, isOK("alias"))
	require.NoError(g.t,
		g.dynamic.Resource(informers.GatewayConfigs).Namespace("infra").Delete(g.t.Context(), "alias", metav1.DeleteOptions{}))
	g.gatewayCondition("infra", "alias", "Accepted", "InvalidParameters")
	assert.Equal(g.t, "InvalidParameters", g.classReason("oke-alias"))
	g.settled()
	assert.Len(g.t, g.emulator.Current(id).Listeners, 2, "its listener stays")
	stop()
	g.run() // without the flag again
	g.settled()
	assert.Len(g.t, g.emulator.Current(id).Listeners, 2,
		"a recorded listener of a class that is no longer served stays until its Gateway is deleted")
	g.noFailure(under)
}

// classReason returns the reason of the condition Accepted of a GatewayClass.
func (g *gatewayRig) classReason(name string) string {
	g.t.Helper()
	u, err := g.dynamic.Resource(informers.GatewayClasses).Get(g.t.Context(), name, metav1.GetOptions{})
	require.NoError(g.t, err)
	var class gatewayv1.GatewayClass
	require.NoError(g.t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &class))
	return condition(class.Status.Conditions, "Accepted")
}

// certified are a Gateway and a route as oke-gateway-api leaves them: the OCID, a port, and the names of the certificates.
const certified = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: oke}
spec: {controllerName: oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller}
---
apiVersion: oke-gateway-api.gemyago.github.io/v1
kind: GatewayConfig
metadata: {name: secure, namespace: infra}
spec: {loadBalancerId: %[1]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure, namespace: infra, annotations: {oke-gateway-api.gemyago.github.io/gateway-programmed-certificates: "%[3]s"}}
spec:
  gatewayClassName: oke
  infrastructure: {parametersRef: {group: oke-gateway-api.gemyago.github.io, kind: GatewayConfig, name: secure}}
  listeners:
  - {name: https, port: %[2]d, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}, allowedRoutes: {namespaces: {from: All}}}
  - {name: late, port: %[4]d, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: secure
  namespace: models
  annotations: {oke-gateway-api.gemyago.github.io/http-route-programmed-lb-policy-rules:
      "https/p0000_1a2b3c4d_models_secure,late/p0000_1a2b3c4d_models_secure"}
spec:
  parentRefs: [{name: secure, namespace: infra}]
  rules: [{matches: [{path: {type: PathPrefix, value: /}}], backendRefs: [{name: secure, port: 80}]}]
`

// certifiedBalancer makes the load balancer of certified: a listener with the certificate of the present content of a Secret, one with that
// of an earlier content, a certificate that nothing uses any longer, and a listener of Terraform with a certificate.
func (g *gatewayRig) certifiedBalancer(id string, port int, certificates map[string][2]string) {
	g.t.Helper()
	g.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		for name, pair := range certificates {
			c, err := (&ocilb.CertificateDetails{CertificateName: name, PublicCertificate: pair[0], PrivateKey: pair[1]}).Certificate()
			if err != nil {
				return err
			}
			lb.Certificates[name] = c
		}
		for name, pods := range map[string]string{"models-secure-80": "71", "secure-default": "", "terraform": "72"} {
			s := &ocilb.BackendSet{Name: name, Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{}, HealthChecker: ocilb.HealthChecker{
				Protocol: "TCP", Port: 8000, ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000,
				ResponseBodyRegex: ".*",
			}}
			if pods != "" {
				s.Backends = append(s.Backends,
					ocilb.Backend{Name: "10.0.0." + pods + ":8000", IPAddress: "10.0.0." + pods, Port: 8000, Weight: 1})
			}
			lb.BackendSets[name] = s
		}
		forward := func(name, condition, set string) ocilb.RoutingRule {
			return ocilb.RoutingRule{
				Name: name, Condition: condition, Actions: []ocilb.Action{{Name: "FORWARD_TO_BACKENDSET", BackendSetName: set}},
			}
		}
		for i, name := range []string{"https", "late", "terraform"} {
			certificate := g.certificateOf(name, certificates)
			l := &ocilb.Listener{Name: name, Protocol: "HTTP", Port: port + i, DefaultBackendSetName: "secure-default",
				ConnectionConfiguration: &ocilb.ConnectionConfiguration{IdleTimeout: 300},
				SSLConfiguration:        &ocilb.SSLConfiguration{CertificateName: &certificate, Protocols: []string{"TLSv1.2"}}}
			if name == "terraform" {
				l.DefaultBackendSetName = "terraform"
			} else {
				policy := name + "_policy"
				lb.RoutingPolicies[policy] = &ocilb.RoutingPolicy{Name: policy, ConditionLanguageVersion: "V1", Rules: []ocilb.RoutingRule{
					forward("p0000_1a2b3c4d_models_secure", "http.request.url.path sw '/'", "models-secure-80"),
					forward("default_catch_all", "any(http.request.url.path sw '/')", "secure-default"),
				}}
				l.RoutingPolicyName = &policy
			}
			lb.Listeners[name] = l
		}
		return nil
	})
}

// certificateOf returns the certificate of a listener of certifiedBalancer.
func (g *gatewayRig) certificateOf(listener string, certificates map[string][2]string) string {
	switch listener {
	case "late":
		return "infra-tls-rev-2"
	case "terraform":
		return "terraform"
	}
	for name := range certificates {
		if name != "infra-tls-rev-1" && name != "infra-tls-rev-2" && name != "terraform" {
			return name
		}
	}
	return ""
}

// testAdoptedCertificates takes over listeners with certificates, and then replaces the Secret.
func testAdoptedCertificates(g *gatewayRig, id string, port int) {
	authority, second := ocilbtest.NewAuthority(g.t), ocilbtest.NewAuthority(g.t)
	host := "a.example.com"
	g.secret("infra", "tls", authority, host)
	secret, err := g.kube.CoreV1().Secrets("infra").Get(g.t.Context(), "tls", metav1.GetOptions{})
	require.NoError(g.t, err)
	current := "infra-tls-rev-" + secret.ResourceVersion
	certificates := map[string][2]string{current: {string(secret.Data["tls.crt"]), string(secret.Data["tls.key"])}}
	for _, name := range []string{"infra-tls-rev-1", "infra-tls-rev-2", "terraform"} {
		certificate, key := authority.Issue(g.t, host)
		certificates[name] = [2]string{certificate, key}
	}
	g.pods("models", "secure", "71")
	g.serve("10.0.0.72:8000", "terraform")
	g.certifiedBalancer(id, port, certificates)
	g.apply(fmt.Sprintf(certified, id, port, strings.Join([]string{current, "infra-tls-rev-2", "infra-tls-rev-1"}, ", "), port+1))

	old, renewed, n := g.client(port, authority), g.client(port, second), 0
	late, lateRenewed, foreign := g.client(port+1, authority), g.client(port+1, second), g.client(port+2, authority)
	either := func(a, b string) string {
		if strings.HasPrefix(a, "200") {
			return a
		}
		return b
	}
	stop := g.load(1, func() string {
		switch n++; n % 3 {
		case 0:
			return either(get(old, "https://a.example.com/"), get(renewed, "https://a.example.com/"))
		case 1:
			return either(get(late, "https://a.example.com/"), get(lateRenewed, "https://a.example.com/"))
		}
		return get(foreign, "https://a.example.com/")
	}, isOK("secure", "terraform"))

	code, out, log := g.adopt("secure")
	require.Equal(g.t, dryrun.ExitDiffers, code, log)
	for _, want := range []string{
		"certificate " + current + ": certificate of Gateway infra/secure",
		"certificate infra-tls-rev-2: certificate of Gateway infra/secure, of an earlier content of a Secret",
		"certificate infra-tls-rev-1: nothing uses it: it stays",
	} {
		assert.Contains(g.t, out, want)
	}
	code, _, log = g.adopt("secure", "--write")
	require.Zero(g.t, code, log)
	assert.Zero(g.t, g.emulator.Writes(time.Time{}))
	g.run(func(c *config.Config) { c.Gateways.OKE = true })
	g.gatewayCondition("infra", "secure", "Programmed", "Programmed")
	g.settled()
	lb := g.emulator.Current(id)
	assert.Equal(g.t, current, *lb.Listeners["https"].SSLConfiguration.CertificateName)
	assert.Equal(g.t, current, *lb.Listeners["late"].SSLConfiguration.CertificateName)
	assert.Equal(g.t, []string{"TLSv1.2"}, lb.Listeners["https"].SSLConfiguration.Protocols)
	require.Eventually(g.t, func() bool {
		return assert.ObjectsAreEqual([]string{"DeleteCertificate infra-tls-rev-2"}, g.deletions(id))
	}, kubetest.Patience, tick, "only what the program replaces, and after its listener has changed")
	assert.Contains(g.t, lb.Certificates, "infra-tls-rev-1")

	g.secret("infra", "tls", second, host)
	g.answers(renewed, "https://a.example.com/", "200 secure")
	g.answers(lateRenewed, "https://a.example.com/", "200 secure")
	require.Eventually(g.t, func() bool { return g.emulator.Current(id).Certificates[current] == nil }, kubetest.Patience, tick,
		"the adopted certificate is deleted in the end")
	assert.Contains(g.t, g.emulator.Current(id).Certificates, "terraform")
	g.noFailure(stop)
}

// deletions returns the accepted deletions of objects of a load balancer, in order.
func (g *gatewayRig) deletions(id string) []string {
	var all []string
	for _, c := range g.emulator.Calls() {
		if strings.HasPrefix(c.Operation, "Delete") && c.WorkRequest != "" && strings.Contains(c.Path, id) {
			all = append(all, c.Operation+" "+c.Path[strings.LastIndex(c.Path, "/")+1:])
		}
	}
	return all
}

// testRecovery loses the record of a load balancer with certificates, hostnames, a redirect, a canary and a rule of Terraform, and makes a
// new one: the program goes on without a change.
func testRecovery(g *gatewayRig, id string, port int) {
	authority := ocilbtest.NewAuthority(g.t)
	g.run()
	g.pods("models", "stable", "81 82")
	g.pods("models", "canary", "83")
	g.secret("infra", "lost", authority, "lost.example.com")
	g.gateway("infra", "lost", id, `drainMaximumSeconds: "2"`,
		fmt.Sprintf("{name: https, port: %d, protocol: HTTPS, hostname: lost.example.com, tls: {certificateRefs: [{name: lost}]}, %s}",
			port, all),
		fmt.Sprintf("{name: http, port: %d, protocol: HTTP, %s}", port+1, all))
	g.route("models", "lost",
		"parentRefs: [{name: lost, namespace: infra, sectionName: https}], rules: [{backendRefs: [{name: stable, port: 80, weight: 9}, "+
			"{name: canary, port: 80}]}]")
	g.route("infra", "lost",
		"parentRefs: [{name: lost, sectionName: http}], rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, "+
			"statusCode: 301}}]}]")
	g.routeCondition("models", "lost", "fairlead.dev/BackendsSynced", "Synced")
	g.gatewayCondition("infra", "lost", "Programmed", "Programmed")
	g.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		for name, p := range lb.RoutingPolicies {
			changed := *p
			rule := p.Rules[0]
			rule.Name, rule.Condition = "terraform", "http.request.url.path eq '/terraform'"
			changed.Rules = append([]ocilb.RoutingRule{rule}, p.Rules...)
			lb.RoutingPolicies[name] = &changed
		}
		return nil
	})
	g.settled()
	before, known := g.emulator.Current(id), g.record(id)

	client := g.client(port, authority)
	stop := g.load(2, func() string { return get(client, "https://lost.example.com/") }, isOK("stable", "canary"))
	g.emulator.ForgetCalls()
	require.NoError(g.t, g.kube.CoreV1().ConfigMaps("fairlead").Delete(g.t.Context(), lbrecord.ConfigMapName(id), metav1.DeleteOptions{}))
	g.gatewayCondition("infra", "lost", "Programmed", "RecordLost")
	code, out, log := g.adopt("lost")
	require.Equal(g.t, dryrun.ExitDiffers, code, log)
	assert.Contains(g.t, out, "The program then changes nothing of the layout")
	assert.Contains(g.t, out, "rule terraform is of no HTTPRoute: it stays")
	code, _, log = g.adopt("lost", "--write")
	require.Zero(g.t, code, log)
	g.gatewayCondition("infra", "lost", "Programmed", "Programmed")
	g.routeCondition("models", "lost", "fairlead.dev/BackendsSynced", "Synced")
	g.settled()
	assert.Zero(g.t, g.emulator.Writes(time.Time{}), "nothing has to change")
	for _, o := range known.Objects {
		assert.True(g.t, g.record(id).HasObject(o.Kind, o.Name), "%s %s", o.Kind, o.Name)
	}
	assert.Equal(g.t, before.RoutingPolicies, g.emulator.Current(id).RoutingPolicies)

	g.pods("models", "stable", "82 85") // it goes on
	g.routeCondition("models", "lost", "fairlead.dev/BackendsSynced", "Synced")
	require.NoError(g.t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("infra").Delete(g.t.Context(), "lost", metav1.DeleteOptions{}))
	require.Eventually(g.t, func() bool { return len(g.emulator.Current(id).RuleSets) == 0 }, kubetest.Patience, tick,
		"the new record has the rule set")
	g.noFailure(stop)
}
