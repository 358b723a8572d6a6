package settings

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// shipped is the configuration that OME's chart installs.
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

// resolve resolves the settings of service chat in namespace models.
func resolve(t *testing.T, ours, omes string, annotations map[string]string) (Settings, error) {
	t.Helper()
	d, warnings, err := Parse([]byte(ours))
	require.NoError(t, err)
	require.Empty(t, warnings)
	c := Config{Document: d}
	if omes != "" {
		c.Inherited, err = ParseInherited([]byte(omes), "cluster.local")
		require.NoError(t, err)
	}
	return c.Resolve(&isvc.Service{Namespace: "models", Name: "chat", Labels: map[string]string{"tier": "gold"}, Annotations: annotations})
}

func host(t *testing.T, s Settings) string {
	t.Helper()
	h, err := s.Host.Host(hostname.Values{Name: "chat", Namespace: "models", IngressDomain: s.Domain})
	require.NoError(t, err)
	return h
}

func TestResolveOnTopOfWhatOMEShips(t *testing.T) {
	t.Parallel()
	got, err := resolve(t, "ingressDomain: example.com\nomeIngressGateway: gateways/public\n", shipped, nil)
	require.NoError(t, err)
	assert.Equal(t, "chat.models.example.com", host(t, got))
	got.Host, got.ModelName = nil, nil
	class := "istio"
	assert.Equal(t, Settings{
		Enabled: true, Strategy: Auto, GatewayAPI: true, Domain: "example.com", URLScheme: "http", Subdomain: true, SharedHostPrefix: "llm",
		Gateways:     []Parent{{GatewayRef: GatewayRef{Namespace: "gateways", Name: "public"}, Domain: "example.com"}},
		IstioGateway: "knative-serving/knative-ingress-gateway", IstioLocalGateway: "knative-serving/knative-local-gateway",
		IngressClass: &class, KnativeGateway: "knative-local-gateway.istio-system.svc.cluster.local",
	}, got)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, ours, omes string
		annotations      map[string]string
		want             func(t *testing.T, s Settings)
	}{
		{name: "nothing", want: func(t *testing.T, s Settings) {
			assert.Empty(t, s.Domain, "no domain of ours")
			assert.True(t, s.Enabled)
			assert.False(t, s.OMEActs, "there is no OME")
			assert.Nil(t, s.IngressClass, "the cluster's default")
			assert.Zero(t, s.Timeout)
			assert.True(t, s.Allows("anything.example.com"))
		}},
		{name: "a domain within the cluster is none", omes: shipped, want: func(t *testing.T, s Settings) { assert.Empty(t, s.Domain) }},
		{name: "one of ours within the cluster is meant", ours: "ingressDomain: svc.cluster.local", omes: shipped, want: func(t *testing.T, s Settings) { assert.Equal(t, "svc.cluster.local", s.Domain) }},
		{name: "OME's domain", omes: `{"ingressDomain": "ome.example.com", "disableIngressCreation": true}`, want: func(t *testing.T, s Settings) { assert.Equal(t, "ome.example.com", s.Domain) }},
		{name: "OME acts", omes: `{"ingressDomain": "example.com"}`, want: func(t *testing.T, s Settings) { assert.True(t, s.OMEActs) }},
		{name: "OME acts for this one", omes: shipped, annotations: map[string]string{"ome.io/ingress-disable-creation": "false"}, want: func(t *testing.T, s Settings) { assert.True(t, s.OMEActs) }},
		{name: "OME does not act for this one", omes: `{}`, annotations: map[string]string{"ome.io/ingress-disable-creation": "true"}, want: func(t *testing.T, s Settings) { assert.False(t, s.OMEActs) }},
		{name: "off", ours: "enabled: false", want: func(t *testing.T, s Settings) { assert.False(t, s.Enabled) }},
		{name: "off but for some", ours: "enabled: false\noverrides: [{names: [chat], enabled: true}]", want: func(t *testing.T, s Settings) { assert.True(t, s.Enabled) }},
		{name: "Gateway API by OME", omes: `{"enableGatewayApi": true, "omeIngressGateway": "a/b"}`, want: func(t *testing.T, s Settings) {
			assert.True(t, s.GatewayAPI, "spelled as KServe does")
			assert.Equal(t, "b", s.Gateways[0].Name)
		}},
		{name: "Gateway API, OME's keys in another case", omes: `{"ENABLEGATEWAYAPI": true, "IngressDomain": "example.com"}`, want: func(t *testing.T, s Settings) {
			assert.True(t, s.GatewayAPI)
			assert.Equal(t, "example.com", s.Domain)
		}},
		{name: "a Gateway that OME names says nothing of Gateway API", omes: `{"omeIngressGateway": "a/b"}`, want: func(t *testing.T, s Settings) { assert.False(t, s.GatewayAPI) }},
		{name: "a Gateway, and not Gateway API", ours: "enableGatewayAPI: false\nomeIngressGateway: a/b", omes: `{"enableGatewayAPI": true}`, want: func(t *testing.T, s Settings) { assert.False(t, s.GatewayAPI) }},
		{name: "gateways of a namespace", ours: `
ingressDomain: example.com
omeIngressGateway: a/b
namespaceIngressGateways:
  models: {primary: {omeIngressGateway: own/gateway/https, ingressDomain: models.example.com}, additional: [{omeIngressGateway: own/inner, class: inner}]}
  others: {primary: {omeIngressGateway: x/y}}
`, want: func(t *testing.T, s Settings) {
			assert.Equal(t, []Parent{
				{GatewayRef: GatewayRef{"own", "gateway", "https"}, Domain: "models.example.com"},
				{GatewayRef: GatewayRef{"own", "inner", ""}, Domain: "models.example.com", Class: "inner"},
			}, s.Gateways)
		}},
		{name: "annotations", ours: "ingressDomain: example.com\npathTemplate: /{{ .Name }}/\nadditionalIngressDomains: [a.example.com]", annotations: map[string]string{
			"ome.io/ingress-domain": "own.example.com", "ome.io/ingress-domain-template": "{{ .Name }}.{{ .IngressDomain }}", "ome.io/ingress-url-scheme": "https",
			"ome.io/ingress-path-template": "", "ome.io/ingress-additional-domains": " b.example.com, ,c.example.com", "ome.io/ingress-gateway": "a/b",
			"ome.io/ingress-additional-gateways": `[{"omeIngressGateway": "c/d"}]`, "ome.io/ingress-per-isvc-subdomain": "no", "ome.io/ingress-shared-host-prefix": "",
			"ome.io/ingress-disable-istio-virtualhost": "true",
		}, want: func(t *testing.T, s Settings) {
			assert.Equal(t, "chat.own.example.com", host(t, s))
			assert.Equal(t, "https", s.URLScheme)
			assert.Nil(t, s.Path, "turned off")
			assert.Equal(t, []string{"b.example.com", "c.example.com"}, s.AdditionalDomains)
			assert.Len(t, s.Gateways, 2)
			assert.False(t, s.Subdomain)
			assert.Empty(t, s.SharedHostPrefix)
			assert.True(t, s.IstioOff)
			assert.True(t, s.GatewayAPI)
		}},
		{name: "empty annotations are none", ours: "ingressDomain: example.com", annotations: map[string]string{"ome.io/ingress-domain": "", "ome.io/ingress-gateway": ""}, want: func(t *testing.T, s Settings) {
			assert.Equal(t, "example.com", s.Domain)
			assert.Empty(t, s.Gateways)
		}},
		{name: "overrides", ours: `
ingressDomain: example.com
overrides:
- {namespaces: [others], ingressDomain: wrong.example.com}
- {names: [other], ingressDomain: wrong.example.com}
- {selector: {matchLabels: {tier: silver}}, ingressDomain: wrong.example.com}
- {namespaces: [models], names: [chat, other], selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}, ingressDomain: right.example.com, strategy: ingress, defaultRouteTimeoutSeconds: 30}
- {componentHosts: true}
`, annotations: map[string]string{"ome.io/ingress-domain": "annotated.example.com"}, want: func(t *testing.T, s Settings) {
			assert.Equal(t, "right.example.com", s.Domain, "it wins over the annotation")
			assert.Equal(t, Ingress, s.Strategy)
			assert.Equal(t, 30*time.Second, s.Timeout)
			assert.True(t, s.ComponentHosts)
		}},
		{name: "domains that are allowed", ours: "allowedDomains: {models: [example.com], '*': [example.org]}", want: func(t *testing.T, s Settings) {
			assert.True(t, s.Allows("example.com"))
			assert.True(t, s.Allows("a.b.example.com"))
			assert.False(t, s.Allows("badexample.com"))
			assert.False(t, s.Allows("a.example.org"))
		}},
		{name: "domains that are allowed to others", ours: "allowedDomains: {others: [example.com]}", want: func(t *testing.T, s Settings) { assert.False(t, s.Allows("a.example.com")) }},
		{name: "domains that are allowed to any", ours: "allowedDomains: {'*': [example.org]}", want: func(t *testing.T, s Settings) { assert.True(t, s.Allows("a.example.org")) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(t, tt.ours, tt.omes, tt.annotations)
			require.NoError(t, err)
			tt.want(t, got)
		})
	}
}

