package gatewayapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/golden"
)

func TestHostnamesIntersect(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, a, b string
		want       bool
	}{
		{name: "both empty", want: true},
		{name: "any host and an exact one", b: "a.example.com", want: true},
		{name: "any host and a wildcard", b: "*.example.com", want: true},
		{name: "equal", a: "a.example.com", b: "a.example.com", want: true},
		{name: "equal but for case", a: "A.example.com", b: "a.EXAMPLE.com", want: true},
		{name: "different", a: "a.example.com", b: "b.example.com"},
		{name: "one is a suffix of the other", a: "example.com", b: "a.example.com"},
		{name: "below a wildcard", a: "*.example.com", b: "a.example.com", want: true},
		{name: "below a wildcard but for case", a: "*.Example.com", b: "A.example.COM", want: true},
		{name: "two labels below a wildcard", a: "*.example.com", b: "a.b.example.com", want: true},
		{name: "the domain of a wildcard", a: "*.example.com", b: "example.com"},
		{name: "the same ending inside a label", a: "*.example.com", b: "myexample.com"},
		{name: "an empty label below a wildcard", a: "*.example.com", b: ".example.com"},
		{name: "equal wildcards", a: "*.example.com", b: "*.example.com", want: true},
		{name: "a wildcard below a wildcard", a: "*.example.com", b: "*.a.example.com", want: true},
		{name: "wildcards side by side", a: "*.a.example.com", b: "*.b.example.com"},
		{name: "wildcards with the same ending inside a label", a: "*.example.com", b: "*.myexample.com"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, HostnamesIntersect(tt.a, tt.b))
			assert.Equal(t, tt.want, HostnamesIntersect(tt.b, tt.a), "the order does not matter")
		})
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	gateway := public(t, "["+plain+"]").Gateway
	tests := []struct {
		name, ref, namespace string
		want                 bool
	}{
		{name: "by name and namespace", ref: "{namespace: gateways, name: public}", namespace: "models", want: true},
		{name: "by name in the namespace of the Gateway", ref: "{name: public}", namespace: "gateways", want: true},
		{name: "by name in another namespace", ref: "{name: public}", namespace: "models"},
		{name: "another name", ref: "{namespace: gateways, name: internal}"},
		{name: "the listener", ref: "{namespace: gateways, name: public, sectionName: http, port: 80}", want: true},
		{name: "another listener", ref: "{namespace: gateways, name: public, sectionName: https}"},
		{name: "another port", ref: "{namespace: gateways, name: public, port: 8080}"},
		{name: "another kind", ref: "{namespace: gateways, name: public, kind: ListenerSet}"},
		{name: "another group", ref: "{namespace: gateways, name: public, group: ''}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ref := golden.Decode[gatewayv1.ParentReference](t, []byte(tt.ref))
			assert.Equal(t, tt.want, References(&ref, tt.namespace, gateway, &gateway.Spec.Listeners[0]))
		})
	}
}

func TestAllowsNamespaceCannotDecide(t *testing.T) {
	t.Parallel()
	gateway := public(t, "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: llm}}}}}]").Gateway
	listener := &gateway.Spec.Listeners[0]
	allowed, err := AllowsNamespace(gateway, listener, "models", nil)
	require.ErrorIs(t, err, ErrUnknownNamespace)
	assert.False(t, allowed)

	listener.AllowedRoutes.Namespaces.From = ptr.To(gatewayv1.FromNamespaces("Friends"))
	_, err = AllowsNamespace(gateway, listener, "models", map[string]string{})
	require.ErrorIs(t, err, ErrUnknownValue)
}
