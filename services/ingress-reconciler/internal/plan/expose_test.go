package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

const (
	byGateway = example + "omeIngressGateway: gateways/public\n"
	byIstio   = example + "strategy: virtualservice\ningressGateway: istio/public\n"
)

// public adds the Gateway gateways/public with listeners for plain text and TLS, and with optional features.
func public(in *Input, features ...gatewayv1.FeatureName) {
	everywhere := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: new(gatewayv1.NamespacesFromAll)}}
	class := &gatewayv1.GatewayClass{}
	for _, f := range features {
		class.Status.SupportedFeatures = append(class.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: f})
	}
	in.Gateways = map[types.NamespacedName]gatewayapi.Gateway{{Namespace: "gateways", Name: "public"}: {
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

func TestGatewayAttachment(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway, isvc.Engine)
	got := build(t, in)
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "the configured scheme, because the Gateway does not exist")
	assert.Equal(t, gatewayapi.ReasonGatewayNotFound, got.Exposures[0].Attachment.Reason)
	assert.Empty(t, got.Reasons, "the condition reports the missing Gateway for the route")

	public(in)
	got = build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/"}, urls(got))
	assert.True(t, got.Exposures[0].Timeouts)

	in = input(t, example+"omeIngressGateway: gateways/public/http\n", isvc.Engine)
	public(in)
	got = build(t, in)
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "the URL of the named listener")
	assert.Equal(t, "http", got.Exposures[0].Gateway.Listener)
}

func TestIstioGateway(t *testing.T) {
	t.Parallel()
	in := input(t, byIstio, isvc.Engine)
	got := build(t, in)
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "the API server does not serve Istio Gateways")
	assert.Empty(t, got.Exposures[0].Attachment.Reason)

	in.Istio = map[types.NamespacedName]*istiogateway.Gateway{}
	got = build(t, in)
	assert.Equal(t, gatewayapi.ReasonGatewayNotFound, got.Exposures[0].Attachment.Reason)

	server := istiogateway.Server{Hosts: []string{"*"}, TLS: &istiogateway.TLS{Mode: "SIMPLE"}}
	server.Port.Number, server.Port.Protocol = 8443, "HTTPS"
	shared := &istiogateway.Gateway{}
	shared.Spec.Servers = []istiogateway.Server{server}
	in.Istio[types.NamespacedName{Namespace: "istio", Name: "public"}] = shared
	assert.Equal(t, []string{"https://chat.models.example.com:8443/"}, urls(build(t, in)))

	in = input(t, example+"strategy: virtualservice\ningressGateway: mesh\n", isvc.Engine)
	in.Istio = map[types.NamespacedName]*istiogateway.Gateway{}
	assert.Empty(t, build(t, in).Exposures[0].Attachment.Reason, "mesh stands for sidecars, not for a Gateway")
}

func TestGatewayFeatures(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"pathTemplate: /serving/{{ .Name }}\n", isvc.Engine)
	public(in, gatewayapi.FeatureRequestTimeout)
	got := build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/"}, urls(got), "the exposure with a path is omitted")
	assert.Equal(t, []string{"engine PathRewriteUnsupported"}, reasons(got))
	assert.True(t, got.Exposures[0].Timeouts)

	public(in, gatewayapi.FeaturePathRewrite)
	got = build(t, in)
	assert.Equal(t, []string{"https://chat.models.example.com:8443/", "https://example.com:8443/serving/chat/"}, urls(got))
	assert.False(t, got.Exposures[0].Timeouts)
	assert.Empty(t, got.Reasons)
}

