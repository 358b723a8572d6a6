package settings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	premium = `name: Premium
priority: 1
data:
- {model: default/default, slo-tpot: 24, slo-ttft: 500}
- {model: meta/llama0-70b, slo-tpot: 80, slo-ttft: 500}
- {namespace: prod, model: meta/llama0-70b, slo-tpot: 40, slo-ttft: 250}
- {namespace: prod, model: default/default, slo-tpot: 30, slo-ttft: 300}
`
	freemium = `name: Freemium
priority: 10
data:
- {model: ibm/granite-13b, slo-tpot: 200, slo-ttft: 2000}
- {model: meta/llama0-7b, slo-tpot: 150, slo-ttft: 1500}
- {namespace: test, model: meta/llama0-70b, slo-tpot: 300, slo-ttft: 3000}
`
)

func TestClassLookup(t *testing.T) {
	t.Parallel()
	s, w := build(Classes, map[string]string{"premium.yaml": premium, "freemium.yaml": freemium, "empty.yaml": "name: Empty"})
	require.Empty(t, w)
	tests := []struct {
		name, namespace, model, key string
		want                        string // class, priority and targets
		note                        string
	}{
		{name: "namespace and model", namespace: "prod", model: "meta/llama0-70b", want: "premium.yaml Premium 1 [250 40]"},
		{name: "namespace and model in another class", namespace: "test", model: "meta/llama0-70b", want: "freemium.yaml Freemium 10 [3000 300]"},
		{name: "model", namespace: "dev", model: "meta/llama0-70b", want: "premium.yaml Premium 1 [500 80]"},
		{name: "model before the default of the namespace", namespace: "prod", model: "ibm/granite-13b", want: "freemium.yaml Freemium 10 [2000 200]"},
		{name: "default of the namespace", namespace: "prod", model: "other", want: "premium.yaml Premium 1 [300 30]"},
		{name: "default", namespace: "dev", model: "other", want: "premium.yaml Premium 1 [500 24]"},
		{name: "names are exact", namespace: "dev", model: "Meta/llama0-70b", want: "premium.yaml Premium 1 [500 24]"},
		{name: "the class asked for", namespace: "prod", model: "meta/llama0-7b", key: "freemium.yaml", want: "freemium.yaml Freemium 10 [1500 150]"},
		{name: "the class asked for before others", namespace: "test", model: "meta/llama0-70b", key: "premium.yaml", want: "premium.yaml Premium 1 [500 80]"},
		{name: "the default of the class asked for", namespace: "dev", model: "ibm/granite-13b", key: "premium.yaml", want: "premium.yaml Premium 1 [500 24]"},
		{
			name: "the class asked for does not list the model", namespace: "dev", model: "meta/llama0-70b", key: "freemium.yaml", want: "premium.yaml Premium 1 [500 80]",
			note: `service class "freemium.yaml", which the variant asks for, does not list the model: "premium.yaml" is in force`,
		},
		{
			name: "the class asked for does not exist", namespace: "dev", model: "ibm/granite-13b", key: "premum.yaml", want: "freemium.yaml Freemium 10 [2000 200]",
			note: `service class "premum.yaml", which the variant asks for, does not exist: "freemium.yaml" is in force`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			class, problem := s.Class(tt.namespace, tt.model, tt.key)
			require.Nil(t, problem)
			assert.Equal(t, tt.want, fmt.Sprintf("%s %s %d %v", class.Key, class.Name, class.Priority, []float64{class.Targets.TTFT, class.Targets.ITL}))
			assert.Equal(t, tt.note, class.Note)
		})
	}
	fewer, _ := build(Classes, map[string]string{"freemium.yaml": freemium})
	_, problem := fewer.Class("dev", "other", "")
	require.NotNil(t, problem)
	assert.Equal(t, snapshot.Problem{
		Reason: "NoServiceClass", Message: `no service class lists model "other" in namespace "dev": add it to a class, or add default/default`,
	}, *problem)
}

