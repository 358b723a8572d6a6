package settings

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// shipped is the configuration that the chart of OME 1.2 installs.
const shipped = `{
  "ingressGateway": "knative-serving/knative-ingress-gateway",
  "ingressService": "istio-ingressgateway.istio-system.svc.cluster.local",
  "localGateway": "knative-serving/knative-local-gateway",
  "localGatewayService": "knative-local-gateway.istio-system.svc.cluster.local",
  "ingressDomain": "svc.cluster.local",
  "ingressClassName": "istio",
  "domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}",
  "urlScheme": "http",
  "disableIstioVirtualHost": false,
  "disableIngressCreation": true,
  "enableGatewayAPI": false
}`

// shipped13 is the configuration that the chart of OME 1.3 installs (charts/ome-resources, configmap.yaml with values.yaml).
const shipped13 = `{
  "disableIstioVirtualHost": false,
  "ingressGateway" : "istio-system/ingress-gateway",
  "ingressService" : "istio-ingressgateway.istio-system.svc.cluster.local",
  "omeIngressGateway" : "",
  "omeIngressGatewayClass" : "",
  "consistentHashHeaders": ["x-routing-key","X-SMG-Routing-Key"],
  "ingressDomain"  : "svc.cluster.local",
  "ingressClassName" : "istio",
  "additionalIngressDomains" : null,
  "domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}",
  "urlScheme": "http",
  "pathTemplate": "",
  "disableIngressCreation": true,
  "enableGatewayAPI": false,
  "perISVCSubdomain": false,
  "sharedHostPrefix": "llm",
  "defaultRouteTimeoutSeconds": 0,
  "additionalIngressGateways": [],
  "namespaceIngressGateways": {}
}`

// resolve resolves the settings of service chat in namespace models.
func resolve(t *testing.T, config, ome string, annotations map[string]string) (Settings, error) {
	t.Helper()
	d, err := Parse([]byte(config))
	require.NoError(t, err)
	c := Config{Document: d, ClusterDomain: "cluster.local"}
	if ome != "" {
		c.Inherited, err = ParseInherited([]byte(ome), "cluster.local")
		require.NoError(t, err)
	}
	return c.ResolveSettings(&isvc.Service{
		Namespace: "models", Name: "chat", Labels: map[string]string{"tier": "gold"}, Annotations: annotations,
	})
}

func host(t *testing.T, s Settings) string {
	t.Helper()
	h, err := s.Host.RenderHost(hostname.Values{Name: "chat", Namespace: "models", IngressDomain: s.Domain})
	require.NoError(t, err)
	return h
}

func TestResolveWithOMEDefaults(t *testing.T) {
	t.Parallel()
	got, err := resolve(t, "ingressDomain: example.com\nomeIngressGateway: gateways/public\n", shipped, nil)
	require.NoError(t, err)
	assert.Equal(t, "chat.models.example.com", host(t, got))
	got.Host, got.ModelName, got.other = nil, nil, nil
	class := "istio"
	assert.Equal(t, Settings{
		Enabled: true, Strategy: Auto, GatewayAPI: true, Domain: "example.com", URLScheme: "http", Subdomain: true, SharedHostPrefix: "llm",
		Gateways:     []Parent{{GatewayRef: GatewayRef{Namespace: "gateways", Name: "public"}, Domain: "example.com"}},
		IstioGateway: "knative-serving/knative-ingress-gateway",
		IngressClass: &class, KnativeGateway: "knative-local-gateway.istio-system.svc.cluster.local", ClusterDomain: "cluster.local",
		Domains: ownership.Domains{"example.com"}, Copied: Copied{Labels: map[string]string{"tier": "gold"}},
	}, got)
}

