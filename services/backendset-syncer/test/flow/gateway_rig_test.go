//go:build system

package flow

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// gatewayRig is a rig with the CRDs of the Gateway API and a network for the data plane.
type gatewayRig struct {
	*rig

	network *ocilbtest.Network
	dynamic dynamic.Interface
	served  map[string]*ocilbtest.Server // by address
	id      string                       // the load balancer of a subtest; empty: all
}

// poolCRD is enough of the CRD of InferencePools.
const poolCRD = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inferencepools.inference.networking.k8s.io,
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173"}}
spec:
  group: inference.networking.k8s.io
  names: {kind: InferencePool, listKind: InferencePoolList, plural: inferencepools, singular: inferencepool}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gateway-configs.oke-gateway-api.gemyago.github.io}
spec:
  group: oke-gateway-api.gemyago.github.io
  names: {kind: GatewayConfig, listKind: GatewayConfigList, plural: gateway-configs, singular: gateway-config}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func newGatewayRig(t *testing.T, changes ...func(*clusterapi.Config)) *gatewayRig {
	t.Helper()
	g := &gatewayRig{rig: newRig(t, changes...), network: ocilbtest.NewNetwork(), served: map[string]*ocilbtest.Server{}}
	g.emulator.Close()
	g.startEmulatorWith(func(o *ocilb.Options) { o.Plane.Dial, o.Plane.Listen = g.network.Dial, g.network.Listen })
	t.Cleanup(g.network.Close)
	client, err := dynamic.NewForConfig(g.cluster.RESTConfig())
	require.NoError(t, err)
	g.dynamic = client
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	require.NoError(t, err)
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes", "referencegrants"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)),
			"config/crd/standard/gateway.networking.k8s.io_"+kind+".yaml"))
		require.NoError(t, err)
		g.apply(string(text))
	}
	g.apply(poolCRD)
	g.apply(namespace("infra") + "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: oci}\nspec: " +
		"{controllerName: fairlead.dev/oci-load-balancer}\n")
	return g
}

// run starts the program with quick discovery.
func (g *gatewayRig) run(changes ...func(*config.Config)) (stop func()) {
	return g.start(append([]func(*config.Config){func(c *config.Config) {
		c.Discovery, c.Gateways.Namespace = time.Second, "fairlead"
	}}, changes...)...)
}

// gateway writes a Gateway with parameters for a load balancer. Each listener is in YAML.
func (g *gatewayRig) gateway(ns, name, id, parameters string, listeners ...string) {
	g.t.Helper()
	g.apply(fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %[2]s, namespace: %[1]s, labels: {fairlead.dev/gateway: parameters}}
data: {loadBalancerId: %[3]s, %[4]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  gatewayClassName: oci
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: %[2]s}}
  listeners:
  - %[5]s
