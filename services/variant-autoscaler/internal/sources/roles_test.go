package sources_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// labeled returns a Deployment whose pods have labels, in the form of YAML.
func labeled(name, labels string) string {
	return fmt.Sprintf(`
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: 1, template: {metadata: {labels: %s}}}}`, name, labels)
}

// rolesOf returns the role of the group of each variant with its problem, by the name of the variant.
func rolesOf(r *sources.Result) map[string]string {
	all := map[string]string{}
	for _, g := range r.Groups {
		for i := range g.Variants {
			all[g.Variants[i].Name] = string(g.Role) + remarks(&g.Variants[i])
		}
	}
	return all
}

func TestRoles(t *testing.T) {
	t.Parallel()
	const ome = `{component: %s, ome.io/inferenceservice: %s}`
	tests := []struct {
		name, labels string
		others       string // further objects
		want         string
	}{
		{"no label", "{app: x}", "", ""},
		{"prefill", "{llm-d.ai/role: prefill}", "", "prefill"},
		{"prefill and images", "{llm-d.ai/role: encode-prefill}", "", "prefill"},
		{"decode", "{llm-d.ai/role: decode}", "", "decode"},
		{"decode and images", "{llm-d.ai/role: encode-decode}", "", "decode"},
		{"both", "{llm-d.ai/role: both}", "", ""},
		{"prefill-decode", "{llm-d.ai/role: prefill-decode}", "", ""},
		{"all", "{llm-d.ai/role: encode-prefill-decode}", "", ""},
		{"images only", "{llm-d.ai/role: encode}", "", " UnsupportedRole"},
		{"unknown", "{llm-d.ai/role: Prefill}", "", " UnsupportedRole"},
		{"DisaggregatedSet", "{disaggregatedset.x-k8s.io/role: prefill}", "", "prefill"},
		{"a name of its own in a DisaggregatedSet", "{disaggregatedset.x-k8s.io/role: context}", "", " UnsupportedRole"},
		{"explained by the label", "{disaggregatedset.x-k8s.io/role: context, llm-d.ai/role: prefill}", "", "prefill"},
		{"OME engine alone", fmt.Sprintf(ome, "engine", "s"), "", ""},
		{"OME engine beside the decoder of another service", fmt.Sprintf(ome, "engine", "s"), labeled("d", fmt.Sprintf(ome, "decoder", "other")), ""},
		{"OME engine with a decoder", fmt.Sprintf(ome, "engine", "s"), labeled("d", fmt.Sprintf(ome, "decoder", "s")), "prefill"},
		{"OME decoder", fmt.Sprintf(ome, "decoder", "s"), "", "decode"},
		{"component of somebody else", "{component: decoder}", "", ""},
		{"label and component", "{component: decoder, ome.io/inferenceservice: s, llm-d.ai/role: both}", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := append(parse(t, labeled("x", tt.labels)+tt.others+labeled("p", "{llm-d.ai/role: prefill}")), object(t, va, "a", "x"), object(t, va, "b", "p"))
			got := collect(t, sources.Params{}, objects...)
			valid(t, got)
			assert.Equal(t, map[string]string{"a": tt.want, "b": "prefill"}, rolesOf(got))
		})
	}
}

// TestDecodeAlone: without a prefill server, servers that are called decode compute whole requests.
func TestDecodeAlone(t *testing.T) {
	t.Parallel()
	objects := parse(t, labeled("d", "{llm-d.ai/role: decode}")+labeled("w", "{app: w}")+labeled("p", "{llm-d.ai/role: prefill}"))
	objects = append(objects, object(t, va, "a", "d"), object(t, va, "b", "w"), object(t, va, "c", "p", "spec|modelID", "other"))
	assert.Equal(t, map[string]string{"a": "", "b": "", "c": "prefill"}, rolesOf(collect(t, sources.Params{}, objects...)))
}

// TestRolesOfAModel: the roles of a model are groups next to each other, with one class and one source of costs.
func TestRolesOfAModel(t *testing.T) {
	t.Parallel()
	objects := parse(t, labeled("p", "{llm-d.ai/role: prefill}")+labeled("d", "{llm-d.ai/role: decode}")+labeled("w", "{app: w}"))
	class := func(key string) string { return "{name: service-classes-config, key: " + key + "}" }
	objects = append(objects,
		object(t, va, "b", "p", "spec|variantCost", `"5"`, "metadata|creationTimestamp", `"2026-01-01T00:00:00Z"`, "spec|sloClassRef", class("one.yaml")),
		object(t, va, "a", "d", "spec|accelerator", "H100"),
		object(t, va, "c", "w", "spec|accelerator", "H100", "spec|sloClassRef", class("two.yaml")))
	got := collect(t, sources.Params{Prices: map[string]int64{"H100": 7_000_000}}, objects...)
	var keys []snapshot.GroupKey
	for _, g := range got.Groups {
		keys = append(keys, g.GroupKey)
		assert.Equal(t, informers.ClassRef{Name: "service-classes-config", Key: "one.yaml"}, g.Class)
		require.Len(t, g.Variants, 1)
	}
	key := func(role snapshot.Role) snapshot.GroupKey {
		return snapshot.GroupKey{Namespace: "models", Model: "m", Role: role}
	}
	assert.Equal(t, []snapshot.GroupKey{key(snapshot.Aggregated), key(snapshot.Decode), key(snapshot.Prefill)}, keys)
	assert.Equal(t, "InvalidConfiguration", got.Groups[0].Variants[0].Problem.Reason, "another class")
	assert.Equal(t, snapshot.UnknownAccelerator, got.Groups[2].Variants[0].Problem.Reason, "the costs of the others are those of cards")
}

// TestTargetOfSeveralRoles: the replicas of a target that makes both roles are neither.
func TestTargetOfSeveralRoles(t *testing.T) {
	t.Parallel()
	built := func(name, role string) string {
		return fmt.Sprintf(`
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: %s, ownerReferences: [{apiVersion: example.com/v1, kind: Pair, name: pair, controller: true, uid: u}]}
  spec: {replicas: 1, template: {metadata: {labels: {llm-d.ai/role: %s}}}}`, name, role)
	}
	pair := object(t, va, "a", "pair", "spec|scaleTargetRef", "{apiVersion: example.com/v1, kind: Pair, name: pair}")
	read := func(s scale.Scale) sources.Params {
		return sources.Params{Scale: func(string, snapshot.Target) (*scale.Scale, error) { return &s, nil }}
	}
	got := collect(t, read(scale.Scale{Replicas: 1}), append(parse(t, built("p", "prefill")+built("d", "decode")), pair)...)
	assert.Equal(t, map[string]string{"a": " UnsupportedRole"}, rolesOf(got))
	assert.Contains(t, got.Groups[0].Variants[0].Problem.Message, `Pair pair has pods of the roles "decode" and "prefill"`)

	one := scale.Scale{Replicas: 1}
	one.Selector = labels.SelectorFromSet(labels.Set{"llm-d.ai/role": "prefill"})
	got = collect(t, read(one), append(parse(t, built("p", "prefill")+built("d", "decode")), pair)...)
	assert.Equal(t, map[string]string{"a": "prefill"}, rolesOf(got), "the selector of the scale selects one role")
}