// OME applies the shared host, the timeout and the domains of namespaces to HTTPRoutes only. The configuration of this program and
// annotations apply to all kinds.
func TestOMESettingsForHTTPRoutesOnly(t *testing.T) {
	t.Parallel()
	const config = "ingressDomain: example.com\nomeIngressGateway: gateways/public\n"
	type want struct {
		domain, prefix string
		subdomain      bool
		timeout        time.Duration
	}
	own := want{domain: "example.com", prefix: "llm", subdomain: true}
	tests := []struct {
		name, config, ome string
		annotations       map[string]string
		routes, others    want
	}{
		{name: "release 1.2", config: config, ome: shipped, routes: own, others: own},
		{name: "release 1.3", config: config, ome: shipped13, routes: want{domain: "example.com", prefix: "llm"}, others: own},
		{
			name: "release 1.3, overridden by our configuration", config: config + "perISVCSubdomain: true\n", ome: shipped13, routes: own,
			others: own,
		},
		{
			name: "a shared host in our configuration", config: config + "perISVCSubdomain: false\nsharedHostPrefix: models\n",
			ome: shipped, routes: want{domain: "example.com", prefix: "models"}, others: want{domain: "example.com", prefix: "models"},
		},
		{
			name: "an annotation shares", config: config, ome: shipped13,
			annotations: map[string]string{"ome.io/ingress-per-isvc-subdomain": "false", "ome.io/ingress-shared-host-prefix": ""},
			routes:      want{domain: "example.com"}, others: want{domain: "example.com"},
		},
		{
			name: "another prefix and a timeout", config: config,
			ome: `{"perISVCSubdomain": true, "sharedHostPrefix": "models", "defaultRouteTimeoutSeconds": 30, ` +
				`"disableIngressCreation": true}`,
			routes: want{domain: "example.com", prefix: "models", subdomain: true, timeout: 30 * time.Second}, others: own,
		},
		{
			name: "a timeout, overridden by our configuration", config: config + "defaultRouteTimeoutSeconds: 5\n",
			ome:    `{"defaultRouteTimeoutSeconds": 30}`,
			routes: want{domain: "example.com", prefix: "llm", subdomain: true, timeout: 5 * time.Second},
			others: want{domain: "example.com", prefix: "llm", subdomain: true, timeout: 5 * time.Second},
		},
		{
			name: "the domain of a namespace",
			ome: `{"ingressDomain": "ome.example.com", "namespaceIngressGateways": {"models": {"primary": {"omeIngressGateway": ` +
				`"a/b", "ingressDomain": "models.example.com"}}}}`,
			routes: want{domain: "models.example.com", prefix: "llm", subdomain: true},
			others: want{domain: "ome.example.com", prefix: "llm", subdomain: true},
		},
		{
			name:   "gateways of a namespace in our configuration",
			config: "namespaceIngressGateways: {models: {primary: {omeIngressGateway: a/b, ingressDomain: models.example.com}}}",
			ome:    shipped13, routes: want{domain: "models.example.com", prefix: "llm"},
			others: want{domain: "models.example.com", prefix: "llm", subdomain: true},
		},
		{name: "no OME", config: config, routes: own, others: own},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(t, tt.config, tt.ome, tt.annotations)
			require.NoError(t, err)
			of := func(s Settings) want { return want{s.Domain, s.SharedHostPrefix, s.Subdomain, s.Timeout} }
			assert.Equal(t, tt.routes, of(got.ForStrategy(HTTPRoute)))
			for _, strategy := range []Strategy{Ingress, VirtualService} {
				assert.Equal(t, tt.others, of(got.ForStrategy(strategy)), strategy)
			}
			assert.Equal(t, got, got.ForStrategy(HTTPRoute))
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config, ome string
		annotations       map[string]string
		want              func(t *testing.T, s Settings)
	}{
		{name: "nothing", want: func(t *testing.T, s Settings) {
			assert.Empty(t, s.Domain, "no domain")
			assert.True(t, s.Enabled)
			assert.False(t, s.OMEActs, "OME is not installed")
			assert.Nil(t, s.IngressClass, "the cluster's default")
			assert.Zero(t, s.Timeout)
			assert.False(t, s.Restricted)
			assert.Empty(t, s.Domains)
		}},
		{name: "a domain within the cluster is none", ome: shipped, want: func(t *testing.T, s Settings) { assert.Empty(t, s.Domain) }},
		{
			name: "our own domain inside the cluster is kept", config: "ingressDomain: svc.cluster.local", ome: shipped,
			want: func(t *testing.T, s Settings) { assert.Equal(t, "svc.cluster.local", s.Domain) },
		},
		{
			name: "OME's domain", ome: `{"ingressDomain": "ome.example.com", "disableIngressCreation": true}`,
			want: func(t *testing.T, s Settings) { assert.Equal(t, "ome.example.com", s.Domain) },
		},
		{name: "OME acts", ome: `{"ingressDomain": "example.com"}`, want: func(t *testing.T, s Settings) { assert.True(t, s.OMEActs) }},
		{
			name: "OME acts for this service", ome: shipped, annotations: map[string]string{"ome.io/ingress-disable-creation": "false"},
			want: func(t *testing.T, s Settings) { assert.True(t, s.OMEActs) },
		},
		{
			name: "OME does not act for this service", ome: `{}`,
			annotations: map[string]string{"ome.io/ingress-disable-creation": "true"},
			want:        func(t *testing.T, s Settings) { assert.False(t, s.OMEActs) },
		},
		{name: "off", config: "enabled: false", want: func(t *testing.T, s Settings) { assert.False(t, s.Enabled) }},
		{
			name: "off, except for some services", config: "enabled: false\noverrides: [{names: [chat], enabled: true}]",
			want: func(t *testing.T, s Settings) { assert.True(t, s.Enabled) },
		},
		{name: "Gateway API by OME", ome: `{"enableGatewayApi": true, "omeIngressGateway": "a/b"}`, want: func(t *testing.T, s Settings) {
			assert.True(t, s.GatewayAPI, "spelled as KServe does")
			assert.Equal(t, "b", s.Gateways[0].Name)
		}},
		{
			name: "Gateway API, OME's keys in another case", ome: `{"ENABLEGATEWAYAPI": true, "IngressDomain": "example.com"}`,
			want: func(t *testing.T, s Settings) {
				assert.True(t, s.GatewayAPI)
				assert.Equal(t, "example.com", s.Domain)
			},
		},
		{
			name: "a Gateway in OME.s configuration does not enable the Gateway API", ome: `{"omeIngressGateway": "a/b"}`,
			want: func(t *testing.T, s Settings) { assert.False(t, s.GatewayAPI) },
		},
		{
			name: "a Gateway, and not Gateway API", config: "enableGatewayAPI: false\nomeIngressGateway: a/b",
			ome: `{"enableGatewayAPI": true}`, want: func(t *testing.T, s Settings) { assert.False(t, s.GatewayAPI) },
		},
		{name: "gateways of a namespace", config: `
ingressDomain: example.com
omeIngressGateway: a/b
namespaceIngressGateways:
  models: {primary: {omeIngressGateway: own/gateway/https, ingressDomain: models.example.com}, additional: [{omeIngressGateway: own/inner,
    class: inner}]}
  others: {primary: {omeIngressGateway: x/y}}
`, want: func(t *testing.T, s Settings) {
			assert.Equal(t, []Parent{
				{GatewayRef: GatewayRef{"own", "gateway", "https"}, Domain: "models.example.com"},
				{GatewayRef: GatewayRef{"own", "inner", ""}, Domain: "models.example.com"},
			}, s.Gateways)
		}},
		{
			name: "gateways of a namespace by OME", config: "ingressDomain: example.com\nenableGatewayAPI: true",
			ome: `{"omeIngressGateway": "a/b", "namespaceIngressGateways": {
			"models": {"primary": {"omeIngressGateway": "own/gateway", "ingressDomain": "svc.cluster.local"},
			"additional": [{"omeIngressGateway": "own/inner"}]},
			"others": {"primary": {"omeIngressGateway": "wrong"}}}}`, want: func(t *testing.T, s Settings) {
				assert.Equal(t, []Parent{
					{GatewayRef: GatewayRef{"own", "gateway", ""}, Domain: "example.com"},
					{GatewayRef: GatewayRef{"own", "inner", ""}, Domain: "example.com"},
				}, s.Gateways, "errors for other namespaces have no effect")
			},
		},
		{
			name: "gateways of a namespace by OME, overridden", config: "ingressDomain: example.com\nomeIngressGateway: a/b",
			ome: `{"namespaceIngressGateways": {
			"models": {"primary": {"omeIngressGateway": "own/gateway", "ingressDomain": "models.example.com"}}}}`,
			want: func(t *testing.T, s Settings) {
				assert.Equal(t, []Parent{{GatewayRef: GatewayRef{"a", "b", ""}, Domain: "example.com"}}, s.Gateways)
			},
		},
		{name: "a domain of a namespace by OME", ome: `{"ingressDomain": "example.com", "namespaceIngressGateways": {
			"models": {"primary": {"omeIngressGateway": "own/gateway", "ingressDomain": "models.example.com"}}}}`,
			want: func(t *testing.T, s Settings) {
				assert.Equal(t, "models.example.com", s.Domain)
				assert.False(t, s.GatewayAPI)
			}},
		{
			name:   "annotations",
			config: "ingressDomain: example.com\npathTemplate: /{{ .Name }}/\nadditionalIngressDomains: [a.example.com]",
			annotations: map[string]string{
				"ome.io/ingress-domain": "own.example.com", "ome.io/ingress-domain-template": "{{ .Name }}.{{ .IngressDomain }}",
				"ome.io/ingress-url-scheme": "https", "ome.io/ingress-path-template": "",
				"ome.io/ingress-additional-domains": " b.example.com, ,c.example.com", "ome.io/ingress-gateway": "a/b",
				"ome.io/ingress-additional-gateways": `[{"omeIngressGateway": "c/d"}]`, "ome.io/ingress-per-isvc-subdomain": "no",
				"ome.io/ingress-shared-host-prefix": "", "ome.io/ingress-disable-istio-virtualhost": "true",
			}, want: func(t *testing.T, s Settings) {
				assert.Equal(t, "chat.own.example.com", host(t, s))
				assert.Equal(t, "https", s.URLScheme)
				assert.Nil(t, s.Path, "path routes are disabled")
				assert.Equal(t, []string{"b.example.com", "c.example.com"}, s.AdditionalDomains)
				assert.Len(t, s.Gateways, 2)
				assert.False(t, s.Subdomain)
				assert.Empty(t, s.SharedHostPrefix)
				assert.True(t, s.IstioOff)
				assert.True(t, s.GatewayAPI)
			},
		},
		{
			name: "empty annotations are none", config: "ingressDomain: example.com",
			annotations: map[string]string{"ome.io/ingress-domain": "", "ome.io/ingress-gateway": ""},
			want: func(t *testing.T, s Settings) {
				assert.Equal(t, "example.com", s.Domain)
				assert.Empty(t, s.Gateways)
			},
		},
		{name: "overrides", config: `
ingressDomain: example.com
overrides:
- {namespaces: [others], ingressDomain: wrong.example.com}
- {names: [other], ingressDomain: wrong.example.com}
- {selector: {matchLabels: {tier: silver}}, ingressDomain: wrong.example.com}
- {namespaces: [models], names: [chat, other], selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]},
  ingressDomain: right.example.com, strategy: ingress, defaultRouteTimeoutSeconds: 30}
- {componentHosts: true}
`, annotations: map[string]string{"ome.io/ingress-domain": "annotated.example.com"}, want: func(t *testing.T, s Settings) {
			assert.Equal(t, "right.example.com", s.Domain, "the override wins over the annotation")
			assert.Equal(t, Ingress, s.Strategy)
			assert.Equal(t, 30*time.Second, s.Timeout)
			assert.True(t, s.ComponentHosts)
		}},
		{
			name: "domains that are allowed", config: "allowedDomains: {models: [example.com], '*': [example.org]}",
			want: func(t *testing.T, s Settings) {
				assert.True(t, s.Restricted)
				assert.Equal(t, ownership.Domains{"example.com"}, s.Domains)
			},
		},
		{
			name: "domains that are allowed to others", config: "allowedDomains: {others: [example.com]}",
			want: func(t *testing.T, s Settings) { assert.True(t, s.Restricted); assert.Empty(t, s.Domains) },
		},
		{
			name: "domains that are allowed to any", config: "allowedDomains: {'*': [example.org]}",
			want: func(t *testing.T, s Settings) { assert.Equal(t, ownership.Domains{"example.org"}, s.Domains) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(t, tt.config, tt.ome, tt.annotations)
			require.NoError(t, err)
			tt.want(t, got)
		})
	}
}

func TestResolveErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, ome   string
		annotations map[string]string
		want        string
	}{
		{
			name: "template", annotations: map[string]string{"ome.io/ingress-domain-template": `{{ printf "%99d" 1 }}`},
			want: "annotations: domainTemplate: template",
		},
		{
			name: "gateways", annotations: map[string]string{"ome.io/ingress-additional-gateways": "["},
			want: "annotation ome.io/ingress-additional-gateways: ",
		},
		{
			name: "gateway", annotations: map[string]string{"ome.io/ingress-gateway": "public"},
			want: `annotations: omeIngressGateway: "public" is not a Gateway: use namespace/name or namespace/name/listener`,
		},
		{
			name: "domain", annotations: map[string]string{"ome.io/ingress-additional-domains": "a.example.com,*.b"},
			want: `annotations: additionalIngressDomains[1]: host "*.b"`,
		},
		{
			name: "scheme", annotations: map[string]string{"ome.io/ingress-url-scheme": "ftp"},
			want: `annotations: urlScheme: "ftp" is not one of http, https`,
		},
		{
			name: "OME's", ome: `{"omeIngressGateway": "public", "disableIngressCreation": true}`,
			want: `omeIngressGateway: "public" is not a Gateway`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := resolve(t, "", tt.ome, tt.annotations)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{"no YAML", "a: [", "configuration: line 1, column 1: it is not YAML: "},
		{"a key twice", "enabled: true\nenabled: false", "line 2, column 1: enabled: it is listed twice, first in line 1: keep one"},
		{"a type", "enabled: maybe", `enabled: "maybe" is neither true nor false`},
		{"strategy", "strategy: nginx", `strategy: "nginx" is not one of auto, httproute, ingress, virtualservice`},
		{"no listener", "omeIngressGateway: a/b/", `omeIngressGateway: "a/b/" is not a Gateway`},
		{"not a name", "omeIngressGateway: 'a b/c'", `omeIngressGateway: "a b/c" is not a Gateway`},
		{"too many parts", "omeIngressGateway: a/b/c/d", `omeIngressGateway: "a/b/c/d" is not a Gateway`},
		{
			"time beyond all measure", "defaultRouteTimeoutSeconds: 10000000000",
			"defaultRouteTimeoutSeconds: 10000000000 is more than 30 days",
		},
		{"hold beyond all measure", "holdSeconds: 10000000000", "holdSeconds: 10000000000 is more than 30 days"},
		{"size", "maxRequestBodySize: many", `maxRequestBodySize: "many" is not a size, such as 64Mi`},
		{"negative size", "maxRequestBodySize: -1", `maxRequestBodySize: "-1" is not a size, such as 64Mi`},
		{"size beyond all measure", "maxRequestBodySize: 100E", `maxRequestBodySize: "100E" is not a size, such as 64Mi`},
		{"a size of another type", "maxRequestBodySize: [1]", "maxRequestBodySize: a list is not a string"},
		{"secret", "tlsSecretName: '{{ range }}'", "tlsSecretName: parse template"},
		{"issuer", "tlsIssuer: letsencrypt", `tlsIssuer: "letsencrypt" is neither Issuer/<name> nor ClusterIssuer/<name>`},
		{"issuer without a name", "tlsIssuer: Issuer/", `tlsIssuer: "Issuer/" is neither Issuer/<name> nor ClusterIssuer/<name>`},
		{
			"issuer of a name that is none", "tlsIssuer: Issuer/a/b",
			`tlsIssuer: "Issuer/a/b" is neither Issuer/<name> nor ClusterIssuer/<name>`,
		},
		{"header", "modelBasedRoutingHeaderName: 'X Model'", `modelBasedRoutingHeaderName: "X Model": `},
		{"model name", "modelNameTemplate: '{{ .Nam'", "modelNameTemplate: parse template"},
		{
			"pool of two kinds", "inferencePool: {name: a, endpointPickerRef: {name: b}}",
			"inferencePool: name and endpointPickerRef are both set: set one of them",
		},
		{"pool", "inferencePool: {name: A}", `inferencePool.name: "A": `},
		{"picker", "inferencePool: {endpointPickerRef: {}}", `inferencePool.endpointPickerRef.name: "": `},
		{
			"picker of a name that is none", "inferencePool: {endpointPickerRef: {name: a.b}}",
			`inferencePool.endpointPickerRef.name: "a.b": `,
		},
		{
			"picker of a template that is none", "inferencePool: {endpointPickerRef: {name: '{{ .Nam'}}",
			"inferencePool.endpointPickerRef.name: parse template",
		},
		{
			"picker of a template that is not allowed", "inferencePool: {endpointPickerRef: {name: '{{ range .Labels }}x{{ end }}'}}",
			"inferencePool.endpointPickerRef.name: template",
		},
		{
			"picker's port", "inferencePool: {endpointPickerRef: {name: a, port: 65536}}",
			"inferencePool.endpointPickerRef.port: 65536 is not a port",
		},
		{
			"picker's failure", "inferencePool: {endpointPickerRef: {name: a, failureMode: Fail}}",
			`inferencePool.endpointPickerRef.failureMode: "Fail" is not one of FailClose, FailOpen`,
		},
		{"suffix", "fallbackService: {enabled: true, suffix: external}", `fallbackService.suffix: "external" must be a dash`},
		{
			"suffix too long", "fallbackService: {enabled: true, suffix: -abcdefghijklmnopqrst}",
			`fallbackService.suffix: "-abcdefghijklmnopqrst" must be a dash`,
		},
		{
			"suffix of OME's", "fallbackService: {enabled: true, suffix: -engine}",
			`fallbackService.suffix: "-engine" is reserved for a Service of OME`,
		},
		{
			"type", "fallbackService: {enabled: true, type: ExternalName}",
			`fallbackService.type: "ExternalName" is not one of ClusterIP, NodePort, LoadBalancer`,
		},
		{
			"a key of earlier releases", "annotationPrefixes: []",
			"annotationPrefixes: it is no longer supported: list keys in copyAnnotations, or prefix/* for all keys with a prefix",
		},
		{
			"a key of earlier releases, of some", "overrides: [{annotationPrefixes: [a/]}]",
			"overrides[0].annotationPrefixes: it is no longer supported: list keys in copyAnnotations",
		},
		{
			"a key of earlier releases, of the fallback", "fallbackService: {enabled: true, annotationPrefixes: [a/]}",
			"fallbackService.annotationPrefixes: it is no longer supported",
		},
		{"no key to copy", "copyAnnotations: [a, '']", `copyAnnotations[1]: "": must be a key, prefix/* or *: `},
		{"a prefix alone", "copyAnnotations: [example.com/]", `copyAnnotations[0]: "example.com/": must be a key, prefix/* or *: `},
		{"part of a prefix", "copyLabels: ['exam*']", `copyLabels[0]: "exam*": must be a key, prefix/* or *: `},
		{
			"part of a name", "fallbackService: {enabled: true, copyAnnotations: [example.com/a*]}",
			`fallbackService.copyAnnotations[0]: "example.com/a*": must be a key, prefix/* or *: `,
		},
		{"OME's keys", "copyAnnotations: [ome.io/*]", `copyAnnotations[0]: "ome.io/*": this key is never copied: `},
		{"our keys", "copyLabels: [fairlead.dev/slot]", `copyLabels[0]: "fairlead.dev/slot": this key is never copied: `},
		{"a label of OME", "copyLabels: [component]", `copyLabels[0]: "component": this key is never copied: `},
		{
			"keys of a tool", "overrides: [{copyLabels: [app.kubernetes.io/instance]}]",
			`overrides[0].copyLabels[0]: "app.kubernetes.io/instance": this key is never copied: `,
		},
		{
			"an annotation that is computed", "copyAnnotations: [nginx.ingress.kubernetes.io/proxy-read-timeout]",
			`copyAnnotations[0]: "nginx.ingress.kubernetes.io/proxy-read-timeout": this controller sets this annotation: use ` +
				`defaultRouteTimeoutSeconds`,
		},
		{
			"a rewrite", "copyAnnotations: [haproxy.org/path-rewrite]",
			`copyAnnotations[0]: "haproxy.org/path-rewrite": this controller sets this annotation: `,
		},
		{
			"the class", "copyAnnotations: [kubernetes.io/ingress.class]",
			`copyAnnotations[0]: "kubernetes.io/ingress.class": this controller sets this annotation: use ingressClassName`,
		},
		{
			"the class, of all", "annotations: {kubernetes.io/ingress.class: nginx}",
			"annotations.kubernetes.io/ingress.class: use ingressClassName",
		},
		{"an annotation of the fallback", "fallbackService: {enabled: true, annotations: {'a b': c}}", "fallbackService.annotations.a b: "},
		{"label", "labels: {'a b': c}", "labels.a b: c: "},
		{"value of a label", "labels: {a: 'b c'}", "labels.a: b c: "},
		{"OME's label", "labels: {ome.io/inferenceservice: chat}", "labels.ome.io/inferenceservice: chat: the key is reserved"},
		{"OME's other label", "overrides: [{labels: {component: engine}}]", "overrides[0].labels.component: engine: the key is reserved"},
		{"our label", "labels: {fairlead.dev/slot: entry}", "labels.fairlead.dev/slot: entry: the key is reserved"},
		{"annotation", "annotations: {'a b': c}", "annotations.a b: "},
		{"our annotation", "annotations: {fairlead.dev/applied: x}", "annotations.fairlead.dev/applied: the key is reserved"},
		{"domain", "ingressDomain: '*.example.com'", `ingressDomain: host "*.example.com"`},
		{"template", "domainTemplate: '{{ .Name'", "domainTemplate: parse template"},
		{"timeout", "defaultRouteTimeoutSeconds: -1", "defaultRouteTimeoutSeconds: -1 is negative"},
		{"hold", "holdSeconds: -1", "holdSeconds: -1 is negative"},
		{"override", "overrides: [{}, {urlScheme: ftp}]", `overrides[1].urlScheme: "ftp" is not one of http, https`},
		{"selector", "overrides: [{selector: {matchExpressions: [{key: a, operator: Like}]}}]", "overrides[0].selector: "},
		{
			"gateway of a namespace", "namespaceIngressGateways: {models: {primary: {omeIngressGateway: a}}}",
			`namespaceIngressGateways.models.primary.omeIngressGateway: "a" is not a Gateway`,
		},
		{
			"one more", "namespaceIngressGateways: {models: {additional: [{omeIngressGateway: a/b, ingressDomain: x}]}}",
			"namespaceIngressGateways.models.additional[0].ingressDomain: ",
		},
		{"allowed", "allowedDomains: {models: [a]}", "allowedDomains.models[0]: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.give))
			assert.ErrorContains(t, err, tt.want)
		})
	}

	d, err := Parse([]byte(`{"enableGatewayApi": true}`))
	require.NoError(t, err, "JSON is YAML")
	assert.True(t, *d.EnableGatewayAPI)
	assert.Equal(t, 5*time.Minute, d.HoldDuration())
	zero, err := Parse([]byte("holdSeconds: 0"))
	require.NoError(t, err)
	assert.Zero(t, zero.HoldDuration())
}

func TestParseNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("ingresDomain: example.com\noverrides:\n- {nam: [a], urlScheme: ftp}\nholdSeconds: -1\nlabels: {ome.io/a: b}"))
	require.EqualError(t, err, `configuration: line 1, column 1: ingresDomain: unknown field: did you mean "ingressDomain"?
line 3, column 4: overrides[0].nam: unknown field: did you mean "names"?
line 3, column 25: overrides[0].urlScheme: "ftp" is not one of http, https
line 4, column 14: holdSeconds: -1 is negative
line 5, column 20: labels.ome.io/a: b: the key is reserved`)
}

func TestParseFile(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want, err string }{
		{name: "empty"},
		{name: "the configuration", give: "urlScheme: https", want: "https"},
		{name: "values of the chart", give: "replicas: 2\nconfig:\n  urlScheme: https", want: "https"},
		{name: "values of the chart without configuration", give: "config:"},
		{name: "a text in values of the chart", give: "config: |\n  urlScheme: https", want: "https"},
		{name: "a problem", give: "urlSchem: https", err: "configuration: line 1, column 1: urlSchem: unknown field"},
		{
			name: "a problem in values of the chart", give: "replicas: 2\nconfig:\n  urlScheme: ftp",
			err: `configuration: line 3, column 14: config.urlScheme: "ftp" is not one of http, https`,
		},
		{name: "a list", give: "config: [a]", err: "configuration: line 1, column 9: config: a list has no fields"},
		{name: "no YAML", give: "a: [", err: "configuration: line 1, column 1: it is not YAML"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, err := ParseFile([]byte(tt.give))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, valueOf(d.URLScheme))
		})
	}
}

