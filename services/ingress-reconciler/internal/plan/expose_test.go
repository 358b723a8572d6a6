package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

const (
	byGateway = example + "omeIngressGateway: gateways/public\n"
	byIstio   = example + "strategy: virtualservice\ningressGateway: istio/public\n"
)

// public makes the Gateway gateways/public known, with listeners for plain text and TLS, and features if there are any.
func public(in *Input, features ...gatewayv1.FeatureName) {
	everywhere := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: new(gatewayv1.NamespacesFromAll)}}
	class := &gatewayv1.GatewayClass{}
	for _, f := range features {
		class.Status.SupportedFeatures = append(class.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: f})
	}
	in.Gateways = map[types.NamespacedName]gateway.Gateway{{Namespace: "gateways", Name: "public"}: {
		Gateway: &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: "public"},
			Spec: gatewayv1.GatewaySpec{Listeners: []gatewayv1.Listener{
				{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: everywhere},
				{Name: "https", Port: 8443, Protocol: gatewayv1.HTTPSProtocolType, AllowedRoutes: everywhere},
			}},
		},
		Class: class,
	}}
}

func urls(p Plan) []string {
	var all []string
	for _, e := range p.Exposures {
		all = append(all, e.URL)
	}
	return all
}

func TestWhatAGatewayMakesOfAWayIn(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway, isvc.Engine)
	got := build(t, in)
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "as configured, while there is no Gateway")
	assert.Equal(t, gateway.ReasonGatewayNotFound, got.Exposures[0].Attachment.Reason)
	assert.Empty(t, got.Reasons, "its condition says it of the route")

	public(in)
	got = build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/"}, urls(got))
	assert.True(t, got.Exposures[0].Timeouts)

	in = input(t, example+"omeIngressGateway: gateways/public/http\n", isvc.Engine)
	public(in)
	got = build(t, in)
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "by the listener that is named")
	assert.Equal(t, "http", got.Exposures[0].Gateway.Listener)
}

func TestWhatAGatewayCannotDo(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"pathTemplate: /serving/{{ .Name }}\n", isvc.Engine)
	public(in, gateway.FeatureRequestTimeout)
	got := build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/"}, urls(got), "the path is left out")
	assert.Equal(t, []string{"engine PathRewriteUnsupported"}, reasons(got))
	assert.True(t, got.Exposures[0].Timeouts)

	public(in, gateway.FeaturePathRewrite)
	got = build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/", "https://example.com:8443/serving/chat/"}, urls(got))
	assert.False(t, got.Exposures[0].Timeouts)
	assert.Empty(t, got.Reasons)
}

func TestPathsByController(t *testing.T) {
	t.Parallel()
	tests := []struct {
		controller string
		want       ingressclass.Controller
		rewrites   bool
	}{
		{controller: "k8s.io/ingress-nginx", want: ingressclass.IngressNGINX, rewrites: true},
		{controller: "nginx.org/ingress-controller", want: ingressclass.NGINX},
		{controller: "traefik.io/ingress-controller", want: ingressclass.Traefik, rewrites: true},
		{controller: "haproxy.org/ingress-controller", want: ingressclass.HAProxy, rewrites: true},
		{controller: "haproxy-ingress.github.io/controller", want: ingressclass.HAProxyIngress, rewrites: true},
		{controller: "projectcontour.io/contour", want: ingressclass.Contour},
		{controller: "istio.io/ingress-controller", want: ingressclass.Istio},
		{controller: "example.com/mine", want: ingressclass.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.controller, func(t *testing.T) {
			t.Parallel()
			in := input(t, example+"perISVCSubdomain: false\n", isvc.Engine)
			in.Classes = []*networkingv1.IngressClass{class(tt.controller)}
			got := build(t, in)
			if !tt.rewrites {
				assert.Empty(t, got.Exposures)
				assert.Equal(t, []string{"engine PathRewriteUnsupported"}, reasons(got))
				return
			}
			require.Equal(t, []string{"http://llm.example.com/models/chat/"}, urls(got))
			assert.Equal(t, tt.want, got.Exposures[0].Controller)
		})
	}
	in := input(t, example+"perISVCSubdomain: false\n", isvc.Engine)
	assert.Equal(t, []string{"engine PathRewriteUnsupported"}, reasons(build(t, in)), "nobody knows who reads it")
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(build(t, input(t, example, isvc.Engine))), "a host of its own is for all")
}