func TestResolveSaysWhatIsWrongWithOneService(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, omes  string
		annotations map[string]string
		want        string
	}{
		{name: "template", annotations: map[string]string{"ome.io/ingress-domain-template": `{{ printf "%99d" 1 }}`}, want: "by annotations, domainTemplate: template"},
		{name: "gateways", annotations: map[string]string{"ome.io/ingress-additional-gateways": "["}, want: "annotation ome.io/ingress-additional-gateways: "},
		{name: "gateway", annotations: map[string]string{"ome.io/ingress-gateway": "public"}, want: `by annotations, omeIngressGateway: "public" is not a Gateway: give namespace/name, or namespace/name/listener`},
		{name: "domain", annotations: map[string]string{"ome.io/ingress-additional-domains": "a.example.com,*.b"}, want: `by annotations, additionalIngressDomains[1]: host "*.b"`},
		{name: "scheme", annotations: map[string]string{"ome.io/ingress-url-scheme": "ftp"}, want: `by annotations, urlScheme: "ftp" is none of http, https`},
		{name: "OME's", omes: `{"omeIngressGateway": "public", "disableIngressCreation": true}`, want: `omeIngressGateway: "public" is not a Gateway`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := resolve(t, "", tt.omes, tt.annotations)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{"no YAML", "a: [", "parse configuration: "},
		{"a key twice", "enabled: true\nenabled: false", `key "enabled" already set in map`},
		{"a type", "enabled: maybe", "cannot unmarshal string"},
		{"strategy", "strategy: nginx", `strategy "nginx" is none of auto, httproute, ingress, virtualservice`},
		{"domain", "ingressDomain: '*.example.com'", `ingressDomain: host "*.example.com"`},
		{"template", "domainTemplate: '{{ .Name'", "domainTemplate: parse template"},
		{"timeout", "defaultRouteTimeoutSeconds: -1", "defaultRouteTimeoutSeconds -1 is negative"},
		{"hold", "holdSeconds: -1", "holdSeconds -1 is negative"},
		{"override", "overrides: [{}, {urlScheme: ftp}]", `overrides[1].urlScheme: "ftp" is none of http, https`},
		{"selector", "overrides: [{selector: {matchExpressions: [{key: a, operator: Like}]}}]", "overrides[0].selector: "},
		{"gateway of a namespace", "namespaceIngressGateways: {models: {primary: {omeIngressGateway: a}}}", `namespaceIngressGateways.models.primary.omeIngressGateway: "a" is not a Gateway`},
		{"one more", "namespaceIngressGateways: {models: {additional: [{omeIngressGateway: a/b, ingressDomain: x}]}}", "namespaceIngressGateways.models.additional[0].ingressDomain: "},
		{"allowed", "allowedDomains: {models: [a]}", "allowedDomains.models[0]: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Parse([]byte(tt.give))
			assert.ErrorContains(t, err, tt.want)
		})
	}

	d, warnings, err := Parse([]byte(`{"enableGatewayApi": true, "ingresDomain": "example.com", "overrides": [{"nam": 1}]}`))
	require.NoError(t, err, "JSON is YAML")
	assert.True(t, *d.EnableGatewayAPI)
	assert.Equal(t, []string{`unknown field "ingresDomain"`, `unknown field "overrides[0].nam"`}, warnings)
	assert.Equal(t, 5*time.Minute, d.Hold())
	zero, _, err := Parse([]byte("holdSeconds: 0"))
	require.NoError(t, err)
	assert.Zero(t, zero.Hold())
}

