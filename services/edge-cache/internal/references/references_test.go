package references

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/services/edge-cache/internal/allowlist"
)

var (
	ingresses  = allowlist.Resource{Group: "networking.k8s.io", Version: "v1", Name: "ingresses"}
	services   = allowlist.Resource{Version: "v1", Name: "services"}
	configMaps = allowlist.Resource{Version: "v1", Name: "configmaps", Own: true}
	custom     = allowlist.Resource{Group: "a.example", Version: "v1", Name: "things", Custom: true}
)

// references returns those of a profile, for the class edge and a controller in the namespace ingress.
func references(t *testing.T, profile string, always ...string) *Index {
	t.Helper()
	list, err := allowlist.ForProfile(profile, nil)
	require.NoError(t, err)
	return New(Params{Class: "edge", SecretFields: list.SecretFields, Namespace: "ingress", Secrets: always, Log: zap.NewNop()})
}

// ingress returns an Ingress in namespace a whose rules name Secrets.
func ingress(t *testing.T, class string, annotations map[string]string, secrets ...string) []byte {
	t.Helper()
	i := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "i", Annotations: annotations}}
	if class != "" {
		i.Spec.IngressClassName = &class
	}
	for _, name := range secrets {
		i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{SecretName: name})
	}
	raw, err := i.Marshal()
	require.NoError(t, err)
	return raw
}

func service(t *testing.T, annotations map[string]string) []byte {
	t.Helper()
	s := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1"},
	}
	raw, err := s.Marshal()
	require.NoError(t, err)
	return raw
}

func configMap(t *testing.T, namespace string, data map[string]string) []byte {
	t.Helper()
	c := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}, Data: data}
	raw, err := c.Marshal()
	require.NoError(t, err)
	return raw
}

// thing returns a custom resource in namespace a.
func thing(t *testing.T, spec string) []byte {
	t.Helper()
	object := map[string]any{"metadata": map[string]any{"namespace": "a", "name": "x"}}
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &object))
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	return raw
}

// annotated returns a custom resource with an annotation.
func annotated(t *testing.T, name, value string, object []byte) []byte {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal(object, &o))
	o["metadata"].(map[string]any)["annotations"] = map[string]any{name: value}
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	return raw
}

func secrets(keys ...string) []Target {
	var targets []Target
	for _, key := range keys {
		targets = append(targets, Target{Kind: allowlist.Secrets, Key: key})
	}
	return targets
}