func TestParseInherited(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a: b", `{"enableGatewayAPI": "true"}`} {
		_, err := ParseInherited([]byte(text), "cluster.local")
		assert.ErrorContains(t, err, "parse OME's ingress configuration: ")
	}
}

// Every key must be merged, including keys that are added later.
func TestOver(t *testing.T) {
	t.Parallel()
	var all Values
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
		} else {
			f.SetString("set")
		}
	}
	assert.Equal(t, all, all.mergeOver(Values{}))
	assert.Equal(t, all, Values{}.mergeOver(all))
}

// Every key must affect Settings, including keys that are added later.
func TestEveryKeyIsResolved(t *testing.T) {
	t.Parallel()
	samples := map[string]string{ // for each key a value that differs from the default
		"strategy": "httproute", "ingressDomain": "a.example.com", "additionalIngressDomains": "[a.example.com]",
		"domainTemplate": "'{{ .Name }}.a.b'", "pathTemplate": "/a", "urlScheme": "https", "urlPort": "1", "perISVCSubdomain": "false",
		"sharedHostPrefix": "a", "componentHosts": "true", "enableGatewayAPI": "true", "enableGatewayApi": "true",
		"omeIngressGateway": "a/b", "additionalIngressGateways": "[{omeIngressGateway: a/b, class: c}]", "ingressGateway": "a/b",
		"localGateway": "a/b", "disableIstioVirtualHost": "true", "ingressClassName": "nginx", "knativeLocalGatewayService": "a.b",
		"defaultRouteTimeoutSeconds": "1", "maxRequestBodySize": "1Ki", "bufferBodies": "true", "tlsSecretName": "a",
		"tlsIssuer": "Issuer/a", "inferencePool": "{name: a}", "modelBasedRoutingHeaderName": "X-Model", "modelNameTemplate": "a",
		"fallbackService": "{enabled: true}", "labels": "{a: b}", "annotations": "{a: b}", "copyLabels": "[]",
		"copyAnnotations": "[example.com/a]", "disableHTTPRouteTimeout": "true",
	}
	annotations := map[string]string{"example.com/a": "b"}
	nothing, err := resolve(t, "", "", annotations)
	require.NoError(t, err)
	for key := range reflect.TypeFor[Values]().Fields() {
		name, _, _ := strings.Cut(key.Tag.Get("json"), ",")
		if name == "annotationPrefixes" { // refused: see TestParseRefuses
			continue
		}
		require.Contains(t, samples, name, "add a value of the new key here")
		got, err := resolve(t, name+": "+samples[name], "", annotations)
		require.NoError(t, err)
		assert.NotEqual(t, nothing, got, "%s is parsed, but has no effect", name)

		overridden, err := resolve(t, "overrides: [{names: [chat], "+name+": "+samples[name]+"}]", "", annotations)
		require.NoError(t, err)
		assert.Equal(t, got, overridden, "%s has the same effect in an override", name)
	}
}