func TestClassesThatDisagree(t *testing.T) {
	t.Parallel()
	one := func(priority int, item string) string {
		return fmt.Sprintf("priority: %d\ndata: [{%s}]", priority, item)
	}
	tests := []struct {
		name, a, b string
		key, want  string // class
		targets    snapshot.Targets
		conflict   bool
	}{
		{name: "targets", a: one(1, "model: m, slo-ttft: 1"), b: one(1, "model: m, slo-ttft: 2"), want: "a.yaml", targets: snapshot.Targets{TTFT: 1}, conflict: true},
		{name: "one of each", a: one(1, "model: m, slo-ttft: 3"), b: one(1, "model: m, slo-tpot: 2"), want: "a.yaml", targets: snapshot.Targets{TTFT: 3, ITL: 2}, conflict: true},
		{name: "parts of both", a: one(1, "model: m, slo-ttft: 3, slo-ttft-per-token: 2"), b: one(1, "model: m, slo-ttft: 4, slo-ttft-per-token: 1"), want: "a.yaml",
			targets: snapshot.Targets{TTFT: 3, TTFTPerToken: 1}, conflict: true},
		{name: "no part in common", a: one(1, "model: m, slo-ttft-per-token: 2"), b: one(1, "model: m, slo-ttft: 4"), want: "a.yaml", targets: snapshot.Targets{TTFTPerToken: 2}, conflict: true},
		{name: "priority", a: one(2, "model: m, slo-ttft: 1"), b: one(1, "model: m, slo-ttft: 1"), want: "a.yaml", targets: snapshot.Targets{TTFT: 1}, conflict: true},
		{name: "they agree", a: one(1, "model: m, slo-ttft: 1"), b: one(1, "model: m, slo-ttft: 1"), want: "a.yaml", targets: snapshot.Targets{TTFT: 1}},
		{name: "for one namespace", a: one(1, "namespace: ns, model: m, slo-ttft: 2"), b: one(1, "namespace: ns, model: m, slo-ttft: 1"), want: "a.yaml", targets: snapshot.Targets{TTFT: 1}, conflict: true},
		{name: "for another namespace", a: one(1, "namespace: x, model: m, slo-ttft: 1"), b: one(1, "model: m, slo-ttft: 2"), want: "b.yaml", targets: snapshot.Targets{TTFT: 2}},
		{name: "the namespace is more precise", a: one(1, "model: m, slo-ttft: 1"), b: one(1, "namespace: ns, model: m, slo-ttft: 2"), want: "b.yaml", targets: snapshot.Targets{TTFT: 2}},
		{name: "the variant says which", a: one(1, "model: m, slo-ttft: 1"), b: one(1, "model: m, slo-ttft: 2"), key: "b.yaml", want: "b.yaml", targets: snapshot.Targets{TTFT: 2}},
		{name: "defaults", a: one(1, "model: default/default, slo-ttft: 2"), b: one(1, "model: default/default, slo-ttft: 1"), want: "a.yaml", targets: snapshot.Targets{TTFT: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := build(Classes, map[string]string{"a.yaml": tt.a, "b.yaml": tt.b})
			class, problem := s.Class("ns", "m", tt.key)
			require.Nil(t, problem)
			assert.Equal(t, tt.want, class.Key)
			assert.Equal(t, 1, class.Priority)
			assert.Equal(t, tt.targets, class.Targets)
			if tt.conflict {
				assert.Len(t, w, 1)
				assert.Contains(t, class.Note, `service classes "a.yaml" and "b.yaml" disagree about model "m"`)
				assert.Contains(t, class.Note, "the stricter targets and the better priority are in force; remove it from one of them, or set sloClassRef.key")
			} else {
				assert.NotContains(t, class.Note, "disagree")
			}
		})
	}
}