func TestIngressClassThatIsMissing(t *testing.T) {
	t.Parallel()
	in := input(t, example+"ingressClassName: nginx\n", isvc.Engine)
	got := build(t, in)
	assert.Len(t, got.Exposures, 1, "a controller may answer to the name all the same")
	assert.Equal(t, []string{ReasonIngressClassNotFound}, reasons(got))
	in.Classes = []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}}}
	assert.Empty(t, build(t, in).Reasons)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, config, secret, url, reason string }{
		{name: "none", url: "http://chat.models.example.com/"},
		{name: "a scheme alone", config: "urlScheme: https", url: "https://chat.models.example.com/"},
		{name: "a Secret", config: "tlsSecretName: wildcard", secret: "wildcard", url: "https://chat.models.example.com/"},
		{name: "a Secret of each service", config: "tlsSecretName: '{{ .Namespace }}-{{ .Name }}'", secret: "models-chat", url: "https://chat.models.example.com/"},
		{name: "an issuer", config: "tlsIssuer: Issuer/ca", secret: "chat.models.example.com-tls", url: "https://chat.models.example.com/"},
		{name: "a name that is none", config: "tlsSecretName: '{{ .Name }}_'", reason: "engine InvalidConfiguration"},
		{name: "a name that cannot be made", config: "tlsSecretName: '{{ .Labels.team }}'", reason: "engine InvalidConfiguration"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := build(t, input(t, example+tt.config, isvc.Engine))
			if tt.reason != "" {
				assert.Empty(t, got.Exposures, "it must not do without TLS")
				assert.Equal(t, []string{tt.reason}, reasons(got))
				assert.Contains(t, got.Reasons[0].Message, "tlsSecretName: ")
				assert.Equal(t, []Slot{Entry}, got.Keep)
				return
			}
			assert.Equal(t, []string{tt.url}, urls(got))
			assert.Equal(t, tt.secret, got.Exposures[0].TLSSecret)
			assert.Empty(t, got.Reasons)
		})
	}
	got := build(t, input(t, example+"tlsIssuer: Issuer/ca\ncomponentHosts: true\nadditionalIngressDomains: [example.org]", isvc.Router, isvc.Engine))
	secrets := map[string]bool{}
	for _, e := range got.Exposures {
		secrets[e.TLSSecret] = true
	}
	assert.Len(t, secrets, 4, "each host has its own")

	in := input(t, byGateway+"tlsSecretName: '{{ .Labels.team }}'", isvc.Engine)
	assert.Empty(t, build(t, in).Reasons, "Gateways have their own")
}

func TestPathTemplate(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, template, want string }{
		{name: "with slashes and without", template: "//{{ .Namespace }}/{{ .Name }}//", want: "/models/chat/"},
		{name: "without any", template: "{{ .Name }}", want: "/chat/"},
		{name: "other characters", template: "/v1.0/~a_b-c", want: "/v1.0/~a_b-c/"},
		{name: "the root", template: "/"},
		{name: "an empty element", template: "/a//b"},
		{name: "up", template: "/a/../b"},
		{name: "here", template: "/./a"},
		{name: "a query", template: "/a?b"},
		{name: "a space", template: "/a b"},
		{name: "an escape", template: "/a%2fb"},
		{name: "a regular expression", template: "/(.*)"},
		{name: "a line", template: "/a{{ \"\\n\" }}b"},
		{name: "what there is not", template: "/{{ .Labels.team }}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, byIstio, isvc.Engine)
			v := settings.Values{PathTemplate: &tt.template, IngressDomain: new("example.com"), Strategy: settings.VirtualService, IngressGateway: new("a/b")}
			var err error
			in.Settings, err = (&settings.Config{Document: &settings.Document{Values: v}}).Resolve(in.Service)
			require.NoError(t, err)
			got := build(t, in)
			if tt.want == "" {
				assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "the host is none the worse")
				assert.Equal(t, []string{"engine InvalidConfiguration"}, reasons(got))
				assert.Contains(t, got.Reasons[0].Message, "pathTemplate: ")
				assert.Equal(t, []Slot{Entry}, got.Keep)
				return
			}
			assert.Equal(t, []string{"http://chat.models.example.com/", "http://example.com" + tt.want}, urls(got))
			assert.Empty(t, got.Reasons)
		})
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	const models = "modelBasedRoutingHeaderName: X-Model\n"
	in := input(t, byGateway+models+"componentHosts: true\n", isvc.Router, isvc.Engine)
	got := build(t, in)
	require.Len(t, got.Exposures, 3)
	assert.Equal(t, []string{
		"chat.models.example.com/ -> chat-router:8080 by gateways/public", "llm.example.com/ -> chat-router:8080 by gateways/public",
		"chat-engine.models.example.com/ -> chat-engine:8080 by gateways/public",
	}, lines(got), "for the entry alone")
	assert.Equal(t, Model{Header: "X-Model", Name: "chat"}, got.Exposures[1].Model)
	assert.Contains(t, got.Claims, Claim{Host: "llm.example.com", Path: "/", Model: Model{Header: "X-Model", Name: "chat"}})

	got = build(t, input(t, byIstio+models+"modelNameTemplate: '{{ .Namespace }}/{{ .Name }}'\nsharedHostPrefix: ''\n", isvc.Engine))
	require.Len(t, got.Exposures, 2)
	assert.Equal(t, Model{Header: "X-Model", Name: "models/chat"}, got.Exposures[1].Model)
	assert.Equal(t, "example.com", got.Exposures[1].Host)

	got = build(t, input(t, example+models, isvc.Engine))
	assert.Len(t, got.Exposures, 1)
	assert.Equal(t, []string{"engine HeaderMatchUnsupported"}, reasons(got), "by Ingress")

	for _, template := range []string{"'{{ .Labels.team }}'", "'{{ print \"\" }}'", "'a b'", "a\u00e9"} {
		got = build(t, input(t, byIstio+models+"modelNameTemplate: "+template+"\n", isvc.Engine))
		assert.Len(t, got.Exposures, 1, template)
		assert.Equal(t, []string{"engine InvalidConfiguration"}, reasons(got), template)
	}
}