func TestPathsByController(t *testing.T) {
	t.Parallel()
	tests := []struct {
		controller string
		want       *ingressclass.Controller
		rewrites   bool
	}{
		{controller: "k8s.io/ingress-nginx", want: &ingressclass.IngressNGINX, rewrites: true},
		{controller: "nginx.org/ingress-controller", want: &ingressclass.NGINX},
		{controller: "traefik.io/ingress-controller", want: &ingressclass.Traefik, rewrites: true},
		{controller: "haproxy.org/ingress-controller", want: &ingressclass.HAProxy, rewrites: true},
		{controller: "haproxy-ingress.github.io/controller", want: &ingressclass.HAProxyIngress, rewrites: true},
		{controller: "projectcontour.io/contour", want: &ingressclass.Contour},
		{controller: "istio.io/ingress-controller", want: &ingressclass.Istio},
		{controller: "example.com/mine"},
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
			assert.Same(t, tt.want, got.Exposures[0].Class.Controller)
		})
	}
	in := input(t, example+"perISVCSubdomain: false\n", isvc.Engine)
	assert.Equal(t, []string{"engine PathRewriteUnsupported"}, reasons(build(t, in)), "the class is unknown")
	assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(build(t, input(t, example, isvc.Engine))),
		"every data plane supports a separate host")
}

