package flow

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/commands"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

const (
	gatewayAPI = "ingressDomain: example.com\nomeIngressGateway: gateways/public\nholdSeconds: 1\n"
	ingress    = "ingressDomain: example.com\nstrategy: ingress\ningressClassName: ''\nholdSeconds: 1\n"
	istio      = "ingressDomain: example.com\nstrategy: virtualservice\ningressGateway: istio/public\nholdSeconds: 1\n"

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

func TestOneDomainAndOneGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.says("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.settles()

	t.Log("what somebody else changes or removes comes back")
	route := func() string {
		list, err := r.client.Resource(render.HTTPRoutes).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		return list.Items[0].GetName()
	}
	r.patch(render.HTTPRoutes, ns, route(), `{"spec":{"hostnames":["else.example.com"]},"metadata":{"labels":{"theirs":"1","fairlead.dev/slot":null}}}`)
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.patch(render.HTTPRoutes, ns, route(), `{"metadata":{"labels":{"fairlead.dev/managed-by":null}}}`)
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.delete(render.HTTPRoutes, ns, route())
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.settles()

	t.Log("a component that is not ready any more keeps its route")
	r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, ome.AnnotationReady))
	r.settles()
	r.has("httproute chat.models.example.com/ -> chat-engine by public")

	t.Log("and a service that was never ready gets none")
	r.object(ns, "late", map[string]any{"engine": map[string]any{}}, map[string]any{ome.AnnotationReady: ""})
	r.says("late", "False ComponentNotReady: the engine is not ready")
	r.patch(isvc.Resource, ns, "late", fmt.Sprintf(`{"metadata":{"annotations":{%q:"engine"}}}`, ome.AnnotationReady))
	r.says("late", fmt.Sprintf(accepted, "late.models.example.com"))
}

func TestEntryChangesInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+"componentHosts: true\n")
	r.apply(gateway)
	r.start()
	engine, router := "httproute chat.models.example.com/ -> chat-engine by public", "httproute chat.models.example.com/ -> chat-router by public"
	ofEngine, ofDecoder := "httproute chat-engine.models.example.com/ -> chat-engine by public", "httproute chat-decoder.models.example.com/ -> chat-decoder by public"
	r.service(ns, "chat", "engine")
	r.has(engine)

	r.patch(isvc.Resource, ns, "chat", `{"spec":{"decoder":{}}}`)
	r.has(engine, ofDecoder)
	uid := r.uids()[engine]

	t.Log("a router that is not ready takes nothing over")
	r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:"engine,decoder"}},"spec":{"router":{}}}`, ome.AnnotationReady))
	r.settles()
	r.has(engine, ofEngine, ofDecoder)
	r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, ome.AnnotationReady))
	r.has(router, ofEngine, ofDecoder)
	assert.Equal(t, uid, r.uids()[router], "one object all the time")

	t.Log("without a router the engine is the entry again, ready or not")
	r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:""}},"spec":{"router":null,"decoder":null}}`, ome.AnnotationReady))
	r.has(engine)
	assert.Equal(t, uid, r.uids()[engine])
	r.settles()
}

func TestEveryWayFromOneStrategyToAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	strategies := map[string]string{
		"httproute chat.models.example.com/ -> chat-engine by public": gatewayAPI,
		"ingress chat.models.example.com/ -> chat-engine":             ingress,
		"virtualservice chat.models.example.com/ -> chat-engine":      istio,
		"": gatewayAPI + "enabled: false\n",
	}
	var names []string
	for name := range strategies {
		names = append(names, name)
	}
	exactly := func(name string) {
		t.Helper()
		if name == "" {
			r.has()
			return
		}
		r.has(name)
	}
	for _, from := range names {
		for _, to := range names {
			if from == to {
				continue
			}
			t.Logf("%q to %q", from, to)
			r.configure(strategies[from])
			exactly(from)
			r.settles()
			gaps := r.planes.watchGaps("chat.models.example.com")
			r.configure(strategies[to])
			exactly(to)
			if from != "" && to != "" {
				assert.Empty(t, gaps(), "new before old, and the old ones stay for the hold")
			}
		}
	}
	r.settles()
}

func TestOldStaysWhileNewIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, ingress)
	r.apply(gateway)
	r.planes.refuse(t.Context(), "public")
	r.start()
	r.service(ns, "chat", "engine")
	old, next := "ingress chat.models.example.com/ -> chat-engine", "httproute chat.models.example.com/ -> chat-engine by public"
	r.has(old)
	r.configure(gatewayAPI)
	r.has(old, next)
	r.says("chat", "False NotAllowedByListeners: http://chat.models.example.com/; Gateway gateways/public: by the test")
	time.Sleep(1500 * time.Millisecond) // longer than the hold
	r.has(old, next)

	t.Log("accepted, the hold begins; refused again, nothing goes; wanted again, the mark goes")
	r.configure(gatewayAPI + "holdSeconds: 3600\n")
	r.configure(gatewayAPI[:len(gatewayAPI)-len("holdSeconds: 1\n")] + "holdSeconds: 3600\n")
	r.planes.refuse(t.Context())
	r.says("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.eventually(func() (string, bool) { m := r.marked(); return fmt.Sprint(m), len(m) == 1 && m[0] == old }, "the old one is marked")
	r.configure(ingress)
	r.has(old)
	assert.Empty(t, r.marked())
}

