package gatewayplan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// responder gives a rig a responder with two replicas.
func (r *rig) responder() {
	r.t.Helper()
	r.options.Responder.Namespace, r.options.Responder.Name = "fairlead", "responder"
	r.apply("apiVersion: v1\nkind: Service\nmetadata: {name: responder, namespace: fairlead}\nspec: {ports: [{name: not-found, " +
		"port: 404, " +
		"targetPort: 8404}, {name: no-backends, port: 500, targetPort: 8500}]}\n---\n" +
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: responder-1, namespace: fairlead, labels: " +
		"{kubernetes.io/service-name: responder}}\naddressType: IPv4\n" +
		"ports: [{name: not-found, port: 8404, protocol: TCP}, {name: no-backends, port: 8500, protocol: TCP}]\nendpoints: [{addresses: " +
		"[10.0.9.1]}, {addresses: [10.0.9.2]}]")
}

// TestSharesOfInvalidBackendRefs has an invalid backendRef of weight 25 beside a valid one of weight 75.
func TestSharesOfInvalidBackendRefs(t *testing.T) {
	t.Parallel()
	const valid = "{name: chat, port: 80, weight: 75}"
	without := map[string]int{}
	with := map[string]int{"10.0.0.2:8000": 3, "10.0.0.3:8000": 3, "10.0.9.1:8500": 1, "10.0.9.2:8500": 1}
	tests := []struct {
		name, parameters, refs string
		responder              bool
		want                   map[string]int // weights of backends, nil: the set of rules without backends
		reason, message        string
	}{
		{
			"a Service that does not exist", "", valid + ", {name: gone, port: 80, weight: 25}", true, with, "BackendNotFound",
			"its share of the requests gets status 500",
		},
		{
			"a port that does not exist", "", valid + ", {name: chat, port: 81, weight: 25}", true, with, "BackendNotFound",
			"its share of the requests gets status 500",
		},
		{
			"another kind", "", valid + ", {kind: ConfigMap, name: chat, port: 80, weight: 25}", true, with, "InvalidKind",
			"its share of the requests gets status 500",
		},
		{
			"a Service without a grant", "", valid + ", {name: secret, namespace: others, port: 80, weight: 25}", true, with,
			"RefNotPermitted", "its share of the requests gets status 500",
		},
		{
			"a pool without a proxy", "", valid + ", {group: inference.networking.k8s.io, kind: InferencePool, name: pool, weight: 25}",
			true, with, "NoEndpointPickerProxy", "its share of the requests gets status 500",
		},
		{
			"without a responder", "", valid + ", {name: gone, port: 80, weight: 25}", false, without, "BackendNotFound",
			"the other backendRefs get its share of the requests",
		},
		{
			"with a health check that the responder fails", "healthCheckProtocol: HTTP", valid + ", {name: gone, port: 80, weight: 25}",
			true, without, "BackendNotFound", "the other backendRefs get its share of the requests",
		},
		{"without a weight", "", valid + ", {name: gone, port: 80, weight: 0}", true, without, "BackendNotFound", "does not exist"},
		{
			"all are invalid", "", "{name: gone, port: 80}, {name: chat, port: 80, weight: 0}", true, nil, "BackendNotFound",
			"requests for the rule get status 500",
		},
		{
			"all are invalid, without a responder", "", "{name: gone, port: 80}", false, nil, "BackendNotFound",
			"requests for the rule get status 502",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if tt.responder {
				r.responder()
			}
			r.gateway("web", tt.parameters, "", webListener)
			r.service("models", "chat", 1, 2)
			r.service("others", "secret", 7)
			r.apply("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: pool, namespace: models}\n" +
				"spec: {selector: {matchLabels: {app: llm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: chat, port: " +
				"{number: 9002}, failureMode: FailClose}}")
			r.route("models", "chat", "rules: [{matches: [{path: {value: /a}}], backendRefs: ["+tt.refs+"]}]")
			p := r.serve()
			require.Len(t, p.Routes, 1)
			assert.Equal(t, tt.reason, p.Routes[0].resolved.Reason)
			assert.Contains(t, p.Routes[0].resolved.Message, tt.message)
			name, s := setOf(t, p, "'/a'")
			if tt.want == nil {
				assert.Equal(t, "fairlead-no-backends", name)
				return
			}
			weights := map[string]int{}
			for address, weight := range s.Wanted.Weights {
				weights[address.String()] = weight
			}
			assert.Equal(t, tt.want, weights)
			if len(tt.want) == 0 {
				assert.Len(t, s.Wanted.Endpoints, 2, "all have the same weight")
			} else {
				assert.Len(t, s.Wanted.Endpoints, 4)
			}
			for _, e := range s.Wanted.Endpoints {
				assert.NotEqual(t, netip.MustParseAddrPort("10.0.0.8:8000"), e.Address, "a Service that the route may not use")
			}
			assert.Equal(t, plan.Problem{}, s.Problem)
		})
	}
}

// TestShareOfACanaryThatComesAndGoes keeps the set of a rule, so its listener and its policy need no change.
func TestShareOfACanaryThatComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.responder()
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1, 2)
	r.route("models", "chat",
		"rules: [{matches: [{path: {value: /a}}], backendRefs: [{name: chat, port: 80, weight: 75}, {name: canary, port: 80, "+
			"weight: 25}]}]")
	before := r.serve()
	r.service("models", "canary", 3)
	p := r.serve()
	assert.Equal(t, before.Version, p.Version)
	assert.Equal(t, before.Record.Encode(), p.Record.Encode())
	_, s := setOf(t, p, "'/a'")
	assert.Equal(t,
		map[netip.AddrPort]int{
			netip.MustParseAddrPort("10.0.0.2:8000"): 3, netip.MustParseAddrPort("10.0.0.3:8000"): 3,
			netip.MustParseAddrPort("10.0.0.4:8000"): 2,
		},
		s.Wanted.Weights)
	assert.Equal(t, plan.Problem{}, p.Routes[0].resolved)
}