func TestIngressClassThatIsMissing(t *testing.T) {
	t.Parallel()
	in := input(t, example+"ingressClassName: nginx\n", isvc.Engine)
	got := build(t, in)
	assert.Len(t, got.Exposures, 1, "a controller may serve the name without an IngressClass")
	assert.Equal(t, []string{"IngressClassNotFound (warning)"}, reasons(got))
	in.Classes = []*networkingv1.IngressClass{{
		ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"},
	}}
	assert.Empty(t, build(t, in).Reasons)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, config, secret, url, reason string }{
		{name: "none", url: "http://chat.models.example.com/"},
		{name: "a scheme alone", config: "urlScheme: https", url: "https://chat.models.example.com/"},
		{name: "a Secret", config: "tlsSecretName: wildcard", secret: "wildcard", url: "https://chat.models.example.com/"},
		{
			name: "a Secret of each service", config: "tlsSecretName: '{{ .Namespace }}-{{ .Name }}'", secret: "models-chat",
			url: "https://chat.models.example.com/",
		},
		{name: "an issuer", config: "tlsIssuer: Issuer/ca", secret: "chat.models.example.com-tls", url: "https://chat.models.example.com/"},
		{name: "a name that is none", config: "tlsSecretName: '{{ .Name }}_'", reason: "engine InvalidConfiguration"},
		{name: "a name that cannot be made", config: "tlsSecretName: '{{ .Labels.team }}'", reason: "engine InvalidConfiguration"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := build(t, input(t, example+tt.config, isvc.Engine))
			if tt.reason != "" {
				assert.Empty(t, got.Exposures, "the host must not be served without TLS")
				assert.Equal(t, []string{tt.reason}, reasons(got))
				assert.Contains(t, got.Reasons[0].Message, "tlsSecretName: ")
				assert.Equal(t, []Slot{Entry}, got.FrozenSlots)
				return
			}
			assert.Equal(t, []string{tt.url}, urls(got))
			assert.Equal(t, tt.secret, got.Exposures[0].TLSSecret)
			assert.Empty(t, got.Reasons)
		})
	}
	got := build(t,
		input(t, example+"tlsIssuer: Issuer/ca\ncomponentHosts: true\nadditionalIngressDomains: [example.org]", isvc.Router, isvc.Engine))
	secrets := map[string]bool{}
	for _, e := range got.Exposures {
		secrets[e.TLSSecret] = true
	}
	assert.Len(t, secrets, 4, "each host has its own Secret")

	in := input(t, byGateway+"tlsSecretName: '{{ .Labels.team }}'", isvc.Engine)
	assert.Empty(t, build(t, in).Reasons, "Gateways have their own TLS configuration")
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
		{name: "a missing label", template: "/{{ .Labels.team }}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, byIstio, isvc.Engine)
			v := settings.Values{
				PathTemplate: &tt.template, IngressDomain: new("example.com"), Strategy: settings.VirtualService,
				IngressGateway: new("a/b"),
			}
			var err error
			in.Settings, err = (&settings.Config{Document: &settings.Document{Values: v}}).ResolveSettings(in.Service)
			require.NoError(t, err)
			got := build(t, in)
			if tt.want == "" {
				assert.Equal(t, []string{"http://chat.models.example.com/"}, urls(got), "the invalid path does not affect the host")
				assert.Equal(t, []string{"engine InvalidConfiguration"}, reasons(got))
				assert.Contains(t, got.Reasons[0].Message, "pathTemplate: ")
				assert.Equal(t, []Slot{Entry}, got.FrozenSlots)
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
	assert.Contains(t, got.WantedClaims, WantedClaim{
		Claim: ownership.Claim{Host: "llm.example.com", Path: "/", Header: "X-Model", Value: "chat"}, Role: isvc.Router,
	})

	got = build(t, input(t, byIstio+models+"modelNameTemplate: '{{ .Namespace }}/{{ .Name }}'\nsharedHostPrefix: ''\n", isvc.Engine))
	require.Len(t, got.Exposures, 2)
	assert.Equal(t, Model{Header: "X-Model", Name: "models/chat"}, got.Exposures[1].Model)
	assert.Equal(t, "example.com", got.Exposures[1].Host)
	assert.True(t, got.Exposures[1].Claim().Unordered, "Istio orders routes by age")
	assert.False(t, got.Exposures[0].Claim().Unordered)

	got = build(t, input(t, example+models, isvc.Engine))
	assert.Len(t, got.Exposures, 1)
	assert.Equal(t, []string{"engine HeaderMatchUnsupported"}, reasons(got), "an Ingress cannot match headers")

	for _, template := range []string{"'{{ .Labels.team }}'", "'{{ print \"\" }}'", "'a b'", "a\u00e9"} {
		got = build(t, input(t, byIstio+models+"modelNameTemplate: "+template+"\n", isvc.Engine))
		assert.Len(t, got.Exposures, 1, template)
		assert.Equal(t, []string{"engine InvalidConfiguration"}, reasons(got), template)
	}
}

// A template without the name renders the same host for the entry and the components.
func TestComponentsDoNotShareAHost(t *testing.T) {
	t.Parallel()
	in := input(t,
		byGateway+
			"additionalIngressGateways: [{omeIngressGateway: gateways/inner}]\ndomainTemplate: chat.example.net\ncomponentHosts: true\n",
		isvc.Router, isvc.Engine)
	got := build(t, in)
	assert.Equal(t,
		[]string{"chat.example.net/ -> chat-router:8080 by gateways/inner", "chat.example.net/ -> chat-router:8080 by gateways/public"},
		lines(got))
	assert.Equal(t, []string{"engine HostConflict"}, reasons(got))
	assert.Equal(t, []WantedClaim{{Claim: ownership.Claim{Host: "chat.example.net", Path: "/"}, Role: isvc.Router}}, got.WantedClaims)

	got = build(t, input(t, byGateway+"pathTemplate: /serving\ncomponentHosts: true\n", isvc.Router, isvc.Engine))
	assert.Len(t, got.Exposures, 3, "the path belongs to the entry")
	assert.Equal(t, []string{"engine HostConflict"}, reasons(got))
}

// tenant returns the plan of a service with annotations under a configuration.
func tenant(t *testing.T, config string, annotations map[string]string) Plan {
	t.Helper()
	in := input(t, byGateway, isvc.Engine)
	d, err := settings.Parse([]byte(config))
	require.NoError(t, err)
	in.Service.Annotations, in.Service.Labels = annotations, map[string]string{"host": "label.example.net"}
	in.Settings, in.SettingsErr = (&settings.Config{Document: d, ClusterDomain: "cluster.local"}).ResolveSettings(in.Service)
	return build(t, in)
}

// A tenant chooses hosts by annotations, or by labels and annotations that templates of the administrator use.
func TestHostsThatATenantMayHave(t *testing.T) {
	t.Parallel()
	domain := func(d string) map[string]string { return map[string]string{"ome.io/ingress-domain": d} }
	tests := []struct {
		name, config string
		annotations  map[string]string
		want         []string
		reasons      []string
	}{
		{name: "the administrator's", want: []string{"chat.models.example.com/"}},
		{
			name: "the administrator's, outside of the domain", config: "domainTemplate: '{{ .Name }}.fixed.net'",
			want: []string{"chat.fixed.net/"},
		},
		{name: "a domain below a configured one", annotations: domain("team.example.com"), want: []string{"chat.models.team.example.com/"}},
		{name: "another domain", annotations: domain("evil.net"), reasons: []string{"engine HostNotAllowed"}},
		{name: "the end of a name is no domain", annotations: domain("evilexample.com"), reasons: []string{"engine HostNotAllowed"}},
		{
			name: "a template", annotations: map[string]string{"ome.io/ingress-domain-template": "www.bank.net"},
			reasons: []string{"engine HostNotAllowed"},
		},
		{
			name:        "a template below a configured domain",
			annotations: map[string]string{"ome.io/ingress-domain-template": "www.example.com"}, want: []string{"www.example.com/"},
		},
		{
			name: "a template by the administrator, with a label", config: "domainTemplate: '{{ .Labels.host }}'",
			reasons: []string{"engine HostNotAllowed"},
		},
		{name: "a label by index", config: "domainTemplate: '{{ index .Labels \"host\" }}'", reasons: []string{"engine HostNotAllowed"}},
		{
			name: "a label in a condition", config: "domainTemplate: '{{ if eq .Labels.host \"a\" }}a.net{{ else }}b.net{{ end }}'",
			reasons: []string{"engine HostNotAllowed"},
		},
		{name: "additional domains, one of them configured", config: "additionalIngressDomains: [example.org]",
			annotations: map[string]string{"ome.io/ingress-additional-domains": "example.org, evil.net"},
			want:        []string{"chat.models.example.com/", "chat.models.example.org/"}, reasons: []string{"engine HostNotAllowed"}},
		{
			name:        "an additional domain that is the administrator's, too",
			annotations: map[string]string{"ome.io/ingress-additional-domains": "example.com"}, want: []string{"chat.models.example.com/"},
		},
		{name: "Gateways with domains of their own", annotations: map[string]string{
			"ome.io/ingress-additional-gateways": `[{"omeIngressGateway": "gateways/public", "ingressDomain": "evil.net"}, ` +
				`{"omeIngressGateway": "gateways/public"}]`,
		}, want: []string{"chat.models.example.com/"}, reasons: []string{"engine HostNotAllowed"}},
		{
			name: "a prefix of the shared host", config: "perISVCSubdomain: false",
			annotations: map[string]string{"ome.io/ingress-shared-host-prefix": "other"}, want: []string{"other.example.com/models/chat/"},
		},
		{
			name: "an override that replaces the annotation", config: "overrides: [{ingressDomain: fixed.net}]",
			annotations: domain("evil.net"), want: []string{"chat.models.fixed.net/"},
		},
		{
			name: "a domain of an override", config: "overrides: [{additionalIngressDomains: [fixed.net]}]",
			annotations: domain("fixed.net"), want: []string{"chat.models.fixed.net/"},
		},

		{name: "allowed", config: "allowedDomains: {models: [team.net]}\ndomainTemplate: chat.team.net", want: []string{"chat.team.net/"}},
		{
			name: "allowed, by an annotation", config: "allowedDomains: {models: [team.net]}", annotations: domain("team.net"),
			want: []string{"chat.models.team.net/"},
		},
		{
			name: "not allowed, though it is the administrator's", config: "allowedDomains: {models: [team.net]}",
			reasons: []string{"engine HostNotAllowed"},
		},
		{
			name: "allowed to all others", config: "allowedDomains: {'*': [team.net], others: [example.com]}",
			annotations: domain("team.net"), want: []string{"chat.models.team.net/"},
		},
		{name: "no namespace but another", config: "allowedDomains: {others: [example.com]}", reasons: []string{"engine HostNotAllowed"}},
		{
			name: "allowed by a template", config: "allowedDomains: {'*': ['{{ .Namespace }}.example.com']}",
			want: []string{"chat.models.example.com/"},
		},
		{name: "not allowed by a template", config: "allowedDomains: {'*': ['{{ .Namespace }}.example.com']}",
			annotations: map[string]string{"ome.io/ingress-domain-template": "chat.victim.example.com"},
			reasons:     []string{"engine HostNotAllowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tenant(t, byGateway+tt.config, tt.annotations)
			var hosts []string
			for _, e := range got.Exposures {
				hosts = append(hosts, e.Host+e.Path)
			}
			assert.Equal(t, tt.want, hosts)
			assert.ElementsMatch(t, tt.reasons, reasons(got))
		})
	}
}

// On a host that services share, the first element of a path is the namespace, unless the administrator chose the path.
func TestPathsThatATenantMayHave(t *testing.T) {
	t.Parallel()
	path := func(p string) map[string]string { return map[string]string{"ome.io/ingress-path-template": p} }
	tests := []struct {
		name, config string
		annotations  map[string]string
		want         string
	}{
		{name: "the administrator's", config: "pathTemplate: /v1", want: "example.com/v1/"},
		{name: "below the namespace", annotations: path("/models/other"), want: "example.com/models/other/"},
		{name: "the namespace itself", annotations: path("/{{ .Namespace }}"), want: "example.com/models/"},
		{name: "another namespace", annotations: path("/victim/chat/v1")},
		{name: "any other path", annotations: path("/v1")},
		{name: "the beginning of a name is no element", annotations: path("/models-of-others")},
		{
			name: "a template of the administrator, with an annotation", config: "pathTemplate: '/{{ .Annotations.path }}'",
			annotations: map[string]string{"path": "v1"},
		},
		{
			name: "the same, below the namespace", config: "pathTemplate: '/{{ .Annotations.path }}'",
			annotations: map[string]string{"path": "models"}, want: "example.com/models/",
		},
		{
			name: "an override that replaces the annotation", config: "overrides: [{pathTemplate: /v2}]", annotations: path("/v1"),
			want: "example.com/v2/",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tenant(t, byGateway+tt.config, tt.annotations)
			if tt.want == "" {
				require.Len(t, got.Exposures, 1)
				assert.Equal(t, []string{"engine PathNotAllowed"}, reasons(got))
				return
			}
			require.Len(t, got.Exposures, 2)
			assert.Equal(t, tt.want, got.Exposures[1].Host+got.Exposures[1].Path)
			assert.Empty(t, reasons(got))
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	list := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",")
	}
	domains := func(n int) map[string]string {
		return map[string]string{"ome.io/ingress-additional-domains": list(n, "d%d.example.com")}
	}
	gateways := func(n int) map[string]string {
		return map[string]string{"ome.io/ingress-additional-gateways": "[" + list(n, `{"omeIngressGateway": "gateways/g%d"}`) + "]"}
	}
	assert.Len(t, tenant(t, byGateway, domains(16)).Exposures, 17)
	assert.Len(t, tenant(t, byGateway, gateways(8)).Exposures, 9)
	for name, annotations := range map[string]map[string]string{
		"domains": domains(17), "many domains": domains(10_000), "Gateways": gateways(9), "long text": gateways(1000),
	} {
		got := tenant(t, byGateway, annotations)
		assert.Empty(t, got.Exposures, name)
		assert.Equal(t, []string{"LimitExceeded"}, reasons(got), name)
		assert.Equal(t, Slots, got.FrozenSlots, "%s: existing objects stay", name)
	}
	many := "[" + list(8, `{omeIngressGateway: gateways/g%d}`) + "]"
	got := tenant(t, byGateway+"additionalIngressDomains: ["+list(20, "d%d.example.org")+"]\nadditionalIngressGateways: "+many, nil)
	assert.Empty(t, got.Exposures)
	assert.Equal(t, []string{"engine LimitExceeded"}, reasons(got))
	assert.Equal(t, []Slot{Entry}, got.FrozenSlots)
	assert.Contains(t, got.Reasons[0].Message, "189 routes: at most 128")
}

// BenchmarkRefuseDomains refuses 2 000 domains of one annotation.
func BenchmarkRefuseDomains(b *testing.B) {
	var domains []string
	for i := range 2000 {
		domains = append(domains, fmt.Sprintf("d%d.example.com", i))
	}
	service := &isvc.Service{
		Namespace: "models", Name: "chat", Annotations: map[string]string{"ome.io/ingress-additional-domains": strings.Join(domains, ",")},
	}
	d, err := settings.Parse([]byte(byGateway))
	require.NoError(b, err)
	config := &settings.Config{Document: d, ClusterDomain: "cluster.local"}
	for b.Loop() {
		in := &Input{Service: service}
		in.Settings, in.SettingsErr = config.ResolveSettings(service)
		if p := Build(in); len(p.Exposures) > 0 || p.Reasons[0].Reason != ReasonLimitExceeded {
			b.Fatal(p)
		}
	}
}

func TestKindsThatAreNotServed(t *testing.T) {
	t.Parallel()
	for strategy, config := range map[settings.Strategy]string{
		settings.HTTPRoute: byGateway, settings.Ingress: example, settings.VirtualService: byIstio,
	} {
		in := input(t, config, isvc.Engine)
		in.Unserved = map[settings.Strategy]bool{strategy: true}
		got := build(t, in)
		assert.Empty(t, got.Exposures, strategy)
		assert.Equal(t, []string{ReasonAPIUnavailable}, reasons(got), strategy)
		assert.Equal(t, Slots, got.FrozenSlots, strategy)
		assert.False(t, got.Disabled)

		in.Unserved = map[settings.Strategy]bool{settings.HTTPRoute: true, settings.Ingress: true, settings.VirtualService: true}
		in.Unserved[strategy] = false
		assert.Len(t, build(t, in).Exposures, 1, "the kinds of other strategies do not matter")
	}
}

func TestIstioThatIsOff(t *testing.T) {
	t.Parallel()
	got := build(t, input(t, byIstio+"disableIstioVirtualHost: true\n", isvc.Engine))
	assert.Equal(t, []string{ReasonDisabled}, reasons(got))
	assert.True(t, got.Disabled)
	assert.Empty(t, got.FrozenSlots)

	got = build(t, input(t, example+"strategy: virtualservice\n", isvc.Engine))
	assert.Equal(t, []string{ReasonNoGateway}, reasons(got))
	assert.Equal(t, Slots, got.FrozenSlots)
	assert.False(t, got.Disabled)
}

// The entry changes with the components of the service, after the new component is ready.
func TestTheEntryChanges(t *testing.T) {
	t.Parallel()
	const toEngine, toRouter = "chat.models.example.com/ -> chat-engine:8080", "chat.models.example.com/ -> chat-router:8080"
	tests := []struct {
		name   string
		there  []isvc.Role
		ready  []isvc.Role
		live   []isvc.Role // components that existing objects of the entry point to
		want   []string
		reason []string
	}{
		{name: "new, and not ready", there: []isvc.Role{isvc.Engine}, reason: []string{"engine ComponentNotReady"}},
		{name: "there, and not ready any more", there: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Engine}, want: []string{toEngine}},
		{
			name: "a router comes", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Engine},
			live: []isvc.Role{isvc.Engine}, reason: []string{"router ComponentNotReady"},
		},
		{
			name: "and is ready", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Router},
			live: []isvc.Role{isvc.Engine}, want: []string{toRouter},
		},
		{
			name: "some of its objects point at it", there: []isvc.Role{isvc.Router, isvc.Engine},
			live: []isvc.Role{isvc.Engine, isvc.Router}, want: []string{toRouter},
		},
		{
			name: "the router is down", there: []isvc.Role{isvc.Router, isvc.Engine}, ready: []isvc.Role{isvc.Engine},
			live: []isvc.Role{isvc.Router}, want: []string{toRouter},
		},
		{
			name: "the router goes", there: []isvc.Role{isvc.Engine}, ready: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Router},
			want: []string{toEngine},
		},
		{
			name: "the router goes, and the engine is not ready", there: []isvc.Role{isvc.Engine}, live: []isvc.Role{isvc.Router},
			want: []string{toEngine},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example, tt.there...)
			in.Service.Conditions, in.Live[Entry] = nil, tt.live
			for _, r := range tt.ready {
				in.Service.Conditions = append(in.Service.Conditions,
					isvc.Condition{Type: strings.ToUpper(string(r[:1])) + string(r[1:]) + "Ready", Status: "True"})
			}
			got := build(t, in)
			assert.ElementsMatch(t, tt.want, lines(got))
			assert.ElementsMatch(t, tt.reason, reasons(got))
			assert.Equal(t, len(tt.want) == 0, len(got.FrozenSlots) > 0, "objects stay until they can change")
		})
	}
}

