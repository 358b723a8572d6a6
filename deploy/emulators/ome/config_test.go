package ome

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"
)

const (
	deployJSON = `{"defaultDeploymentMode": "RawDeployment"}`
	gateways   = `"ingressGateway": "a/b", "ingressService": "c"`
)

// shipped returns the ConfigMap of the chart of a release.
func shipped(tb testing.TB, r Release) *corev1.ConfigMap {
	tb.Helper()
	c := &corev1.ConfigMap{}
	require.NoError(tb, yaml.UnmarshalStrict([]byte(Config(r)), c))
	return c
}

func TestShippedConfig(t *testing.T) {
	t.Parallel()
	for _, release := range Releases {
		t.Run(string(release), func(t *testing.T) {
			t.Parallel()
			data := shipped(t, release).Data
			c, err := parseConfig(data, release)
			require.NoError(t, err)
			assert.True(t, c.DisableIngressCreation)
			assert.Equal(t, "svc.cluster.local", c.IngressDomain)
			assert.Equal(t, "istio", *c.IngressClassName)
			assert.False(t, c.EnableGatewayAPI)
			assert.False(t, c.PerISVCSubdomain)
			if release == Release12 {
				assert.Empty(t, c.SharedHostPrefix)
				assert.NotContains(t, data["ingress"], "perISVCSubdomain", "release 1.2 has no such key")
				return
			}
			assert.Equal(t, "llm", c.SharedHostPrefix)
			assert.Equal(t, []string{"x-routing-key", "X-SMG-Routing-Key"}, c.ConsistentHashHeaders)
			for _, key := range []string{`"perISVCSubdomain": false`, `"defaultRouteTimeoutSeconds": 0`, `"additionalIngressGateways": []`, `"namespaceIngressGateways": {}`} {
				assert.Contains(t, data["ingress"], key)
			}
		})
	}
}

func TestParseConfig(t *testing.T) {
	t.Parallel()
	const routes = `, "perISVCSubdomain": true, "additionalIngressGateways": [{"omeIngressGateway": "a/b", "ingressDomain": "c.d", "class": "x"}], ` +
		`"namespaceIngressGateways": {"n": {"primary": {"omeIngressGateway": "a/b"}, "additional": []}}`
	tests := []struct {
		name, ingress, deploy, want string
		release                     Release // all if empty
	}{
		{name: "enough", ingress: "{" + gateways + "}", deploy: deployJSON},
		{name: "another case", ingress: "{" + gateways + `, "enableGatewayApi": true}`, deploy: deployJSON},
		{name: "YAML", ingress: "ingressGateway: a/b", deploy: deployJSON, want: "parse ingress: invalid character 'i' looking for beginning of value"},
		{name: "nothing", deploy: deployJSON, want: "parse ingress: unexpected end of JSON input"},
		{name: "no gateways", ingress: "{}", deploy: deployJSON, want: "ingress has no ingressGateway or no ingressService"},
		{name: "path without domain", ingress: "{" + gateways + `, "pathTemplate": "/x"}`, deploy: deployJSON, want: "ingress has a pathTemplate and no ingressDomain"},
		{name: "invalid path", ingress: "{" + gateways + `, "pathTemplate": "{{"}`, deploy: deployJSON, want: "parse pathTemplate: template: path:1: unclosed action"},
		{name: "no mode", ingress: "{" + gateways + "}", deploy: "{}", release: Release12, want: `deploy has defaultDeploymentMode "", want Serverless or RawDeployment`},
		{name: "no mode, no Knative", ingress: "{" + gateways + "}", deploy: "{}", release: Release13, want: `deploy has defaultDeploymentMode "", want RawDeployment`},
		{name: "Knative", ingress: "{" + gateways + "}", deploy: `{"defaultDeploymentMode": "Serverless"}`, release: Release12},
		{name: "Knative in 1.3", ingress: "{" + gateways + "}", deploy: `{"defaultDeploymentMode": "Serverless"}`, release: Release13, want: `deploy has defaultDeploymentMode "Serverless", want RawDeployment`},
		{name: "routes", ingress: "{" + gateways + routes + "}", deploy: deployJSON},
		{name: "class", ingress: "{" + gateways + `, "omeIngressGatewayClass": "x_y"}`, deploy: deployJSON, release: Release13, want: `ingress has omeIngressGatewayClass "x_y": a lowercase RFC 1123 label`},
		{name: "class in 1.2", ingress: "{" + gateways + `, "omeIngressGatewayClass": "x_y"}`, deploy: deployJSON, release: Release12},
		{name: "no deploy", ingress: "{" + gateways + "}", want: "parse deploy: unexpected end of JSON input"},
	}
	for _, tt := range tests {
		for _, release := range Releases {
			if tt.release != "" && tt.release != release {
				continue
			}
			t.Run(tt.name+" "+string(release), func(t *testing.T) {
				t.Parallel()
				c, err := parseConfig(map[string]string{"ingress": tt.ingress, "deploy": tt.deploy}, release)
				if tt.want != "" {
					require.ErrorContains(t, err, tt.want)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, "example.com", c.IngressDomain)
				assert.Equal(t, "http", c.URLScheme)
				assert.Equal(t, tt.name == "another case", c.EnableGatewayAPI)
				assert.Equal(t, tt.name == "routes", c.PerISVCSubdomain)
			})
		}
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, annotations, component, want, wantErr string }{
		{name: "a name that is too long", component: strings.Repeat("c", 57) + "-engine", want: "a8ff3263-" + strings.Repeat("c", 47) + "-engine.models.example.com"},
		{name: "default", want: "chat-engine.models.example.com"},
		{name: "domain", annotations: "ome.io/ingress-domain: a.b", want: "chat-engine.models.a.b"},
		{name: "empty domain", annotations: `ome.io/ingress-domain: ""`, want: "chat-engine.models.example.com"},
		{name: "template", annotations: `ome.io/ingress-domain-template: "{{ .Labels.team }}-{{ .Name }}.{{ .IngressDomain }}"`, want: "a-chat-engine.example.com"},
		{name: "no host", annotations: `ome.io/ingress-domain-template: "UPPER.{{ .IngressDomain }}"`, wantErr: "render domain template: host: Invalid value"},
		{name: "no template", annotations: `ome.io/ingress-domain-template: "{{ .Name"`, wantErr: "parse domain template"},
		{name: "one label", annotations: `ome.io/ingress-domain-template: "x"`, wantErr: "should be a domain with at least two segments"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, Release12, ", labels: {team: a}, annotations: {"+tt.annotations+"}", "engine: {}")
			var c configuration
			c.complete()
			host, err := c.of(s).host(s, cmp.Or(tt.component, "chat-engine"))
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, host)
		})
	}
}