// TestReferences has what each controller reads, by its source: see the tables of package allowlist.
func TestReferences(t *testing.T) {
	t.Parallel()
	type annotations = map[string]string
	tests := []struct {
		name     string
		profile  string
		resource allowlist.Resource
		give     []byte
		want     []Target
	}{
		{"TLS", "traefik", ingresses, ingress(t, "edge", nil, "x", "", "x", "y"), secrets("a/x", "a/y")},
		{"another class", "traefik", ingresses, ingress(t, "other", nil, "x"), nil},
		{"class in an annotation", "traefik", ingresses, ingress(t, "", annotations{classAnnotation: "edge"}, "x"), secrets("a/x")},
		{
			"class in an annotation that wins in haproxy-ingress", "haproxy-ingress", ingresses,
			ingress(t, "other", annotations{classAnnotation: "edge"}, "x"), secrets("a/x"),
		},
		{"no class", "traefik", ingresses, ingress(t, "", nil, "x"), nil},
		{
			"annotations of any controller", "custom", ingresses,
			ingress(t, "edge", annotations{"auth-secret": "x", "a.example/tls-secret": "a/y", "secret-type": "z"}), secrets("a/x", "a/y"),
		},
		{
			"a Secret of another namespace", "haproxytech", ingresses,
			ingress(t, "edge", annotations{"haproxy.org/server-ca": "victim/x"}), nil,
		},
		{
			"no names", "haproxytech", ingresses,
			ingress(t, "edge", annotations{"auth-secret": "file:///etc/passwd", "server-ca": "A/../b", "server-crt": "a/b/c"}), nil,
		},
		{"malformed", "traefik", ingresses, []byte{0xff}, nil},
		{"deleted", "traefik", ingresses, nil, nil},
		{
			"haproxytech: an Ingress", "haproxytech", ingresses,
			ingress(t, "edge",
				annotations{"haproxy.org/server-ca": "a/ca", "haproxy.org/server-crt": "a/crt", "haproxy.org/auth-secret": "users"}),
			secrets("a/ca", "a/crt", "a/users"),
		},
		{
			"haproxytech: a Service", "haproxytech", services,
			service(t, annotations{"haproxy.org/server-ca": "a/ca", "haproxy.org/server-crt": "a/crt"}), secrets("a/ca", "a/crt"),
		},
		{
			"haproxytech: its ConfigMap", "haproxytech", configMaps, configMap(t, "ingress", annotations{
				"ssl-certificate": "default-tls", "client-ca": "a/client-ca", "server-ca": "b/ca",
				"generate-certificates-signer": "b/signer", "prometheus-endpoint-auth-secret": "b/users", "ssl-redirect-port": "443",
			}), secrets("ingress/default-tls", "a/client-ca", "b/ca", "b/signer", "b/users"),
		},
		{
			"a ConfigMap of a tenant", "haproxytech", configMaps,
			configMap(t, "a", annotations{"ssl-certificate": "a/x", "client-ca": "victim/x"}), nil,
		},
		{
			"haproxy-ingress: a Service", "haproxy-ingress", services, service(t, annotations{
				"haproxy-ingress.github.io/secure-verify-ca-secret": "ca", "ingress.kubernetes.io/secure-crt-secret": "crt",
				"haproxy-ingress.github.io/auth-secret": "users",
			}), secrets("a/ca", "a/crt", "a/users"),
		},
		{
			"haproxy-ingress: with a protocol", "haproxy-ingress", ingresses, ingress(t, "edge", annotations{
				"haproxy-ingress.github.io/auth-tls-secret": "secret://ca", "haproxy-ingress.github.io/secure-crt-secret": "secret://a/crt",
				"haproxy-ingress.github.io/auth-secret": "file://a",
			}), secrets("a/ca", "a/crt"),
		},
		{
			"haproxy-ingress: its ConfigMaps", "haproxy-ingress", configMaps, configMap(t, "ingress", annotations{
				"auth-tls-default-secret": "b/ca", "ssl-dh-param": "b/dh", "stats-ssl-cert": "file:///stats.pem",
				"7000": "a/db:5432::PROXY:b/tls:2s:b/clients", "http-port": "8000",
			}), secrets("b/ca", "b/dh", "b/tls", "b/clients"),
		},
		{
			"nginx-f5: an Ingress", "nginx-f5", ingresses,
			ingress(t, "edge",
				annotations{"nginx.com/jwt-key": "jwk", "nginx.org/basic-auth-secret": "users", "nginx.com/jwt-token": "$cookie_t"}),
			secrets("a/jwk", "a/users"),
		},
		{
			"nginx-f5: its ConfigMap for management", "nginx-f5", configMaps,
			configMap(t, "ingress", annotations{"license-token-secret-name": "license", "ssl-certificate-secret-name": "client"}),
			secrets("ingress/license", "ingress/client"),
		},
		{
			"ingress-nginx: an Ingress", "ingress-nginx", ingresses, ingress(t, "edge", annotations{
				"nginx.ingress.kubernetes.io/auth-tls-secret": "a/ca", "nginx.ingress.kubernetes.io/proxy-ssl-secret": "a/tls",
				"nginx.ingress.kubernetes.io/auth-secret-type": "auth-map",
			}), secrets("a/ca", "a/tls"),
		},
		{
			"ingress-nginx: its ConfigMap", "ingress-nginx", configMaps, configMap(t, "ingress", annotations{"ssl-dh-param": "b/dh"}),
			secrets("b/dh"),
		},
		{
			"Traefik: IngressRoute", "traefik-crd", custom,
			thing(t, "{tls: {secretName: x, options: {name: o}}, routes: [{services: [{name: s}]}]}"), secrets("a/x"),
		},
		{
			"Traefik: Middlewares", "traefik-crd", custom,
			thing(t, `{basicAuth: {secret: b}, digestAuth: {secret: d}, forwardAuth: {tls: {caSecret: c, certSecret: e}},
			rateLimit: {redis: {secret: r}}, plugin: {jwt: {secret: literal, keys: ["urn:k8s:secret:p:key"]}}}`),
			secrets("a/b", "a/d", "a/c", "a/e", "a/r", "a/p"),
		},
		{"Traefik: TLSOption", "traefik-crd", custom, thing(t, "{clientAuth: {secretNames: [x, w]}}"), secrets("a/x", "a/w")},
		{
			"Traefik: TLSStore", "traefik-crd", custom, thing(t, "{defaultCertificate: {secretName: x}, certificates: [{secretName: w}]}"),
			secrets("a/x", "a/w"),
		},
		{
			"Traefik: ServersTransport", "traefik-crd", custom,
			thing(t, "{rootCAsSecrets: [x], rootCAs: [{secret: w}, {configMap: z}], certificatesSecrets: [c]}"),
			append(secrets("a/x", "a/w", "a/c"), Target{Kind: allowlist.ConfigMaps, Key: "a/z"}),
		},
		{"nginx-f5: VirtualServer", "nginx-f5", custom, thing(t, "{ingressClassName: edge, tls: {secret: x}}"), secrets("a/x")},
		{"nginx-f5: of another class", "nginx-f5", custom, thing(t, "{ingressClassName: other, tls: {secret: x}}"), nil},
		{
			"class of a custom resource in an annotation", "traefik-crd", custom,
			annotated(t, classAnnotation, "other", thing(t, "{tls: {secretName: x}}")), nil,
		},
		{
			"nginx-f5: Policies", "nginx-f5", custom,
			thing(t, `{ingressMTLS: {clientCertSecret: a}, egressMTLS: {tlsSecret: b, trustedCertSecret: c}, jwt: {secret: d},
			oidc: {clientSecret: e}, apiKey: {clientSecret: f}}`), secrets("a/a", "a/b", "a/c", "a/d", "a/e", "a/f"),
		},
		{
			"Gateway API", "custom", custom,
			thing(t, `{listeners: [{tls: {certificateRefs: [{name: x}, {kind: Secret, name: w}, {kind: Other, name: z}, {name: v,
			namespace: victim}]}}],
			validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}`),
			append(secrets("a/x", "a/w"), Target{Kind: allowlist.ConfigMaps, Key: "a/ca"}),
		},
		{
			"haproxytech: TCP", "haproxytech", custom,
			thing(t, "[{frontend: {binds: {a: {ssl_certificate: x}, b: {ssl_certificate: /etc/certs}}}}]"), secrets("a/x"),
		},
		{
			"keys of Secrets", "custom", custom,
			thing(t, "{env: {secretKeyRef: {name: x, key: k}}, secret: {secretName: w}, secretType: z}"), secrets("a/x", "a/w"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := references(t, tt.profile, "b/always")
			assert.ElementsMatch(t, tt.want, r.UpdateObjects(tt.resource, map[string][]byte{"a/i": tt.give}))
			assert.ElementsMatch(t, append(secrets("b/always"), tt.want...), r.WantedTargets())
			assert.False(t, r.IsWanted(secrets("victim/x")[0]))
			assert.ElementsMatch(t, tt.want, r.UpdateObjects(tt.resource, map[string][]byte{"a/i": nil}))
			assert.Equal(t, secrets("b/always"), r.WantedTargets())
		})
	}
}

