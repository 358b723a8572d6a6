package policy

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	shared = "ocid1.loadbalancer.oc1.iad.shared"
	team   = "ocid1.loadbalancer.oc1.iad.team"
)

const example = `
loadBalancers:
- id: ocid1.loadbalancer.oc1.iad.shared
  takeOver: true
- id: ocid1.loadbalancer.oc1.iad.team
  namespaces: [team-a, team-b]
  backendSets: [chat, team-*]
  limits: {backendsPerSet: 100, backends: 1024, reservedBackends: -1}
namespaces:
  team-a: {bindings: 2, backendsPerBinding: 50}
  "*": {backendsPerBinding: 200}
podRanges: [10.244.1.2/16]
`

func TestPermit(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(example))
	require.NoError(t, err)
	tests := []struct {
		namespace, lb, set string
		want               Permission
		refused            string
	}{
		{
			namespace: "models", lb: shared, set: "any",
			want: Permission{Limits: plan.Limits{PerSet: 512, Total: 512, Reserved: 16}, Backends: 200, Bindings: 16, TakeOver: true},
		},
		{
			namespace: "team-a", lb: team, set: "chat",
			want: Permission{Limits: plan.Limits{PerSet: 100, Total: 1024}, Backends: 50, Bindings: 2},
		},
		{
			namespace: "team-b", lb: team, set: "team-b-chat",
			want: Permission{Limits: plan.Limits{PerSet: 100, Total: 1024}, Backends: 200, Bindings: 16},
		},
		{namespace: "team-b", lb: team, set: "other", refused: "does not permit backend set other"},
		{namespace: "models", lb: team, set: "chat", refused: "does not permit namespace models"},
		{namespace: "models", lb: shared + "2", set: "chat", refused: "does not list this load balancer"},
	}
	for _, tt := range tests {
		got, err := d.PermitBinding(tt.namespace, tt.lb, tt.set)
		if tt.refused != "" {
			require.ErrorContains(t, err, tt.refused)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
	}
	var none *Document
	_, err = none.PermitBinding("models", shared, "chat")
	require.ErrorContains(t, err, "no configuration")
	assert.True(t, d.IsPod(netip.MustParseAddr("10.244.9.9")))
	assert.False(t, d.IsPod(netip.MustParseAddr("10.0.0.1")))
	empty, err := Parse(nil)
	require.NoError(t, err)
	assert.True(t, empty.IsPod(netip.MustParseAddr("10.0.0.1")))
	_, err = empty.PermitBinding("models", shared, "chat")
	require.ErrorContains(t, err, "does not list")
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"loadBalancer: []":         `line 1, column 1: loadBalancer: unknown field: did you mean "loadBalancers"?`,
		"LoadBalancers: []":        `did you mean "loadBalancers"?`,
		"loadBalancers: [{id: a}]": `line 1, column 22: loadBalancers[0].id: "a" is not the OCID`,
		"loadBalancers: [a]":       `loadBalancers[0]: "a" has no fields`,
		"loadBalancers: [{id: ocid1.loadbalancer.a}, {id: ocid1.loadbalancer.a}]": "is listed twice",
		"loadBalancers: [{id: ocid1.loadbalancer.a, namespaces: [A]}]":            "loadBalancers[0].namespaces[0]",
		"loadBalancers: [{id: ocid1.loadbalancer.a, gateways: {namespaces: " +
			"[a, A]}}]": "loadBalancers[0].gateways.namespaces[1]",
		"loadBalancers: [{id: ocid1.loadbalancer.a, gateways: {listeners: -1}}]": "loadBalancers[0].gateways.listeners: -1 is negative",
		"loadBalancers: [{id: ocid1.loadbalancer.a, backendSets: ['[']}]":        "not a name or a pattern",
		"loadBalancers: [{id: ocid1.loadbalancer.a, limits: {backends: -1}}]":    "loadBalancers[0].limits.backends: -1 is negative",
		"loadBalancers: [{id: ocid1.loadbalancer.a, limits: " +
			"{reservedBackends: -2}}]": "loadBalancers[0].limits.reservedBackends: -2 is negative",
		"loadBalancers: [{id: ocid1.loadbalancer.a, limits: {backendsPerSet: 10, reservedBackends: 10}}]": "leaves no room",
		"namespaces: {A: {}}":             `namespaces.A: "A": a lowercase RFC 1123 label`,
		"namespaces: {a: {bindings: -1}}": "namespaces.a.bindings: -1 is negative",
		"namespaces: {a: {certificates: [ocid1.cabundle.oc1..a]}}": `namespaces.a.certificates[0]: "ocid1.cabundle.oc1..a" is not the ` +
			`OCID of a certificate`,
		"podRanges: [10.0.0.0]":             `podRanges[0]: "10.0.0.0" is not a range`,
		"[":                                 "it is not YAML",
		"loadBalancers: [], loadBalancers:": "it is not YAML",
	}
	for text, want := range tests {
		_, err := Parse([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestParseListsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`
loadBalancers:
- id: [a]
  takeover: true
  namespaces: [{}]
  gateways: {listeners: -1}
podRange: [10.244.1.2/16]
`))
	require.EqualError(t, err, `line 3, column 7: loadBalancers[0].id: a list is not a string: put it in quotes if it should be
line 4, column 3: loadBalancers[0].takeover: unknown field: did you mean "takeOver"?
line 5, column 16: loadBalancers[0].namespaces[0]: a mapping is not a string: put it in quotes if it should be
line 6, column 25: loadBalancers[0].gateways.listeners: -1 is negative: give 0 for the default
line 7, column 1: podRange: unknown field: did you mean "podRanges"?`)
}

// TestParseReadsWhatKubernetesReads parses spellings that the YAML of Kubernetes permits, too.
func TestParseReadsWhatKubernetesReads(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(`
loadBalancers:
- id: ocid1.loadbalancer.oc1.iad.team
  takeOver: yes
  namespaces: &team [2024, team-a]
  backendSets: [1]
  gateways: {namespaces: *team}
namespaces: {2024: {bindings: 3}, "*": }
podRanges:
`))
	require.NoError(t, err)
	got, err := d.PermitBinding("2024", team, "1")
	require.NoError(t, err)
	assert.True(t, got.TakeOver)
	assert.Equal(t, 3, got.Bindings)
	_, err = d.PermitGateway("2024", team)
	require.NoError(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("loadBalancers: [{limits: {}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		for _, lb := range d.LoadBalancers {
			p, err := d.PermitBinding("models", lb.ID, "chat")
			if err == nil {
				assert.Positive(t, p.Limits.PerSet)
				assert.Less(t, p.Limits.Reserved, p.Limits.PerSet)
				assert.Positive(t, p.Bindings)
			}
		}
	})
}