// A template without the name would make one host of the entry and of its components.
func TestComponentsDoNotShareAHost(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"additionalIngressGateways: [{omeIngressGateway: gateways/inner}]\ndomainTemplate: chat.example.net\ncomponentHosts: true\n", isvc.Router, isvc.Engine)
	got := build(t, in)
	assert.Equal(t, []string{"chat.example.net/ -> chat-router:8080 by gateways/inner", "chat.example.net/ -> chat-router:8080 by gateways/public"}, lines(got))
	assert.Equal(t, []string{"engine HostConflict"}, reasons(got))
	assert.Equal(t, []Claim{{Host: "chat.example.net", Path: "/"}}, got.Claims)

	got = build(t, input(t, byGateway+"pathTemplate: /serving\ncomponentHosts: true\n", isvc.Router, isvc.Engine))
	assert.Len(t, got.Exposures, 3, "the path is the entry's")
	assert.Equal(t, []string{"engine HostConflict"}, reasons(got))
}

func TestWhatOlderServicesHave(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"additionalIngressDomains: [example.org]\n", isvc.Engine)
	before := build(t, in)
	require.Len(t, before.Claims, 2)
	in.Taken = map[Claim]Name{{Host: "chat.models.example.org", Path: "/"}: {Namespace: "models", Name: "older"}}
	got := build(t, in)
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-engine:8080 by gateways/public"}, lines(got))
	assert.Equal(t, []Reason{{Role: isvc.Engine, Reason: ReasonHostConflict, Message: "chat.models.example.org/ is that of models/older, which is older"}}, got.Reasons)
	assert.Equal(t, before.Claims, got.Claims, "it waits for what it has not")
	assert.Empty(t, got.Keep)

	in.Service.Conditions = nil
	assert.Equal(t, before.Claims, build(t, in).Claims, "be it ready or not")
	in.Services = nil
	assert.Equal(t, before.Claims, build(t, in).Claims, "with a Service or without")
	in.Settings.AllowedDomains = []string{"example.com"}
	assert.Equal(t, before.Claims[:1], build(t, in).Claims, "but not for what it must not have")
}

func TestKindsThatAreNotServed(t *testing.T) {
	t.Parallel()
	for strategy, config := range map[settings.Strategy]string{settings.HTTPRoute: byGateway, settings.Ingress: example, settings.VirtualService: byIstio} {
		in := input(t, config, isvc.Engine)
		in.Unserved = map[settings.Strategy]bool{strategy: true}
		got := build(t, in)
		assert.Empty(t, got.Exposures, strategy)
		assert.Equal(t, []string{ReasonAPIUnavailable}, reasons(got), strategy)
		assert.Equal(t, Slots, got.Keep, strategy)
		assert.False(t, got.Withheld)

		in.Unserved = map[settings.Strategy]bool{settings.HTTPRoute: true, settings.Ingress: true, settings.VirtualService: true}
		in.Unserved[strategy] = false
		assert.Len(t, build(t, in).Exposures, 1, "the others do not matter")
	}
}

