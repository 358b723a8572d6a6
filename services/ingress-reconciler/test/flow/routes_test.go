//go:build system

package flow

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// Configurations. Release 1.3 ships perISVCSubdomain: false, which applies to HTTPRoutes only.
const (
	hold       = "holdSeconds: 1\n"
	byGateway  = "ingressDomain: example.com\nomeIngressGateway: gateways/public\n"
	subdomain  = "perISVCSubdomain: true\n"
	sharedHost = "perISVCSubdomain: false\n"

	gatewayAPI = byGateway + subdomain + hold
	ingress    = "ingressDomain: example.com\nstrategy: ingress\ningressClassName: ''\n" + hold
	istio      = "ingressDomain: example.com\nstrategy: virtualservice\ningressGateway: istio/public\n" + hold

	accepted = "True Programmed: http://%s/; Gateway gateways/public: accepted"
)

const gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: test}
spec: {controllerName: example.com/test}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: gateways}
spec:
  gatewayClassName: test
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
`

// TestFirstExample runs the first example of the page for users.
func TestFirstExample(t *testing.T) {
	t.Parallel()
	const examples, url = "../../../../deploy/examples/ingress/", "http://chat.models.llm.example.com/; Gateway gateways/public: accepted"
	file := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	values := struct {
		Config map[string]any `json:"config"`
	}{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(file(examples+"values.yaml")), &values))
	text, err := yaml.Marshal(values.Config)
	require.NoError(t, err)
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, string(text))
		r.apply(file(examples + "gateway.yaml"))
		r.start()
		r.apply(file(examples + "service.yaml"))
		r.awaitCondition("chat", "True Programmed: "+url)
		r.has("httproute chat.models.llm.example.com/ -> chat-engine by public")
		table, _, err := r.command("status")
		require.NoError(t, err)
		assert.Contains(t, file("../../../../docs/services/ingress-reconciler.md"), table)
	})
}

func TestOneDomainAndOneGateway(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
		r.settles()

		t.Log("The reconciler repairs objects that others change or delete")
		r.patch(render.HTTPRoutes, ns, r.only(render.HTTPRoutes).GetName(),
			`{"spec":{"hostnames":["else.example.com"]},"metadata":{"labels":{"theirs":"1","fairlead.dev/slot":null}}}`)
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.patch(render.HTTPRoutes, ns, r.only(render.HTTPRoutes).GetName(), `{"metadata":{"labels":{"fairlead.dev/managed-by":null}}}`)
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.delete(render.HTTPRoutes, ns, r.only(render.HTTPRoutes).GetName())
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.settles()

		t.Log("A component that is no longer ready keeps its route")
		r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, ome.AnnotationReady))
		r.awaitOME("chat", "EngineReady", "False")
		r.notices()
		r.settles()
		r.has("httproute chat.models.example.com/ -> chat-engine by public")

		t.Log("A service that has never been ready has no route")
		r.object(ns, "late", map[string]any{"engine": map[string]any{}}, map[string]any{ome.AnnotationReady: ""})
		r.awaitCondition("late", "False ComponentNotReady: the engine is not ready")
		r.patch(isvc.Resource, ns, "late", fmt.Sprintf(`{"metadata":{"annotations":{%q:"engine"}}}`, ome.AnnotationReady))
		r.awaitCondition("late", fmt.Sprintf(accepted, "late.models.example.com"))
	})
}

func TestEntryChangesInPlace(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"componentHosts: true\n")
		r.apply(gateway)
		r.start()
		engine, router := "httproute chat.models.example.com/ -> chat-engine by public", "httproute chat.models.example.com/ -> "+
			"chat-router by public"
		ofEngine, ofDecoder := "httproute chat-engine.models.example.com/ -> chat-engine by public", "httproute chat-decoder.models."+
			"example.com/ -> chat-decoder by public"
		r.service(ns, "chat", "engine")
		r.has(engine)

		r.patch(isvc.Resource, ns, "chat", `{"spec":{"decoder":{}}}`)
		r.has(engine, ofDecoder)
		uid := r.uids()[engine]

		t.Log("A router that is not ready receives no requests")
		r.patch(isvc.Resource, ns, "chat",
			fmt.Sprintf(`{"metadata":{"annotations":{%q:"engine,decoder"}},"spec":{"router":{}}}`, ome.AnnotationReady))
		r.awaitOME("chat", "RouterReady", "False")
		r.notices()
		r.settles()
		r.has(engine, ofEngine, ofDecoder)
		r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, ome.AnnotationReady))
		r.has(router, ofEngine, ofDecoder)
		assert.Equal(t, uid, r.uids()[router], "the object stays")

		t.Log("Without a router the engine is the entry again, ready or not")
		r.patch(isvc.Resource, ns, "chat",
			fmt.Sprintf(`{"metadata":{"annotations":{%q:""}},"spec":{"router":null,"decoder":null}}`, ome.AnnotationReady))
		r.has(engine)
		assert.Equal(t, uid, r.uids()[engine])
		r.settles()
	})
}

func TestServicesThatAreNotExposed(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		route := "httproute chat.models.example.com/ -> chat-engine by public"
		r.service(ns, "chat", "engine")
		r.has(route)
		tests := []struct{ name, on, off, says string }{
			{
				name: "cluster-local", says: "False ClusterLocal: the service has the visibility label cluster-local",
				on:  `{"metadata":{"labels":{"networking.knative.dev/visibility":"cluster-local"}}}`,
				off: `{"metadata":{"labels":{"networking.knative.dev/visibility":null}}}`,
			},
			{
				name: "OME's ingress",
				says: "False OMEIngressEnabled: OME creates routes for this service: set disableIngressCreation: true in OME's " +
					"configuration to use this controller",
				on:  `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":"false","ome.io/ingress-domain":"example.com"}}}`,
				off: `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":null,"ome.io/ingress-domain":null}}}`,
			},
		}
		for _, tt := range tests {
			t.Log(tt.name)
			r.patch(isvc.Resource, ns, "chat", tt.on)
			r.awaitCondition("chat", tt.says)
			r.has()
			r.settles()
			r.patch(isvc.Resource, ns, "chat", tt.off)
			r.has(route)
		}
		t.Log("A domain inside the cluster")
		r.configure(gatewayAPI + "overrides: [{names: [chat], ingressDomain: svc.cluster.local}]\n")
		r.awaitCondition("chat", "False ClusterLocal: host chat.models.svc.cluster.local is inside the cluster domain")
		r.has()
		r.settles()
		r.configure(gatewayAPI)
		r.has(route)

		t.Log("An invalid value of one service keeps its objects, and does not affect other services")
		r.service(ns, "other", "engine")
		r.configure(gatewayAPI + "overrides: [{names: [chat], domainTemplate: '{{ .Labels.team }}.example.com'}]\n")
		r.awaitCondition("chat",
			`False InvalidHost: domainTemplate: render template: 1:10: executing "host" at <.Labels.team>: map has no entry for key "team"`)
		r.has(route, "httproute other.models.example.com/ -> other-engine by public")

		t.Log("An invalid configuration keeps all objects")
		r.configure("ingressDomain: [")
		r.eventually(func() (string, bool) {
			m := r.logs.FilterMessage("Refused configuration").Len()
			return fmt.Sprint(m), m == 1
		}, "the log has the refused configuration")
		r.has(route, "httproute other.models.example.com/ -> other-engine by public")
		r.settles()
		r.configure(gatewayAPI + "enabled: false\n")
		r.has()

		t.Log("A service that is deleted")
		r.configure(gatewayAPI)
		r.has(route, "httproute other.models.example.com/ -> other-engine by public")
		r.delete(isvc.Resource, ns, "chat")
		r.settles()
	})
}