`, ns, name, id, parameters, strings.Join(listeners, "\n  - ")))
}

// route writes an HTTPRoute with its spec in YAML.
func (g *gatewayRig) route(ns, name, spec string) {
	g.t.Helper()
	g.apply(fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n",
		name, ns, spec))
}

// pods serves pods of a Service, each with its number and the name of the Service, and writes its EndpointSlice.
func (g *gatewayRig) pods(ns, service, pods string) {
	g.t.Helper()
	for _, f := range strings.Fields(pods) {
		n, _, _ := strings.Cut(f, ":")
		g.serve("10.0.0."+n+":8000", service)
	}
	g.service(ns, service, pods)
}

// serve starts a pod that answers with its name.
func (g *gatewayRig) serve(address, name string) {
	g.t.Helper()
	if g.served[address] != nil {
		return
	}
	g.served[address] = g.network.Serve(g.t, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			fmt.Fprint(w, name)
			return
		}
		for range 20 {
			fmt.Fprint(w, name)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(20 * time.Millisecond): // the whole is much shorter than a drain
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// client returns a client that connects to a port of the load balancers, whatever the host. Each request has a connection of its own.
func (g *gatewayRig) client(port int, trust *ocilbtest.Authority) *http.Client {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return g.network.Dial(ctx, network, fmt.Sprintf("%s:%d", ocilbtest.Address, port))
		},
	}
	if trust != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: trust.Pool(), MinVersion: tls.VersionTLS12}
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout: 20 * time.Second,
	}
}

// get requests a URL, and returns the status with the body, or the error.
func get(client *http.Client, url string) string {
	response, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if l := response.Header.Get("Location"); l != "" {
		return fmt.Sprintf("%d %s", response.StatusCode, l)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

// answers waits until a URL is answered.
func (g *gatewayRig) answers(client *http.Client, url, want string) {
	g.t.Helper()
	var got string
	require.Eventually(g.t, func() bool { got = get(client, url); return got == want }, kubetest.Patience, tick, "%s", lazy(func() string {
		return fmt.Sprintf("%s answers %q, and not %q; log:\n%s", url, got, want, g.logs)
	}))
}

// load sends requests until stop is called, and counts those that do not succeed.
func (g *gatewayRig) load(clients int, request func() string, ok func(string) bool) (stop func() (sent, failed int)) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var sent, failed atomic.Int64
	var first atomic.Pointer[string]
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				got := request()
				if sent.Add(1); !ok(got) {
					failed.Add(1)
					first.CompareAndSwap(nil, &got)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	end := sync.OnceFunc(func() { cancel(); all.Wait() })
	g.t.Cleanup(end)
	return func() (int, int) {
		end()
		if text := first.Load(); text != nil {
			g.t.Logf("first failure: %s", *text)
		}
		return int(sent.Load()), int(failed.Load())
	}
}

// gatewayCondition waits until a condition of a Gateway has a reason, for its current generation.
func (g *gatewayRig) gatewayCondition(ns, name, kind, reason string, texts ...string) *gatewayv1.Gateway {
	g.t.Helper()
	gateway := &gatewayv1.Gateway{}
	require.Eventually(g.t, func() bool {
		u, err := g.dynamic.Resource(informers.Gateways).Namespace(ns).Get(g.t.Context(), name, metav1.GetOptions{})
		*gateway = gatewayv1.Gateway{}
		if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, gateway) != nil {
			return false
		}
		c := meta.FindStatusCondition(gateway.Status.Conditions, kind)
		return c != nil && c.Reason == reason && c.ObservedGeneration == gateway.Generation &&
			!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(c.Message, text) })
	}, kubetest.Patience, tick, "%s", lazy(func() string {
		return fmt.Sprintf("Gateway %s has %+v, and not %s of %s with %q; log:\n%s", name, gateway.Status, reason, kind, texts, g.logs)
	}))
	return gateway
}

// routeCondition waits until a condition of a route's first parent has a reason, for its current generation.
func (g *gatewayRig) routeCondition(ns, name, kind, reason string) *metav1.Condition {
	g.t.Helper()
	route := &gatewayv1.HTTPRoute{}
	var c *metav1.Condition
	require.Eventually(g.t, func() bool {
		u, err := g.dynamic.Resource(informers.HTTPRoutes).Namespace(ns).Get(g.t.Context(), name, metav1.GetOptions{})
		*route = gatewayv1.HTTPRoute{}
		if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, route) != nil || len(route.Status.Parents) == 0 {
			return false
		}
		c = meta.FindStatusCondition(route.Status.Parents[0].Conditions, kind)
		return c != nil && c.Reason == reason && c.ObservedGeneration == route.Generation
	}, kubetest.Patience, tick, "%s", lazy(func() string {
		return fmt.Sprintf("route %s has %+v, and not %s of %s; log:\n%s", name, route.Status, reason, kind, g.logs)
	}))
	return c
}

// secret writes a certificate for hosts.
func (g *gatewayRig) secret(ns, name string, by *ocilbtest.Authority, hosts ...string) {
	g.t.Helper()
	certificate, key := by.Issue(g.t, hosts...)
	indent := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") }
	g.apply(fmt.Sprintf(
		"apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    %s\n  "+
			"tls.key: |\n    %s\n",
		name, ns, indent(certificate), indent(key)))
}

// records returns the record of a load balancer.
func (g *gatewayRig) record(id string) *lbrecord.Record {
	g.t.Helper()
	r, err := lbrecord.NewStore(g.kube.CoreV1(), "fairlead", "test").Read(g.t.Context(), id)
	require.NoError(g.t, err)
	return r
}

// writes returns the names of the operations that were accepted since a time.
func (g *gatewayRig) writes(since time.Time) []string {
	var all []string
	for _, c := range g.emulator.Calls() {
		if c.Write() && c.WorkRequest != "" && strings.Contains(c.Path, g.id) && !c.At.Before(since) {
			all = append(all, c.Operation)
		}
	}
	return all
}

// settled waits until nothing is in progress, and asserts that nothing is written then.
func (g *gatewayRig) settled() {
	g.t.Helper()
	idle := func() bool { return g.emulator.Idle() }
	if g.id != "" {
		idle = func() bool { return g.emulator.Idle(g.id) }
	}
	require.Eventually(g.t, func() bool {
		if !idle() {
			return false
		}
		before := len(g.writes(time.Time{}))
		time.Sleep(time.Second)
		return idle() && len(g.writes(time.Time{})) == before
	}, kubetest.Patience, tick, "the program writes again and again")
}

func (g *gatewayRig) noFailure(stop func() (int, int)) {
	g.t.Helper()
	sent, failed := stop()
	g.t.Logf("%d requests, %d failed", sent, failed)
	assert.Positive(g.t, sent)
	assert.Zero(g.t, failed)
}

// isOK reports whether an answer is that of a pod.
func isOK(names ...string) func(string) bool {
	return func(got string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return got == "200 "+n })
	}
}
