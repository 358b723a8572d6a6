//go:build system

package flow

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/service"
	"fairlead.dev/services/backendset-syncer/internal/commands"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// upstreamObjects are a Gateway and a route as they are after oke-gateway-api has programmed them, and its Deployment.
const upstreamObjects = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: oke}
spec: {controllerName: oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller}
---
apiVersion: oke-gateway-api.gemyago.github.io/v1
kind: GatewayConfig
metadata: {name: inference, namespace: infra}
spec: {loadBalancerId: %[1]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: inference
  namespace: infra
  annotations: {oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller: "true",
    oke-gateway-api.gemyago.github.io/gateway-programming-revision: "2"}
spec:
  gatewayClassName: oke
  infrastructure: {parametersRef: {group: oke-gateway-api.gemyago.github.io, kind: GatewayConfig, name: inference}}
  listeners:
  - {name: http, port: %[2]d, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: chat
  namespace: models
  finalizers: [oke-gateway-api.gemyago.github.io/http-route-programmed]
  annotations:
    oke-gateway-api.gemyago.github.io/http-route-programming-revision: "5"
    oke-gateway-api.gemyago.github.io/http-route-programmed-lb-policy-rules:
      "http/p0000_1a2b3c4d_models_chat,http/p0001_1a2b3c4d_models_chat"
spec:
  parentRefs: [{name: inference, namespace: infra}]
  rules:
  - {matches: [{path: {type: PathPrefix, value: /chat}}], backendRefs: [{name: chat, port: 80}]}
  - {matches: [{path: {type: PathPrefix, value: /embed}}], backendRefs: [{name: embed, port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: oke-gateway-api-controller, namespace: others}
spec:
  replicas: 1
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: controller, image: "ghcr.io/gemyago/oke-gateway-api:v0.8.0"}]}}
`

// upstreamBalancer makes the load balancer as oke-gateway-api v0.8.0 leaves it, with a rule, a set and a listener of Terraform.
func upstreamBalancer(port int) func(lb *ocilb.LoadBalancer) *ocilb.Error {
	set := func(name string, pods ...int) *ocilb.BackendSet {
		s := &ocilb.BackendSet{Name: name, Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{}, HealthChecker: ocilb.HealthChecker{
			Protocol: "TCP", Port: 8000, ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000,
			ResponseBodyRegex: ".*",
		}}
		for _, n := range pods {
			ip := fmt.Sprintf("10.0.0.%d", n)
			s.Backends = append(s.Backends, ocilb.Backend{Name: ip + ":8000", IPAddress: ip, Port: 8000, Weight: 1})
		}
		return s
	}
	rule := func(name, condition, set string) ocilb.RoutingRule {
		return ocilb.RoutingRule{
			Name: name, Condition: condition, Actions: []ocilb.Action{{Name: "FORWARD_TO_BACKENDSET", BackendSetName: set}},
		}
	}
	return func(lb *ocilb.LoadBalancer) *ocilb.Error {
		for _, s := range []*ocilb.BackendSet{
			set("models-chat-80", 51, 52), set("models-embed-80", 53), set("inference-default"), set("terraform", 54),
		} {
			lb.BackendSets[s.Name] = s
		}
		policy := "http_policy"
		lb.RoutingPolicies[policy] = &ocilb.RoutingPolicy{Name: policy, ConditionLanguageVersion: "V1", Rules: []ocilb.RoutingRule{
			rule("by_hand", "http.request.url.path eq '/terraform'", "terraform"),
			rule("p0000_1a2b3c4d_models_chat", "http.request.url.path sw '/chat'", "models-chat-80"),
			rule("p0001_1a2b3c4d_models_chat", "http.request.url.path sw '/embed'", "models-embed-80"),
			rule("default_catch_all", "any(http.request.url.path sw '/')", "inference-default"),
		}}
		idle := &ocilb.ConnectionConfiguration{IdleTimeout: 300}
		lb.Listeners["http"] = &ocilb.Listener{
			Name: "http", Protocol: "HTTP", Port: port, DefaultBackendSetName: "inference-default", RoutingPolicyName: &policy,
			ConnectionConfiguration: idle,
		}
		lb.Listeners["terraform"] = &ocilb.Listener{
			Name: "terraform", Protocol: "HTTP", Port: port + 1, DefaultBackendSetName: "terraform", ConnectionConfiguration: idle,
		}
		return nil
	}
}

// adopt runs the subcommand.
func (g *gatewayRig) adopt(args ...string) (code int, out, log string) {
	g.t.Helper()
	var stdout, stderr bytes.Buffer
	root := commands.New(&stdout, &stderr)
	root.SetArgs(append([]string{
		"adopt", "-n", "infra", "--kubeconfig=" + g.cluster.Kubeconfig, "--config-map=fairlead/syncer", "--gateway-namespace=fairlead",
		"--oci-auth=api-key",
		"--oci-key-directory=" + g.keys, "--oci-endpoint=" + g.endpoint,
	}, args...))
	err := root.ExecuteContext(g.t.Context())
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	return service.ExitCode("", err, io.Discard), stdout.String(), stderr.String()
}

// TestAdopt takes a load balancer over from oke-gateway-api, under load. No request fails, and nothing is deleted.
func TestAdopt(t *testing.T) {
	t.Parallel()
	g := newGatewayRig(t)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	require.NoError(t, err)
	for _, kind := range []string{"grpcroutes", "tlsroutes", "backendtlspolicies"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)),
			"config/crd/standard/gateway.networking.k8s.io_"+kind+".yaml"))
		require.NoError(t, err)
		g.apply(string(text))
	}
	const port = 80
	id := g.balancer("adopt")
	g.configure(fmt.Sprintf("podRanges: [10.0.0.0/24]\nloadBalancers:\n- {id: %s, gateways: {namespaces: [infra]}}\n", id))
	g.pods("models", "chat", "51 52")
	g.pods("models", "embed", "53")
	g.serve("10.0.0.54:8000", "terraform")
	g.edit(id, upstreamBalancer(port))
	g.apply(fmt.Sprintf(upstreamObjects, id, port))

	client := g.client(port, nil)
	paths, n := []string{"/chat", "/embed", "/terraform"}, 0
	stop := g.load(1, func() string {
		n++
		return get(client,
			"http://any.example.com"+paths[n%len(paths)])
	}, isOK("chat", "embed", "terraform"))
	g.testAdoptRefusals()
	g.testAdoptWrites(id)

	g.emulator.ForgetCalls()
	g.run(func(c *config.Config) { c.Gateways.OKE = true })
	g.gatewayCondition("infra", "inference", "Programmed", "Programmed")
	g.routeCondition("models", "chat", "fairlead.dev/BackendsSynced", "Synced")
	g.settled()
	g.noFailure(stop)
	for _, c := range g.emulator.Calls() {
		assert.False(t, c.Write() && strings.HasPrefix(c.Operation, "Delete"), "%s %s", c.Operation, c.Path)
	}
	g.assertAdopted(id)
	assert.Equal(t, "200 terraform", get(client, "http://any.example.com/terraform"))
	assert.True(t, strings.HasPrefix(get(client, "http://any.example.com/chatter"), "502"), "a prefix matches whole elements now")

	require.NoError(t, g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Delete(t.Context(), "chat", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := g.dynamic.Resource(informers.HTTPRoutes).Namespace("models").Get(t.Context(), "chat", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, kubetest.Patience, tick, "the finalizer of oke-gateway-api stays; log:\n%s", g.logs)
	assert.True(t, strings.HasPrefix(get(client, "http://any.example.com/chat"), "502"), "its rules have left the load balancer before")
	assert.Equal(t, "200 terraform", get(client, "http://any.example.com/terraform"))
}

// testAdoptRefusals lets the command refuse for each reason, and removes the reason.
func (g *gatewayRig) testAdoptRefusals() {
	g.t.Helper()
	refused := func(want string) {
		g.t.Helper()
		code, _, log := g.adopt("inference", "--write")
		assert.Equal(g.t, 1, code, log)
		assert.Contains(g.t, log, want)
	}
	refused("refused: deployment others/oke-gateway-api-controller: oke-gateway-api runs")
	_, err := g.cluster.Kubectl(g.t.Context(), "-n", "others", "scale", "deployment", "oke-gateway-api-controller", "--replicas=0")
	require.NoError(g.t, err)
	for _, o := range []struct{ resource, manifest, want string }{
		{
			"grpcroutes",
			"kind: GRPCRoute\nmetadata: {name: grpc, namespace: models}\nspec: {parentRefs: [{name: inference, namespace: " +
				"infra}], rules: " +
				"[{backendRefs: [{name: chat, port: 80}]}]}",
			"refused: grpcroute models/grpc",
		},
		{
			"tlsroutes",
			"kind: TLSRoute\nmetadata: {name: tls, namespace: infra}\nspec: {hostnames: [a.example.com], parentRefs: [{name: " +
				"inference}], " +
				"rules: [{backendRefs: [{name: chat, port: 80}]}]}",
			"refused: tlsroute infra/tls",
		},
		{
			"backendtlspolicies",
			"kind: BackendTLSPolicy\nmetadata: {name: policy, namespace: models}\nspec: {targetRefs: [{group: \"\", kind: Service, name: " +
				"chat}], validation: {wellKnownCACertificates: System, hostname: a.example.com}}",
			"refused: backendtlspolicy models/policy",
		},
	} {
		g.apply("apiVersion: gateway.networking.k8s.io/v1\n" + o.manifest)
		refused(o.want)
		resource := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: o.resource}
		for _, ns := range []string{"models", "infra"} {
			require.NoError(g.t,
				g.dynamic.Resource(resource).Namespace(ns).DeleteCollection(g.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}
	}
	code, _, log := g.adopt("missing")
	assert.Equal(g.t, 1, code)
	assert.Contains(g.t, log, "gateway infra/missing does not exist")
}

// testAdoptWrites runs the command dry, and then lets it write the record. The load balancer stays as it is.
func (g *gatewayRig) testAdoptWrites(id string) {
	g.t.Helper()
	store := lbrecord.NewStore(g.kube.CoreV1(), "fairlead", "test")
	code, out, log := g.adopt("inference")
	require.Equal(g.t, dryrun.ExitDiffers, code, log)
	assert.Contains(g.t, log, "This was a dry run")
	for _, want := range []string{
		"listener http: listener http of Gateway infra/inference", "routing policy http_policy: rule by_hand is of no HTTPRoute: it stays",
		"backend set models-chat-80: set of rule p0000_1a2b3c4d_models_chat",
		"backend set inference-default: default of Gateway infra/inference",
	} {
		assert.Contains(g.t, out, want)
	}
	assert.NotContains(g.t, out, "  - ", "the first plan deletes nothing")
	_, err := store.Read(g.t.Context(), id)
	require.ErrorIs(g.t, err, lbrecord.ErrMissing)

	code, again, log := g.adopt("inference", "--write")
	require.Zero(g.t, code, log)
	assert.Equal(g.t, out, again)
	assert.Zero(g.t, g.emulator.Writes(time.Time{}), "the load balancer stays as it is")
	code, _, log = g.adopt("inference", "--write")
	assert.Equal(g.t, 1, code)
	assert.Contains(g.t, log, "has a record with")
}

// assertAdopted checks that everything has kept its name, and that rules and listeners of others are as they were.
func (g *gatewayRig) assertAdopted(id string) {
	g.t.Helper()
	lb := g.emulator.Current(id)
	require.Len(g.t, lb.Listeners, 2)
	assert.Equal(g.t, "http_policy", *lb.Listeners["http"].RoutingPolicyName)
	assert.EqualValues(g.t, 300, lb.Listeners["http"].ConnectionConfiguration.IdleTimeout)
	assert.Equal(g.t, "inference-default", lb.Listeners["http"].DefaultBackendSetName)
	require.Len(g.t, lb.BackendSets, 4)
	var rules []string
	for _, r := range lb.RoutingPolicies["http_policy"].Rules {
		rules = append(rules, strings.SplitN(r.Name, "_", 2)[0]+" "+r.Actions[0].BackendSetName)
	}
	assert.ElementsMatch(g.t, []string{"by terraform", "r000 models-embed-80", "r001 models-chat-80"}, rules)
	assert.Equal(g.t, "by terraform", rules[0], "the rule of Terraform stays where it was")
	assert.True(g.t, g.record(id).HasObject(lbrecord.Listener, "http"))
	assert.False(g.t, g.record(id).HasObject(lbrecord.Listener, "terraform"))
}