func TestIstioThatIsOff(t *testing.T) {
	t.Parallel()
	got := build(t, input(t, byIstio+"disableIstioVirtualHost: true\n", isvc.Engine))
	assert.Equal(t, []string{ReasonDisabled}, reasons(got))
	assert.True(t, got.Withheld)
	assert.Empty(t, got.Keep)

	got = build(t, input(t, example+"strategy: virtualservice\n", isvc.Engine))
	assert.Equal(t, []string{ReasonNoGateway}, reasons(got))
	assert.Equal(t, Slots, got.Keep)
	assert.False(t, got.Withheld)
}

// Who takes the requests changes with what there is, and not before the new one is ready.
func TestTheEntryChanges(t *testing.T) {
	t.Parallel()
	const toEngine, toRouter = "chat.models.example.com/ -> chat-engine:8080", "chat.models.example.com/ -> chat-router:8080"
	tests := []struct {
		name   string
		there  []isvc.Role
		ready  []isvc.Role
		live   []isvc.Role // what objects of the entry point at
		want   []string
		reason []string
	}{
		{name: "new, and not ready", there: []isvc.Role{isvc.Engine}, reason: []string{"engine ComponentNotReady"}},
		{name: "there, and not ready any more", there: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Engine}, want: []string{toEngine}},
		{name: "a router comes", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Engine}, reason: []string{"router ComponentNotReady"}},
		{name: "and is ready", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Router}, live: []isvc.Role{isvc.Engine}, want: []string{toRouter}},
		{name: "some of its objects point at it", there: []isvc.Role{isvc.Router, isvc.Engine}, live: []isvc.Role{isvc.Engine, isvc.Router}, want: []string{toRouter}},
		{name: "the router is down", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Router}, want: []string{toRouter}},
		{name: "the router goes", there: []isvc.Role{isvc.Engine}, ready: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Router}, want: []string{toEngine}},
		{name: "the router goes, and the engine is not ready", there: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Router}, want: []string{toEngine}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example, tt.there...)
			in.Service.Conditions, in.Live[Entry] = nil, tt.live
			for _, r := range tt.ready {
				in.Service.Conditions = append(in.Service.Conditions, isvc.Condition{Type: strings.ToUpper(string(r[:1])) + string(r[1:]) + "Ready", Status: "True"})
			}
			got := build(t, in)
			assert.ElementsMatch(t, tt.want, lines(got))
			assert.ElementsMatch(t, tt.reason, reasons(got))
			assert.Equal(t, len(tt.want) == 0, len(got.Keep) > 0, "what cannot be changed yet stays")
		})
	}
}

// What becomes of one component is nothing to the others.
func TestComponentsAreKeptOneByOne(t *testing.T) {
	t.Parallel()
	in := input(t, example+"componentHosts: true\n", isvc.Router, isvc.Engine, isvc.Decoder)
	in.Services = append(in.Services[:1], in.Services[2:]...) // no engine
	got := build(t, in)
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-router:8080", "chat-decoder.models.example.com/ -> chat-decoder:8080"}, lines(got))
	assert.Equal(t, []string{"engine ServiceNotFound"}, reasons(got))
	assert.Equal(t, []Slot{"engine"}, got.Keep)

	in = input(t, example+"componentHosts: true\n", isvc.Router, isvc.Engine)
	got = build(t, in)
	assert.Empty(t, got.Keep, "the decoder's objects go, if there are any")
}

func TestKnative(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	in := input(t, example+"ingressGateway: istio/public\n", isvc.Engine)
	in.Service.Components[isvc.Engine].MinReplicas, in.Knative[isvc.Engine], in.Services = &zero, true, nil
	got := build(t, in)
	require.Len(t, got.Exposures, 1, "Knative's own Service is not OME's")
	assert.Equal(t, settings.VirtualService, got.Strategy)
	assert.Equal(t, "chat-engine", got.Exposures[0].Backend.Knative)
	assert.Empty(t, got.Reasons)

	in.Settings.Strategy = settings.Ingress
	got = build(t, in)
	assert.Equal(t, []string{"engine ServiceNotFound"}, reasons(got), "nothing else reaches Knative's Services")
}

func TestOMETakesOver(t *testing.T) {
	t.Parallel()
	in := input(t, example, isvc.Engine)
	in.Settings.OMEActs = true
	got := build(t, in)
	assert.True(t, got.Withheld)
	assert.True(t, got.Handed)
	in.Settings.OMEActs, in.Settings.Enabled = false, false
	got = build(t, in)
	assert.True(t, got.Withheld)
	assert.False(t, got.Handed)
}