func TestBadClasses(t *testing.T) {
	t.Parallel()
	s, w := build(Classes, map[string]string{
		"a-syntax.yaml": "name: [", "b-list.yaml": "- a", "c-nan.yaml": "data: [{model: n, slo-ttft: .nan}]",
		"d-priority.yaml": "priority: 0\ndata: [{model: d, slo-ttft: 1}]", "e-priority.yaml": "priority: 101\ndata: [{model: e, slo-ttft: 1}]",
		"f-priority.yaml": "priority: high\ndata: [{model: f, slo-ttft: 1}]", "g-priority": "data: [{model: g, slo-ttft: 1}]", "h.yml": "priority: 100\ndata: [{model: h, slo-tpot: 1.5}]",
	})
	assertWarnings(t, []string{
		`key "a-syntax.yaml": ignored: line 1, column 1: it is not YAML: `, `key "b-list.yaml": ignored: line 1, column 1: a list has no fields`, `key "c-nan.yaml": ignored data[0]: line 1, column 29: data[0].slo-ttft: ".nan" is out of range`,
		`key "d-priority.yaml": the priority "0" is not a whole number from 1 to 100: 100 is in force`, `key "e-priority.yaml": the priority "101"`,
		`key "f-priority.yaml": the priority "high"`,
	}, w)
	for model, want := range map[string]string{"d": "d-priority", "e": "e-priority", "f": "f-priority", "g": "g-priority", "h": "h"} {
		class, problem := s.Class("", model, "")
		require.Nil(t, problem, model)
		assert.Equal(t, 100, class.Priority, model)
		assert.Equal(t, want, class.Name, "a class without a name has that of its key")
	}
	_, problem := s.Class("", "n", "")
	assert.NotNil(t, problem)

	s, w = build(Classes, map[string]string{"a.yaml": `name: A
data:
- {model: good, slo-ttft: 500, slo-tpot: 20, slo-tps: 5}
- {slo-ttft: 500}
- {model: negative, slo-ttft: -1}
- {model: none}
- {model: huge, slo-ttft: 1e30}
- {model: text, slo-ttft: soon}
- [a]
- {model: good, slo-ttft: 501}
- {model: day, slo-ttft: 86400000}
`})
	assertWarnings(t, []string{
		`key "a.yaml": ignored data[0].slo-tps: slo-tpot is the time for a token`, `key "a.yaml": ignored data[1]: it has no model`,
		`key "a.yaml": ignored data[2]: set slo-ttft, slo-ttft-per-token or slo-tpot to milliseconds`, `key "a.yaml": ignored data[3]: set slo-ttft`, `key "a.yaml": ignored data[4]: set slo-ttft`,
		`key "a.yaml": ignored data[5]: line 8, column 27: data[5].slo-ttft: "soon" is not a number`, `key "a.yaml": ignored data[6]: line 9, column 3: data[6]: a list has no fields`,
		`key "a.yaml": ignored data[7]: model "good" is listed before`,
	}, w)
	for model, found := range map[string]bool{"good": true, "day": true, "negative": false, "none": false, "huge": false, "text": false} {
		_, problem := s.Class("ns", model, "a.yaml")
		assert.Equal(t, found, problem == nil, model)
	}
}

// A lookup that scanned all classes would take 10^8 steps for as many models.
func TestManyClassesOfOneModel(t *testing.T) {
	t.Parallel()
	data := map[string]string{}
	for i := range 5000 {
		data[fmt.Sprintf("class-%04d", i)] = fmt.Sprintf("data: [{model: m, slo-ttft: %d}]", i+1)
	}
	s, _ := build(Classes, data)
	class, problem := s.Class("ns", "m", "")
	require.Nil(t, problem)
	assert.Len(t, s.classes.byModel, 1)
	assert.Contains(t, class.Note, `"class-0000" and "class-0001" disagree`)
	assert.InDelta(t, 1, class.Targets.TTFT, 0)
	assert.Less(t, len(strings.Join(sortedKeys(data), "")), 1<<20)
}

// TestClassesThatListTheDefault: the class that is in force says that another one of its ConfigMap lists default/default, too.
func TestClassesThatListTheDefault(t *testing.T) {
	t.Parallel()
	s, w := build(Classes, map[string]string{
		"default.yaml": "data: [{model: default/default, slo-ttft: 2000}]", "premium.yaml": "data: [{model: default/default, slo-ttft: 500}]",
	})
	require.Len(t, w, 1)
	class, problem := s.Class("a", "m", "")
	require.Nil(t, problem)
	assert.Equal(t, "default.yaml", class.Key)
	assert.Equal(t, `service class "premium.yaml" lists model "default/default", too, with other targets or another priority: "default.yaml" is in force`, class.Note)
	class, problem = s.Class("a", "m", "premium.yaml")
	require.Nil(t, problem)
	assert.Equal(t, "premium.yaml", class.Key)
	assert.Empty(t, class.Note, "the variant asks for it")
}