// TestConfigurationChangesLive also tests a configuration without perISVCSubdomain, which inherits OME's value.
func TestConfigurationChangesLive(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.configure(`{"ingressDomain": "example.org", "enableGatewayApi": true, "omeIngressGateway": "gateways/public", "holdSeconds": 1}`)
		inherited := map[ome.Release]string{
			ome.Release12: "chat.models.example.org/", ome.Release13: "llm.example.org/models/chat",
		}[release]
		r.has("httproute " + inherited + " -> chat-engine by public")
		r.awaitCondition("chat", fmt.Sprintf(accepted, strings.TrimSuffix(inherited, "/")))
		r.configure(byGateway + sharedHost + hold)
		r.has("httproute llm.example.com/models/chat -> chat-engine by public")
		r.awaitCondition("chat", fmt.Sprintf(accepted, "llm.example.com/models/chat"))
		r.settles()
	})
}

// TestPortOfTheAPI tests components with one port, and with other ports before the API port.
func TestPortOfTheAPI(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.start()
		for name, ports := range map[string]string{
			"first": "[{containerPort: 30000}]",
			"metrics": "[{containerPort: 9000, name: http-metrics}, {containerPort: 9001, name: prometheus}, {containerPort: 30000, " +
				"name: api}]",
			"several": "[{containerPort: 9000, name: grpc}, {containerPort: 9001, name: metrics}, {containerPort: 30000, name: http1}]",
		} {
			r.yaml(ns, name, "{engine: {runner: {name: e, ports: "+ports+"}}}", nil)
			r.awaitCondition(name, fmt.Sprintf(accepted, name+".models.example.com"))
		}
		list, err := r.client.Resource(render.HTTPRoutes).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 3)
		for i := range list.Items {
			assert.Equal(t, "30000", field(&list.Items[i], "spec", "rules", 0, "backendRefs", 0, "port"), "%s",
				describe("httproutes", &list.Items[i]))
		}
	})
}

