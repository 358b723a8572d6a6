package istiogateway

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/gatewayapi"
	kit "fairlead.dev/pkg/informers"
)

func read(t testing.TB, servers string) *Gateway {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t,
		yaml.Unmarshal([]byte("{apiVersion: networking.istio.io/v1beta1, kind: Gateway, metadata: {namespace: istio, name: public, uid: "+
			"u}, spec: {servers: "+servers+"}}"), &u.Object))
	obj, err := kit.Typed(func(*Gateway) {})(u)
	require.NoError(t, err)
	g, readable := obj.(*Gateway)
	if !readable {
		g = &Gateway{Unreadable: true}
	}
	return g
}

func TestAttach(t *testing.T) {
	t.Parallel()
	const host = "chat.models.example.com"
	tests := []struct{ name, servers, scheme, reason, message string }{
		{name: "any host", servers: "[{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]", scheme: "http"},
		{
			name: "the host", servers: "[{port: {number: 80, protocol: HTTP}, hosts: [a.example.com, Chat.Models.example.com]}]",
			scheme: "http",
		},
		{name: "a wildcard", servers: "[{port: {number: 80, protocol: HTTP2}, hosts: ['*.example.com']}]", scheme: "http"},
		{
			name:    "a wildcard does not match its domain",
			servers: "[{port: {number: 80, name: web, protocol: HTTP}, hosts: ['*.chat.models.example.com']}]",
			reason:  gatewayapi.ReasonNoMatchingHostname,
			message: "no server has host chat.models.example.com: server web has *.chat.models.example.com",
		},
		{
			name: "a wildcard of a longer name", servers: "[{port: {number: 80, protocol: HTTP}, hosts: ['*.notexample.com']}]",
			reason: gatewayapi.ReasonNoMatchingHostname,
		},
		{name: "the namespace", servers: "[{port: {number: 80, protocol: HTTP}, hosts: [models/*.example.com]}]", scheme: "http"},
		{
			name: "another namespace", servers: "[{port: {number: 80, protocol: HTTP}, hosts: [others/*.example.com]}]",
			reason:  gatewayapi.ReasonListenerNotAllowed,
			message: "server on port 80 does not accept VirtualServices of namespace models: see its hosts",
		},
		{
			name: "the namespace of the Gateway", servers: "[{port: {number: 80, protocol: HTTP}, hosts: [./*]}]",
			reason: gatewayapi.ReasonListenerNotAllowed,
		},
		{name: "any namespace", servers: "[{port: {number: 80, protocol: HTTP}, hosts: ['*/chat.models.example.com']}]", scheme: "http"},
		{
			name: "TLS before plain text",
			servers: "[{port: {number: 80, protocol: HTTP}, hosts: ['*']}, {port: {number: 443, protocol: HTTPS}, hosts: ['*'], tls: " +
				"{mode: SIMPLE}}]",
			scheme: "https",
		},
		{
			name: "a redirect to TLS",
			servers: "[{port: {number: 80, protocol: HTTP}, hosts: ['*'], tls: {httpsRedirect: true}}, {port: {number: 443, protocol: " +
				"HTTPS}, hosts: ['*'], tls: {mode: MUTUAL}}]",
			scheme: "https",
		},
		{
			name: "TLS that passes through", servers: "[{port: {number: 443, name: tls, protocol: HTTPS}, hosts: ['*']}]",
			reason:  gatewayapi.ReasonProtocolNotSupported,
			message: "server tls does not route HTTP requests: it has protocol HTTPS",
		},
		{name: "TCP", servers: "[{port: {number: 443, protocol: TCP}, hosts: ['*']}]", reason: gatewayapi.ReasonProtocolNotSupported},
		{
			name: "the server that comes closest",
			servers: "[{port: {number: 1, protocol: TCP}, hosts: ['*']}, {port: {number: 2, protocol: HTTP}, hosts: [a]}, {port: " +
				"{number: 3, protocol: TCP}, hosts: ['*']}]",
			reason: gatewayapi.ReasonNoMatchingHostname,
		},
		{name: "no servers", servers: "[]", reason: gatewayapi.ReasonListenerNotFound},
		{name: "an object that cannot be read", servers: "7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := read(t, tt.servers).PredictAttachment("models", host)
			assert.Equal(t, tt.scheme, got.Scheme)
			assert.Equal(t, tt.reason, got.Reason)
			if tt.message != "" {
				assert.Equal(t, tt.message, got.Message)
			}
		})
	}
	var none *Gateway
	assert.Equal(t, gatewayapi.ReasonGatewayNotFound, none.PredictAttachment("models", host).Reason)
	assert.Equal(t, gatewayapi.Attachment{Scheme: "http", Port: 8080},
		read(t, "[{port: {number: 8080, protocol: HTTP}, hosts: ['*']}]").PredictAttachment("models", host))
}

func TestParseName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{"istio/public": {"istio", "public"}, "public": {"models", "public"}} {
		namespace, name := ParseName(text, "models")
		assert.Equal(t, want, [2]string{namespace, name}, text)
	}
}

func FuzzTransform(f *testing.F) {
	f.Add([]byte(`{"kind":"Gateway","apiVersion":"networking.istio.io/v1beta1","spec":{"servers":[{"port":{"number":80,"protocol":` +
		`"HTTP"},"hosts":["*/a"]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(data) != nil {
			return
		}
		obj, err := kit.Typed(func(*Gateway) {})(u)
		require.NoError(t, err)
		if g, ok := obj.(*Gateway); ok {
			a := g.PredictAttachment("models", "chat.example.com")
			assert.False(t, a.Scheme != "" && a.Reason != "")
		}
	})
}