// A problem of one component does not affect the others.
func TestComponentsAreKeptOneByOne(t *testing.T) {
	t.Parallel()
	in := input(t, example+"componentHosts: true\n", isvc.Router, isvc.Engine, isvc.Decoder)
	in.Services = append(in.Services[:1], in.Services[2:]...) // no engine
	got := build(t, in)
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-router:8080", "chat-decoder.models.example.com/ -> chat-decoder:8080"},
		lines(got))
	assert.Equal(t, []string{"engine ServiceNotFound"}, reasons(got))
	assert.Equal(t, []Slot{"engine"}, got.FrozenSlots)

	in = input(t, example+"componentHosts: true\n", isvc.Router, isvc.Engine)
	got = build(t, in)
	assert.Empty(t, got.FrozenSlots, "objects of the decoder are deleted")
}

func TestKnative(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	in := input(t, example+"ingressGateway: istio/public\n", isvc.Engine)
	in.Service.Components[isvc.Engine].MinReplicas, in.Knative[isvc.Engine], in.Services = &zero, true, nil
	got := build(t, in)
	require.Len(t, got.Exposures, 1, "a Knative Service replaces OME's Service")
	assert.Equal(t, settings.VirtualService, got.Strategy)
	assert.Equal(t, "chat-engine", got.Exposures[0].Backend.Knative)
	assert.Empty(t, got.Reasons)

	in.Settings.Strategy = settings.Ingress
	got = build(t, in)
	assert.Equal(t, []string{"engine ServiceNotFound"}, reasons(got), "an Ingress cannot reach a Knative Service")
}