func TestParseInherited(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a: b", `{"enableGatewayAPI": "true"}`} {
		_, err := ParseInherited([]byte(text), "cluster.local")
		assert.ErrorContains(t, err, "parse OME's configuration of ingress: ")
	}
}

// Every key must be merged, whoever adds one.
func TestOver(t *testing.T) {
	t.Parallel()
	var all Values
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
		} else {
			f.SetString("said")
		}
	}
	assert.Equal(t, all, all.over(Values{}))
	assert.Equal(t, all, Values{}.over(all))
}

func FuzzResolve(f *testing.F) {
	f.Add("ingressDomain: example.com", shipped, "{{ .Name }}.a.b", "[]")
	f.Add("overrides: [{selector: {}}]", `{}`, "x", `[{"omeIngressGateway":"a/b"}]`)
	f.Fuzz(func(t *testing.T, ours, omes, template, gateways string) {
		d, _, err := Parse([]byte(ours))
		if err != nil {
			return
		}
		c := Config{Document: d}
		c.Inherited, _ = ParseInherited([]byte(omes), "cluster.local")
		s, err := c.Resolve(&isvc.Service{Namespace: "models", Name: "chat", Annotations: map[string]string{
			annotationDomainTemplate: template, annotationAdditionalGateways: gateways,
		}})
		if err == nil {
			assert.NotNil(t, s.Host)
		}
	})
}