func TestResolvePoolsAndFallback(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		annotations  map[string]string
		want         func(t *testing.T, s Settings)
	}{
		{name: "nothing", want: func(t *testing.T, s Settings) {
			assert.Nil(t, s.Pool)
			assert.Nil(t, s.Fallback)
			assert.Nil(t, s.TLS.Secret)
			assert.Empty(t, s.ModelHeader)
			assert.Zero(t, s.MaxBody)
			assert.False(t, s.BufferBodies)
		}},
		{name: "a pool to create", config: "inferencePool: {endpointPickerRef: {name: picker}}", want: func(t *testing.T, s Settings) {
			assert.Equal(t, &EndpointPicker{Name: "picker", Port: 9002, FailureMode: "FailClose"}, s.Pool.EndpointPickerRef)
		}},
		{
			name:   "a pool to create, with all fields",
			config: "inferencePool: {endpointPickerRef: {name: picker, port: 1, failureMode: FailOpen}}",
			want: func(t *testing.T, s Settings) {
				assert.Equal(t, &EndpointPicker{Name: "picker", Port: 1, FailureMode: "FailOpen"}, s.Pool.EndpointPickerRef)
			},
		},
		{
			name: "a pool by an annotation", config: "inferencePool: {endpointPickerRef: {name: picker}}",
			annotations: map[string]string{"fairlead.dev/inference-pool": "mine"}, want: func(t *testing.T, s Settings) {
				assert.Equal(t, &InferencePool{Name: "mine"}, s.Pool)
			},
		},
		{
			name: "no pool for some", config: "inferencePool: {name: a}\noverrides: [{names: [chat], inferencePool: {}}]",
			want: func(t *testing.T, s Settings) { assert.Nil(t, s.Pool) },
		},
		{name: "a fallback", config: "fallbackService: {enabled: true}", want: func(t *testing.T, s Settings) {
			assert.Equal(t, "-external", s.Fallback.Suffix)
			assert.Equal(t, "ClusterIP", s.Fallback.Type)
			assert.Nil(t, s.FallbackAnnotations())
		}},
		{
			name:   "a fallback with all fields",
			config: "fallbackService: {enabled: true, suffix: -lb, type: LoadBalancer, annotations: {a: b}, copyAnnotations: []}",
			want: func(t *testing.T, s Settings) {
				assert.Equal(t,
					&FallbackService{
						Enabled: true, Suffix: "-lb", Type: "LoadBalancer", Annotations: map[string]string{"a": "b"},
						CopyAnnotations: []string{},
					},
					s.Fallback)
				assert.Equal(t, map[string]string{"a": "b"}, s.FallbackAnnotations())
			},
		},
		{
			name:   "no fallback for some",
			config: "fallbackService: {enabled: true}\noverrides: [{names: [chat], fallbackService: {enabled: false}}]",
			want:   func(t *testing.T, s Settings) { assert.Nil(t, s.Fallback) },
		},
		{name: "an issuer", config: "tlsIssuer: ClusterIssuer/letsencrypt", want: func(t *testing.T, s Settings) {
			assert.Nil(t, s.TLS.Secret, "one Secret for each host")
			assert.Equal(t, "ClusterIssuer/letsencrypt", s.TLS.Issuer)
		}},
		{name: "a Secret of that name", config: "tlsIssuer: Issuer/a\ntlsSecretName: wildcard", want: func(t *testing.T, s Settings) {
			secret, err := s.TLS.Secret.Render(hostname.Values{Name: "chat"})
			require.NoError(t, err)
			assert.Equal(t, "wildcard", secret)
		}},
		{name: "sizes", config: "maxRequestBodySize: 64Mi\nbufferBodies: true", want: func(t *testing.T, s Settings) {
			assert.Equal(t, int64(64<<20), s.MaxBody)
			assert.True(t, s.BufferBodies)
		}},
		{
			name: "a size in bytes", config: "maxRequestBodySize: 1048576",
			want: func(t *testing.T, s Settings) { assert.Equal(t, int64(1<<20), s.MaxBody) },
		},
		{
			name: "a size in bytes, as a text", config: "maxRequestBodySize: '1e3'",
			want: func(t *testing.T, s Settings) { assert.Equal(t, int64(1000), s.MaxBody) },
		},
		{
			name: "any size, for some", config: "maxRequestBodySize: 1\noverrides: [{maxRequestBodySize: 0}]",
			want: func(t *testing.T, s Settings) { assert.Zero(t, s.MaxBody) },
		},
		{
			name: "annotations are replaced as a whole", config: "annotations: {a: b, c: d}\noverrides: [{annotations: {e: f}}]",
			want: func(t *testing.T, s Settings) {
				assert.Equal(t, map[string]string{"e": "f"}, s.Annotations)
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(t, tt.config, "", tt.annotations)
			require.NoError(t, err)
			tt.want(t, got)
		})
	}
}