func TestASecretIsWantedUntilTheLastReferenceIsGone(t *testing.T) {
	t.Parallel()
	r := references(t, "haproxytech")
	raw := ingress(t, "edge", nil, "x")
	assert.Equal(t, secrets("a/x"), r.UpdateObjects(ingresses, map[string][]byte{"a/i": raw}))
	assert.Empty(t, r.UpdateObjects(services, map[string][]byte{"a/i": service(t, map[string]string{"haproxy.org/server-ca": "a/x"})}),
		"a Service of the same name")
	assert.Empty(t, r.UpdateObjects(ingresses, map[string][]byte{"a/i": raw}), "the same again")
	assert.Empty(t, r.UpdateObjects(ingresses, map[string][]byte{"a/i": nil}))
	assert.True(t, r.IsWanted(secrets("a/x")[0]))
	assert.Equal(t, secrets("a/x"), r.UpdateObjects(services, map[string][]byte{"a/i": nil}))
	assert.False(t, r.IsWanted(secrets("a/x")[0]))
}

// TestUnfollowedReferences names what leads to nothing, except what the administrator shows.
func TestUnfollowedReferences(t *testing.T) {
	t.Parallel()
	r := references(t, "haproxytech", "b/permitted", "b/gone")
	many := make([]string, maxReferences+10)
	for i := range many {
		many[i] = fmt.Sprintf("s%05d", i)
	}
	assert.Len(t, r.UpdateObjects(ingresses, map[string][]byte{"a/many": ingress(t, "edge", nil, many...)}), maxReferences)
	r.UpdateObjects(services, map[string][]byte{
		"a/s": service(t, map[string]string{"haproxy.org/server-ca": "b/forbidden", "haproxy.org/server-crt": "b/permitted"}),
	})
	r.UpdateObjects(custom, map[string][]byte{"a/x": thing(t, "{tls: {secretName: perhaps}}")})
	got := r.FindUnfollowed(func(target Target) Problem {
		switch target.Key {
		case "b/gone", "a/perhaps":
			return Missing
		}
		return ""
	})
	assert.ElementsMatch(t, []Reference{
		{Resource: "--secrets", Object: "b/gone", Target: secrets("b/gone")[0], Problem: Missing},
		{
			Resource: "v1/services", Object: "a/s", Field: "metadata.annotations.haproxy.org/server-ca", Target: secrets("b/forbidden")[0],
			Problem: OtherNamespace,
		},
		{
			Resource: "networking.k8s.io/v1/ingresses", Object: "a/i", Field: "spec.tls.secretName",
			Target: secrets(fmt.Sprintf("a/s%05d", maxReferences))[0], Problem: TooMany,
		},
		{
			Resource: "a.example/v1/things", Object: "a/x", Field: "spec.tls.secretName", Target: secrets("a/perhaps")[0],
			Problem: Missing, Guessed: true,
		},
	}, got)
}