func TestConfigOfOneService(t *testing.T) {
	t.Parallel()
	tests := []struct {
		annotation  string
		whole, want bool
	}{
		{"", true, true}, {`: "true"`, false, true}, {`: "false"`, true, false}, {`: "True"`, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.annotation, func(t *testing.T) {
			t.Parallel()
			annotation := "note: x"
			if tt.annotation != "" {
				annotation = annotationDisable + tt.annotation
			}
			c := configuration{DisableIngressCreation: tt.whole}.of(parse(t, Release12, ", annotations: {"+annotation+", ome.io/ingress-url-scheme: https}", ""))
			assert.Equal(t, tt.want, c.DisableIngressCreation)
			assert.Equal(t, "https", c.URLScheme)
		})
	}
}

func TestConfigIsCachedByRelease13(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	client := fake.NewSimpleDynamicClient(scheme, shipped(t, Release13))
	store := &store{client: client, ledger: newLedger()}
	each := &configReader{store: store, namespace: "ome", release: Release12, clock: clock}
	cached := &configReader{store: store, namespace: "ome", release: Release13, clock: clock, ttl: 30 * time.Second}
	disabled := func(r *configReader) bool {
		c, err := r.get(t.Context())
		require.NoError(t, err)
		return c.DisableIngressCreation
	}
	assert.True(t, disabled(each))
	assert.True(t, disabled(cached))

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shipped(t, Release13))
	require.NoError(t, err)
	changed := &unstructured.Unstructured{Object: content}
	require.NoError(t, unstructured.SetNestedField(changed.Object, "{"+gateways+"}", "data", "ingress"))
	_, err = client.Resource(configMaps.GroupVersionResource).Namespace("ome").Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.False(t, disabled(each))
	clock.Step(29 * time.Second)
	assert.True(t, disabled(cached))
	clock.Step(time.Second)
	assert.False(t, disabled(cached))

	_, err = (&configReader{store: store, namespace: "elsewhere", clock: clock}).get(t.Context())
	require.EqualError(t, err, "read configuration: ConfigMap elsewhere/inferenceservice-config does not exist")
}

func FuzzParseConfig(f *testing.F) {
	f.Add("{"+gateways+`, "pathTemplate": "/{{ .Name }}", "ingressDomain": "a.b", "ingressClassName": null}`, deployJSON)
	f.Add(`{"ingressGateway": 1}`, "null")
	f.Fuzz(func(t *testing.T, ingress, deploy string) {
		c, err := parseConfig(map[string]string{"ingress": ingress, "deploy": deploy}, Release13)
		if err == nil {
			assert.NotEmpty(t, c.IngressGateway)
			assert.NotEmpty(t, c.IngressDomain)
			assert.NotEmpty(t, c.DomainTemplate)
		}
	})
}