// ResolveSettings does not change the document.
func TestResolveDoesNotChangeTheDocument(t *testing.T) {
	t.Parallel()
	parse := func() *Document {
		d, err := Parse([]byte("ingressDomain: example.com\ninferencePool: {endpointPickerRef: {name: a}}\nfallbackService: {enabled: " +
			"true}\nomeIngressGateway: a/b\nadditionalIngressGateways: [{omeIngressGateway: c/d}]"))
		require.NoError(t, err)
		return d
	}
	c := Config{Document: parse()}
	s, err := c.ResolveSettings(&isvc.Service{Namespace: "models", Name: "chat"})
	require.NoError(t, err)
	s.Pool.EndpointPickerRef.Port, s.Fallback.Type, s.Gateways[1].Domain = 1, "NodePort", "x"
	assert.Equal(t, parse(), c.Document)
}

func TestErrorsAreInOneOrder(t *testing.T) {
	t.Parallel()
	const text = "labels: {'a b': c, 'c d': e, 'e f': g}\nannotations: {'a b': c, 'c d': e}\nallowedDomains: {a: [p], b: [q], c: [r]}\n" +
		"namespaceIngressGateways: {a: {primary: {omeIngressGateway: x}}, b: {primary: {omeIngressGateway: z}}}"
	_, want := Parse([]byte(text))
	require.ErrorContains(t, want, "omeIngressGateway", "all errors")
	for range 30 {
		_, err := Parse([]byte(text))
		require.EqualError(t, err, want.Error())
	}
}