// TestTargetsInPlainWords: what is wrong with targets is named, also beside what has no effect.
func TestTargetsInPlainWords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       []string
	}{
		{"a target that has no effect", "data: [{model: m, slo-tps: 30}]", []string{
			`key "c": ignored data[0].slo-tps: slo-tpot is the time for a token; it can be removed`,
			`key "c": ignored data[0]: set slo-ttft, slo-ttft-per-token or slo-tpot to milliseconds, more than 0 and at most 86400000`,
		}},
		{"two names of a target", "data: [{model: m, slo-itl: 30, slo-tpot: 24}]", []string{
			`key "c": data[0] has slo-tpot and slo-itl, which mean the same: slo-tpot is in force; remove one of them`,
		}},
		{"no number", "data: [{model: m, slo-ttft: .nan}]", []string{
			`key "c": ignored data[0]: line 1, column 29: data[0].slo-ttft: ".nan" is out of range`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, w := range NewBuilder(Options{}).SetSources(Classes, Source{Name: "c", Data: map[string]string{"c": tt.give}}) {
				got = append(got, w.String())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, bounds string
		want         snapshot.Ratio
		warns        bool
	}{
		{name: "both", bounds: "min-prefill-per-decode: 0.5, max-prefill-per-decode: 4", want: snapshot.Ratio{Min: 0.5, Max: 4}},
		{name: "one", bounds: "max-prefill-per-decode: 0.001", want: snapshot.Ratio{Max: 0.001}},
		{name: "equal", bounds: "min-prefill-per-decode: 2, max-prefill-per-decode: 2", want: snapshot.Ratio{Min: 2, Max: 2}},
		{name: "none", bounds: "min-prefill-per-decode: 0"},
		{name: "the wrong way round", bounds: "min-prefill-per-decode: 4, max-prefill-per-decode: 0.5", warns: true},
		{name: "too large", bounds: "min-prefill-per-decode: 1001", warns: true},
		{name: "too small", bounds: "max-prefill-per-decode: 0.0009", warns: true},
		{name: "negative", bounds: "min-prefill-per-decode: -1", warns: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := build(Classes, map[string]string{"c": "data: [{model: m, slo-ttft: 500, " + tt.bounds + "}]"})
			class, problem := s.Class("ns", "m", "")
			require.Nil(t, problem)
			assert.Equal(t, tt.want, class.Ratio)
			assert.InDelta(t, 500, class.Targets.TTFT, 0, "the targets stay")
			if !tt.warns {
				assert.Empty(t, w)
				return
			}
			require.Len(t, w, 1)
			assert.Equal(t, ReasonInvalid, w[0].Reason)
			assert.Contains(t, w[0].Message, "ignored min-prefill-per-decode and max-prefill-per-decode of data[0]: set")
		})
	}
}

func TestRatiosOfTwoClasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		one, other string
		want       snapshot.Ratio
	}{
		{"", ", max-prefill-per-decode: 2", snapshot.Ratio{Max: 2}},
		{", min-prefill-per-decode: 1, max-prefill-per-decode: 8", ", min-prefill-per-decode: 0.5, max-prefill-per-decode: 4", snapshot.Ratio{Min: 1, Max: 4}},
		{", min-prefill-per-decode: 3", ", max-prefill-per-decode: 2", snapshot.Ratio{Min: 2, Max: 2}},
	} {
		s, w := build(Classes, map[string]string{"a": "data: [{model: m, slo-ttft: 500" + tt.one + "}]", "b": "data: [{model: m, slo-ttft: 500" + tt.other + "}]"})
		assert.Len(t, w, 1, "they disagree")
		class, problem := s.Class("ns", "m", "")
		require.Nil(t, problem)
		assert.Equal(t, tt.want, class.Ratio)
	}
}