func TestOMETakesOver(t *testing.T) {
	t.Parallel()
	in := input(t, example, isvc.Engine)
	in.Settings.OMEActs = true
	got := build(t, in)
	assert.True(t, got.Disabled)
	assert.True(t, got.HandedToOME)
	in.Settings.OMEActs, in.Settings.Enabled = false, false
	got = build(t, in)
	assert.True(t, got.Disabled)
	assert.False(t, got.HandedToOME)
}

// Whatever the settings say, a service that its owner marked as private loses its routes at once: neither a mistake in another annotation
// nor an OME that never serves the host keeps them.
func TestPrivateServicesAreNeverPublic(t *testing.T) {
	t.Parallel()
	marks := map[string]func(in *Input){
		ReasonDisabled: func(in *Input) { in.Settings.Private = true },
		ReasonClusterLocal: func(in *Input) {
			in.Service.Labels = map[string]string{"networking.ome.io/visibility": "cluster-local"}
		},
	}
	for want, mark := range marks {
		for name, change := range map[string]func(in *Input){
			"alone":              func(*Input) {},
			"beside a mistake":   func(in *Input) { in.SettingsErr = errors.New("annotation ome.io/ingress-domain-template") },
			"handed to OME":      func(in *Input) { in.Settings.OMEActs = true },
			"enabled explicitly": func(in *Input) { in.Settings.Enabled = true },
			"without a domain":   func(in *Input) { in.Settings.Domain = "" },
		} {
			in := input(t, example, isvc.Engine)
			mark(in)
			change(in)
			got := build(t, in)
			assert.Equal(t, []string{want}, reasons(got), name)
			assert.True(t, got.Disabled, name)
			assert.False(t, got.HandedToOME, name)
			assert.Empty(t, got.FrozenSlots, name)
		}
	}
}