// FuzzParse checks that a parsed document can be marshaled and parsed again without changes.
func FuzzParse(f *testing.F) {
	f.Add("ingressDomain: example.com\nomeIngressGateway: a/b/c")
	f.Add("tlsIssuer: Issuer/a\ntlsSecretName: '{{ .Name }}'\nmaxRequestBodySize: 1Gi\nbufferBodies: true")
	f.Add("inferencePool: {endpointPickerRef: {name: a}}\nmodelBasedRoutingHeaderName: X-Model\nfallbackService: {enabled: true, " +
		"suffix: -x}")
	f.Add("maxRequestBodySize: 1024")
	f.Add("labels: {a: b}\nannotations: {A/b: c}\ncopyAnnotations: [a/b, 'c/*']\ncopyLabels: ['*']\noverrides: [{namespaces: [a], " +
		"enabled: false, selector: {}}]")
	f.Add("namespaceIngressGateways: {a: {primary: {omeIngressGateway: a/b}}}\nallowedDomains: {'*': [a.b]}\nholdSeconds: 0")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse([]byte(text))
		if err != nil {
			assert.Nil(t, d)
			return
		}
		assert.GreaterOrEqual(t, d.HoldDuration(), time.Duration(0))
		written, err := json.Marshal(d)
		require.NoError(t, err)
		again, err := Parse(written)
		require.NoError(t, err, "%s", written)
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.JSONEq(t, string(written), string(rewritten))
		s, err := (&Config{Document: d}).ResolveSettings(&isvc.Service{Namespace: "a", Name: "b"})
		require.NoError(t, err, "a valid document is valid for each service")
		assert.GreaterOrEqual(t, s.Timeout, time.Duration(0))
		assert.GreaterOrEqual(t, s.MaxBody, int64(0))
	})
}

func FuzzResolve(f *testing.F) {
	f.Add("ingressDomain: example.com", shipped, "{{ .Name }}.a.b", "[]")
	f.Add("overrides: [{selector: {}}]", `{}`, "x", `[{"omeIngressGateway":"a/b"}]`)
	f.Fuzz(func(t *testing.T, config, ome, template, gateways string) {
		d, err := Parse([]byte(config))
		if err != nil {
			return
		}
		c := Config{Document: d, ClusterDomain: "cluster.local"}
		c.Inherited, _ = ParseInherited([]byte(ome), "cluster.local")
		s, err := c.ResolveSettings(&isvc.Service{Namespace: "models", Name: "chat", Annotations: map[string]string{
			annotationDomainTemplate: template, annotationAdditionalGateways: gateways,
		}})
		if err == nil {
			assert.NotNil(t, s.Host)
		}
	})
}

// OME's chart always has http, so only https there was chosen by somebody.
func TestSchemesThatWinOverTheListener(t *testing.T) {
	t.Parallel()
	https := strings.Replace(shipped, `"urlScheme": "http"`, `"urlScheme": "https"`, 1)
	for _, tt := range []struct {
		name, config, ome string
		annotations       map[string]string
		want              string // empty: the listener's
	}{
		{name: "nothing"},
		{name: "OME's default", ome: shipped},
		{name: "OME's https", ome: https, want: "https"},
		{name: "http before OME's https", config: "urlScheme: http", ome: https, want: "http"},
		{name: "http", config: "urlScheme: http", ome: shipped, want: "http"},
		{name: "an annotation", ome: shipped, annotations: map[string]string{"ome.io/ingress-url-scheme": "https"}, want: "https"},
	} {
		s, err := resolve(t, tt.config, tt.ome, tt.annotations)
		require.NoError(t, err)
		assert.Equal(t, tt.want != "", s.SchemeSet, tt.name)
		assert.Equal(t, cmp.Or(tt.want, "http"), s.URLScheme, tt.name)
	}
}