func TestWhoWantsNothingExposed(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
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
			name: "OME's", says: "False OMEIngressEnabled: OME creates routes for this service: set disableIngressCreation: true in OME's configuration to use this controller",
			on:  `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":"false"}}}`,
			off: `{"metadata":{"annotations":{"ome.io/ingress-disable-creation":null}}}`,
		},
	}
	for _, tt := range tests {
		t.Log(tt.name)
		r.patch(isvc.Resource, ns, "chat", tt.on)
		r.says("chat", tt.says)
		r.has()
		r.settles()
		r.patch(isvc.Resource, ns, "chat", tt.off)
		r.has(route)
	}
	t.Log("a domain of the cluster's own")
	r.configure(gatewayAPI + "overrides: [{names: [chat], ingressDomain: svc.cluster.local}]\n")
	r.says("chat", "False ClusterLocal: host chat.models.svc.cluster.local is inside the cluster domain")
	r.has()
	r.settles()
	r.configure(gatewayAPI)
	r.has(route)

	t.Log("a wrong value leaves what is there, and is the service's own affair")
	r.service(ns, "other", "engine")
	r.configure(gatewayAPI + "overrides: [{names: [chat], domainTemplate: '{{ .Labels.team }}.example.com'}]\n")
	r.says("chat", `False InvalidHost: domainTemplate: render template: 1:10: executing "host" at <.Labels.team>: map has no entry for key "team"`)
	r.has(route, "httproute other.models.example.com/ -> other-engine by public")

	t.Log("and so does a configuration that cannot be read")
	r.configure("ingressDomain: [")
	r.eventually(func() (string, bool) {
		m := r.logs.FilterMessage("Refused configuration").Len()
		return fmt.Sprint(m), m == 1
	}, "a bad edit is told of")
	r.has(route, "httproute other.models.example.com/ -> other-engine by public")
	r.settles()
	r.configure(gatewayAPI + "enabled: false\n")
	r.has()

	t.Log("gone with its service")
	r.configure(gatewayAPI)
	r.has(route, "httproute other.models.example.com/ -> other-engine by public")
	r.delete(isvc.Resource, ns, "chat")
	r.settles()
}

func TestTwoServicesThatWantOneHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+"domainTemplate: one.example.com\n")
	r.apply(gateway)
	stop := r.start()
	r.service(ns, "old", "engine")
	r.says("old", fmt.Sprintf(accepted, "one.example.com"))
	r.aged(ns, "old")
	r.service("others", "a", "engine")
	r.eventually(func() (string, bool) {
		got := r.condition("others", "a")
		return got, got == "False HostConflict: one.example.com/ belongs to InferenceService models/old"
	}, "the loser says so")
	assert.Empty(t, r.ours("others"))
	r.settles()

	t.Log("what the older one has stays its own when nobody knows any more what it wants, not even after a restart")
	r.patch(isvc.Resource, ns, "old", `{"metadata":{"annotations":{"ome.io/ingress-domain-template":"{{ .Labels.team }}.example.com"}}}`)
	r.eventually(func() (string, bool) {
		got := r.condition(ns, "old")
		return got, strings.HasPrefix(got, "False InvalidHost")
	}, "it has a wrong value")
	stop()
	r.start()
	r.settles()
	assert.Empty(t, r.ours("others"))
	r.has("httproute one.example.com/ -> old-engine by public")

	t.Log("the next service waits until the route of the deleted one is gone, too")
	r.delete(isvc.Resource, ns, "old")
	r.settles()
	assert.Empty(t, r.ours("others"))
	r.collectGarbage()
	r.eventually(func() (string, bool) {
		got := fmt.Sprint(r.ours("others"))
		return got, got == "[httproute one.example.com/ -> a-engine by public]"
	}, "it takes over")
}

func TestStrangersObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	name := render.Name("chat", "httproute", "entry", "chat.models.example.com", "/", "", "", "gateways/public")
	strange := fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: %s}, spec: {hostnames: [theirs.example.com]}}`, name, ns)
	r.apply(strange)
	r.start()
	r.service(ns, "chat", "engine")
	r.service(ns, "other", "engine")
	r.says("chat", fmt.Sprintf("False NameConflict: http://chat.models.example.com/; Gateway gateways/public: HTTPRoute %s exists and has another owner: delete or rename it", name))
	r.has("httproute other.models.example.com/ -> other-engine by public")
	live, err := r.client.Resource(render.HTTPRoutes).Namespace(ns).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []any{"theirs.example.com"}, live.Object["spec"].(map[string]any)["hostnames"])
	r.settles()
}

func TestOneThatIsRefusedLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+"additionalIngressDomains: [example.org]\n")
	r.apply(gateway)
	r.apply(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-org}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [gateway.networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [httproutes]}]
  validations: [{expression: "!object.spec.hostnames.exists(h, h.endsWith('chat.models.example.org'))", message: not here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-org}
spec: {policyName: no-org, validationActions: [Deny]}
`)
	refused := `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: try, namespace: models}, spec: {hostnames: [chat.models.example.org]}}`
	r.eventually(func() (string, bool) { // a policy takes a moment to hold
		err := r.cluster.Apply(t.Context(), refused)
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "not here")
	}, "the policy holds")
	r.start()
	r.service(ns, "chat", "engine")
	r.service(ns, "other", "engine")
	r.has("httproute chat.models.example.com/ -> chat-engine by public", "httproute other.models.example.com/ -> other-engine by public",
		"httproute other.models.example.org/ -> other-engine by public")
	r.eventually(func() (string, bool) {
		got := r.condition(ns, "chat")
		return got, assert.Regexp(quiet{}, "^False NotWritten: http://chat.models.example.com/, http://chat.models.example.org/; .*not here", got)
	}, "the condition says why")
}

func TestKindsThatComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI, render.HTTPRoutes, render.VirtualServices)
	r.apply(gateway)
	r.start(func(c *config.Config) { c.Sources.Discovery = 200 * time.Millisecond })
	r.service(ns, "chat", "engine")
	r.says("chat", "False APIUnavailable: the kind of strategy httproute is not available: install its CRD, or add it to --kinds")
	r.settles()
	r.apply(crds(t)["httproutes"])
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.settles()
	_, err := r.cluster.Kubectl(t.Context(), "delete", "crd", "httproutes.gateway.networking.k8s.io")
	require.NoError(t, err)
	r.says("chat", "False APIUnavailable: the kind of strategy httproute is not available: install its CRD, or add it to --kinds")
}

func TestBesideOMEOfAnotherRelease(t *testing.T) {
	t.Parallel()
	o := ome.DefaultOptions()
	o.Release, o.Runtime = ome.Release13, []ome.Role{ome.Router}
	r := newRig(t, gatewayAPI, render.VirtualServices)
	r.stopOME()
	r.startOME(o)
	r.apply(gateway)
	r.start()
	r.object(ns, "chat", map[string]any{"deploymentMode": "OMENative", "engine": map[string]any{}}, nil)
	r.has("httproute chat.models.example.com/ -> chat-router by public")
	r.says("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.settles()
}

func TestConfigurationChangesLive(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.configure("{\"ingressDomain\": \"example.org\", \"enableGatewayApi\": true, \"omeIngressGateway\": \"gateways/public\", \"holdSeconds\": 1}")
	r.has("httproute chat.models.example.org/ -> chat-engine by public")
	r.configure(gatewayAPI + "perISVCSubdomain: false\n")
	r.has("httproute llm.example.com/models/chat -> chat-engine by public")
	r.says("chat", "True Programmed: http://llm.example.com/models/chat/; Gateway gateways/public: accepted")
	r.settles()
}

// command runs a sub-command against the cluster.
func (r *rig) command(args ...string) (out, log string, err error) {
	r.t.Helper()
	var stdout, stderr bytes.Buffer
	root := commands.New(&stdout, &stderr)
	root.SetArgs(append(args, "--kubeconfig", r.cluster.Kubeconfig))
	err = root.ExecuteContext(r.t.Context())
	return stdout.String(), stderr.String(), err
}

func TestPlanAndAdopt(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	r.service(ns, "chat", "engine")
	r.eventually(func() (string, bool) {
		_, log, err := r.command("plan", "--config-map", "fairlead/ours")
		return log, errors.Is(err, commands.ErrDiffers) && strings.HasSuffix(log, "would be created\n")
	}, "a plan of what is not there yet")
	stop := r.start()
	r.says("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	_, log, err := r.command("plan", "--config-map", "fairlead/ours")
	require.NoError(t, err, log)
	stop()

	t.Log("OME makes an Ingress, and leaves it behind when it is told to stop")
	annotate := func(value string) {
		r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{"ome.io/ingress-disable-creation":%s}}}`, value))
	}
	omes := func() error {
		_, err := r.client.Resource(render.Ingresses).Namespace(ns).Get(t.Context(), "chat", metav1.GetOptions{})
		return err
	}
	annotate(`"false"`)
	r.eventually(func() (string, bool) { err := omes(); return fmt.Sprint(err), err == nil }, "OME's Ingress")
	out, _, err := r.command("adopt", "--config-map", "fairlead/ours")
	require.NoError(t, err)
	assert.Equal(t, "OME left nothing behind\n", out, "it is in use")
	annotate("null")
	r.settles()
	out, _, err = r.command("adopt", "--config-map", "fairlead/ours")
	require.NoError(t, err)
	assert.Equal(t, "Ingress models/chat would be deleted (--dry-run=false deletes it): this program exposes the service\n", out)
	require.NoError(t, omes())
	out, _, err = r.command("adopt", "--config-map", "fairlead/ours", "--dry-run=false")
	require.NoError(t, err)
	assert.Equal(t, "Ingress models/chat was deleted: this program exposes the service\n", out)
	require.True(t, apierrors.IsNotFound(omes()))
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
}