func TestNamesThatAreAlike(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"domainTemplate: '{{ index .Labels \"host\" }}.{{ .IngressDomain }}'\ncomponentHosts: false\n")
		r.apply(gateway)
		r.start()
		var want []string
		for host, name := range map[string]string{"a": "foo", "b": "foo-engine", "c": "my-engine-v2"} {
			r.service(ns, name, "engine")
			r.patch(isvc.Resource, ns, name, fmt.Sprintf(`{"metadata":{"labels":{"host":%q}}}`, host))
			want = append(want, fmt.Sprintf("httproute %s.example.com/ -> %s-engine by public", host, name))
		}
		r.has(want...)
		r.settles()
	})
}

// TestLongNames tests names of components that OME truncates in Services and hosts.
func TestLongNames(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"componentHosts: true\n")
		r.apply(gateway)
		r.start()
		var want []string
		for _, length := range []int{56, 57, 63} { // with -engine: 63, 64, 70
			name := strings.Repeat("n", length)
			r.service(ns, name, "engine", "router")
			engine, router := r.serviceOf(name, "engine"), r.serviceOf(name, "router")
			assert.Len(t, engine, 63)
			assert.Equal(t, length == 56, engine == name+"-engine")
			want = append(want, fmt.Sprintf("httproute %s.models.example.com/ -> %s by public", name, router),
				fmt.Sprintf("httproute %[1]s.models.example.com/ -> %[1]s by public", engine))
		}
		r.has(want...)
		r.settles()
	})
}

func TestKindsThatComeAndGo(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI, render.HTTPRoutes, render.VirtualServices)
		r.apply(gateway)
		r.start(func(c *config.Config) { c.Discovery = 200 * time.Millisecond })
		r.service(ns, "chat", "engine")
		r.awaitCondition("chat",
			"False APIUnavailable: the kind of strategy httproute is not available: install its CRD, or add it to --kinds")
		r.settles()
		r.apply(crds(t)["httproutes"])
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.settles()
		_, err := r.cluster.Kubectl(t.Context(), "delete", "crd", "httproutes.gateway.networking.k8s.io")
		require.NoError(t, err)
		r.awaitCondition("chat",
			"False APIUnavailable: the kind of strategy httproute is not available: install its CRD, or add it to --kinds")
	})
}
