package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadObjective(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spec  string
		want  *Objective
		error string
	}{
		{name: "priority", spec: `{"poolRef": {"name": "pool"}, "priority": 7}`, want: &Objective{Name: "o", Priority: 7}},
		{name: "sheddable", spec: `{"poolRef": {"name": "pool"}, "priority": -2147483648}`, want: &Objective{Name: "o", Priority: -2147483648}},
		{name: "none", spec: `{"poolRef": {"name": "pool"}}`, want: &Objective{Name: "o"}},
		{name: "null", spec: `{"poolRef": {"name": "pool"}, "priority": null}`, want: &Objective{Name: "o"}},
		{name: "whole reference", spec: `{"poolRef": {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"}}`, want: &Objective{Name: "o"}},
		{name: "group that llm-d's CRD fills in", spec: `{"poolRef": {"group": "llm-d.ai", "kind": "InferencePool", "name": "pool"}}`, want: &Objective{Name: "o"}},
		{name: "fields of the future", spec: `{"poolRef": {"name": "pool", "port": 1}, "priority": 1, "deadline": "1s"}`, want: &Objective{Name: "o", Priority: 1}},
		{name: "another pool", spec: `{"poolRef": {"name": "other"}}`},
		{name: "a pool of the old group", spec: `{"poolRef": {"group": "inference.networking.x-k8s.io", "name": "pool"}}`},
		{name: "a Service", spec: `{"poolRef": {"kind": "Service", "name": "pool"}}`},
		{name: "no spec", error: "spec is missing"},
		{name: "no reference", spec: `{"priority": 1}`, error: "spec.poolRef.name is missing"},
		{name: "a word", spec: `{"poolRef": {"name": "pool"}, "priority": "high"}`, error: "spec.priority is wrong (string): give a whole number from -2147483648 to 2147483647"},
		{name: "too large", spec: `{"poolRef": {"name": "pool"}, "priority": 2147483648}`, error: "spec.priority is wrong (number 2147483648): give a whole number from -2147483648 to 2147483647"},
		{name: "a fraction", spec: `{"poolRef": {"name": "pool"}, "priority": 1.5}`, error: "spec.priority is wrong (number 1.5): give a whole number from -2147483648 to 2147483647"},
		{name: "reference by name alone", spec: `{"poolRef": "pool"}`, error: "spec.poolRef is wrong (string): give a mapping"},
		{name: "no JSON", spec: `{`, error: "spec cannot be read: unexpected end of JSON input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got *Objective
			o := RuleObject{Name: "o", Spec: []byte(tt.spec)}
			pool, err := ReferencedPool(o)
			if err == nil && pool == "pool" {
				got, err = ReadObjective(o)
			}
			if tt.error != "" {
				require.EqualError(t, err, tt.error)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestReadRewrite(t *testing.T) {
	t.Parallel()
	const ours = `"poolRef": {"name": "pool"}, `
	tests := []struct {
		name  string
		spec  string
		want  []Rule
		note  string
		error string
	}{
		{
			name: "weights", spec: `{` + ours + `"rules": [{"matches": [{"model": {"type": "Exact", "value": "a"}}, {"model": {"value": "b"}}],
				"targets": [{"modelRewrite": "x", "weight": 90}, {"modelRewrite": "y", "weight": 10}]}]}`,
			want: []Rule{{Models: []string{"a", "b"}, Targets: []RewriteTarget{{"x", 90}, {"y", 10}}}},
		},
		{
			name: "no weights", spec: `{` + ours + `"rules": [{"targets": [{"modelRewrite": "x"}, {"modelRewrite": "y"}]}]}`,
			want: []Rule{{Targets: []RewriteTarget{{"x", 1}, {"y", 1}}}},
		},
		{
			name: "some weights", spec: `{` + ours + `"rules": [{"targets": [{"modelRewrite": "z"}]}, {"targets": [{"modelRewrite": "x", "weight": 3}, {"modelRewrite": "y"}]}]}`,
			want: []Rule{{Targets: []RewriteTarget{{"z", 1}}}, {Targets: []RewriteTarget{{"x", 3}, {"y", 1}}}},
			note: "spec.rules[1].targets: some have no weight, they count as 1",
		},
		{
			name: "weight 0", spec: `{` + ours + `"rules": [{"matches": [], "targets": [{"modelRewrite": "x", "weight": 0}, {"modelRewrite": "y", "weight": 5}]}]}`,
			want: []Rule{{Targets: []RewriteTarget{{"x", 0}, {"y", 5}}}},
		},
		{name: "no rules", spec: `{` + ours + `"rules": []}`},
		{name: "another pool's, whatever is in it", spec: `{"poolRef": {"name": "other"}, "rules": [{"targets": []}]}`},
		{name: "no targets", spec: `{` + ours + `"rules": [{"targets": []}]}`, error: "spec.rules[0].targets is empty"},
		{name: "no target model", spec: `{` + ours + `"rules": [{"targets": [{"weight": 1}]}]}`, error: "spec.rules[0].targets[0].modelRewrite is missing"},
		{name: "negative weight", spec: `{` + ours + `"rules": [{"targets": [{"modelRewrite": "x", "weight": -1}]}]}`, error: "spec.rules[0].targets[0].weight -1 is negative"},
		{name: "a weight that is text", spec: `{` + ours + `"rules": [{"targets": [{"modelRewrite": "x", "weight": "90%"}]}]}`, error: "spec.rules.targets.weight is wrong (string): give a whole number from -2147483648 to 2147483647"},
		{name: "a match that says nothing is no match of everything", spec: `{` + ours + `"rules": [{"matches": [{}], "targets": [{"modelRewrite": "x"}]}]}`, error: "spec.rules[0].matches[0].model.value is missing"},
		{name: "a match of an empty name", spec: `{` + ours + `"rules": [{"matches": [{"model": {"value": ""}}], "targets": [{"modelRewrite": "x"}]}]}`, error: "spec.rules[0].matches[0].model.value is missing"},
		{name: "a type of the future", spec: `{` + ours + `"rules": [{"targets": [{"modelRewrite": "x"}]}, {"matches": [{"model": {"type": "Prefix", "value": "a"}}], "targets": [{"modelRewrite": "x"}]}]}`, error: `spec.rules[1].matches[0].model.type "Prefix" is not Exact`},
		{name: "rules that are a mapping", spec: `{` + ours + `"rules": {}}`, error: "spec.rules is wrong (object): give a list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got *RewriteObject
			var note string
			o := RuleObject{Name: "r", Created: rulesStart, Spec: []byte(tt.spec)}
			pool, err := ReferencedPool(o)
			if err == nil && pool == "pool" {
				got, note, err = ReadRewrite(o)
			}
			assert.Equal(t, tt.note, note)
			if tt.error != "" {
				require.EqualError(t, err, tt.error)
				assert.Nil(t, got, "nothing of it holds")
				return
			}
			require.NoError(t, err)
			if got != nil {
				assert.Equal(t, &RewriteObject{Name: "r", Created: rulesStart, Rules: tt.want}, got)
			} else {
				assert.Contains(t, tt.name, "another pool")
			}
		})
	}
}

// FuzzReadRewrite checks that whatever an object says, it is refused or every model finds a target in it.
func FuzzReadRewrite(f *testing.F) {
	f.Add([]byte(`{"poolRef": {"name": "pool"}, "rules": [{"matches": [{"model": {"value": "a"}}], "targets": [{"modelRewrite": "x", "weight": 0}]}]}`), uint64(7))
	f.Add([]byte(`{"poolRef": {"name": "pool"}, "rules": [{"targets": [{"modelRewrite": "x", "weight": 2147483647}, {"modelRewrite": "y"}]}]}`), uint64(1<<63))
	f.Fuzz(func(t *testing.T, spec []byte, random uint64) {
		object, _, err := ReadRewrite(RuleObject{Name: "r", Spec: spec})
		if err != nil {
			require.Nil(t, object)
			return
		}
		if object == nil {
			return
		}
		s := CompileRules(nil, []RewriteObject{*object})
		for _, rule := range object.Rules {
			for _, model := range append(rule.Models, "no model of any rule") {
				got, found := s.PickRewrite(model, random)
				require.Equal(t, found, got.Target != "")
				require.True(t, found || len(rule.Models) > 0)
			}
		}
	})
}
