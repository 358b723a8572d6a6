package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// inherit resolves settings on top of a ConfigMap of OME.
func inherit(t *testing.T, in *Input, config, ome string) {
	t.Helper()
	d, err := settings.Parse([]byte(config))
	require.NoError(t, err)
	inherited, err := settings.ParseInherited([]byte(ome), "cluster.local")
	require.NoError(t, err)
	in.Settings, err = (&settings.Config{Document: d, Inherited: inherited, ClusterDomain: "cluster.local"}).ResolveSettings(in.Service)
	require.NoError(t, err)
}

// OME 1.3 uses the shared host for HTTPRoutes only, and its chart always sets it.
func TestTheSharedHostOfOME(t *testing.T) {
	t.Parallel()
	const ome = `{"disableIngressCreation": true, "ingressDomain": "svc.cluster.local", "perISVCSubdomain": false, "sharedHostPrefix": ` +
		`"models"}`
	tests := []struct{ name, config, want string }{
		{
			name: "HTTPRoute", config: "omeIngressGateway: gateways/public",
			want: "models.example.com/models/chat/ -> chat-engine:8080 by gateways/public",
		},
		{
			name: "HTTPRoute, overridden", config: "omeIngressGateway: gateways/public\nperISVCSubdomain: true",
			want: "chat.models.example.com/ -> chat-engine:8080 by gateways/public",
		},
		{name: "Ingress", config: "strategy: ingress", want: "chat.models.example.com/ -> chat-engine:8080"},
		{
			name: "VirtualService", config: "strategy: virtualservice\ningressGateway: istio/public",
			want: "chat.models.example.com/ -> chat-engine:8080",
		},
		{
			name: "VirtualService, overridden", config: "strategy: virtualservice\ningressGateway: istio/public\nperISVCSubdomain: false",
			want: "llm.example.com/models/chat/ -> chat-engine:8080",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example, isvc.Engine)
			inherit(t, in, example+tt.config, ome)
			got := build(t, in)
			assert.Equal(t, []string{tt.want}, lines(got))
			assert.Empty(t, got.Reasons)
		})
	}
}

// OME applies the domain of a namespace to HTTPRoutes, not to Ingresses.
func TestTheDomainOfANamespaceOfOME(t *testing.T) {
	t.Parallel()
	const ome = `{"disableIngressCreation": true, "namespaceIngressGateways": {"models": {"primary": {"omeIngressGateway": ` +
		`"gateways/public", "ingressDomain": "models.example.com"}}}}`
	in := input(t, example, isvc.Engine)
	inherit(t, in, "strategy: httproute", ome)
	assert.Equal(t, []string{"chat.models.models.example.com/ -> chat-engine:8080 by gateways/public"}, lines(build(t, in)))
	inherit(t, in, "strategy: ingress", ome)
	got := build(t, in)
	assert.Empty(t, got.Exposures)
	assert.Equal(t, []string{ReasonNoDomain}, reasons(got))
	assert.Equal(t, Slots, got.FrozenSlots)
}

// Hosts contain the name truncated by OME; paths and models contain the whole name.
func TestNamesLongerThanALabel(t *testing.T) {
	t.Parallel()
	const hash64, hash253 = "ce068a19", "ae5445b7"
	long := strings.Repeat("n", 190) + "." + strings.Repeat("m", 62)
	tests := []struct{ name, service, host string }{
		{name: "63 characters", service: strings.Repeat("n", 63), host: strings.Repeat("n", 63)},
		{name: "64 characters", service: strings.Repeat("n", 64), host: hash64 + "-" + strings.Repeat("n", 54)},
		{name: "253 characters", service: long, host: hash253 + "-" + strings.Repeat("m", 54)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example+"modelBasedRoutingHeaderName: X-Model\nstrategy: virtualservice\ningressGateway: istio/public\n",
				isvc.Engine)
			in.Service.Name = tt.service
			in.Services[0].Name = backend.ServiceName(tt.service, isvc.Engine)
			got := build(t, in)
			require.Empty(t, got.Reasons)
			models := map[string]string{}
			for _, e := range got.Exposures {
				models[e.Host] = e.Model.Name
			}
			assert.Equal(t, map[string]string{tt.host + ".models.example.com": "", "llm.example.com": tt.service}, models)

			in.Settings.Subdomain, in.Settings.ModelHeader = false, ""
			got = build(t, in)
			require.Len(t, got.Exposures, 1)
			assert.Equal(t, fmt.Sprintf("llm.example.com/models/%s/", tt.service), got.Exposures[0].Host+got.Exposures[0].Path)
		})
	}
}
