package settings

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	s, w := build(Limits, map[string]string{
		"a100": "accelerator: A100\ncards: 64", "free-tier": "priority: 100\naccelerator: A100\ncards: 0",
		"team-a": "namespace: team-a\nreplicas: 20\ncost: 1000.5\nvariants: 50", "budget": "cost: \"99999.99\"",
		"each": "namespace: \"*\"\nreplicas: 10\ncards: 8\nvariants: 5",
	})
	require.Empty(t, w)
	each := func(namespace string, unit snapshot.Unit, amount int64) snapshot.Limit {
		return snapshot.Limit{Name: "each", Unit: unit, Namespace: namespace, Amount: amount}
	}
	assert.Equal(t, []snapshot.Limit{
		{Name: "a100", Unit: snapshot.Cards, Accelerator: "A100", Amount: 64},
		{Name: "free-tier", Unit: snapshot.Cards, Accelerator: "A100", Priority: 100},
		{Name: "budget", Unit: snapshot.Cost, Amount: 99_999_990_000},
		each("team-a", snapshot.Cards, 8), each("team-b", snapshot.Cards, 8), each("team-b", snapshot.Replicas, 10),
		{Name: "team-a", Unit: snapshot.Cost, Namespace: "team-a", Amount: 1_000_500_000},
		{Name: "team-a", Unit: snapshot.Replicas, Namespace: "team-a", Amount: 20},
	}, s.Limits([]string{"team-b", "team-a", "team-b"}))
	assert.Len(t, s.Limits(nil), 3, "those of no namespace")
	assert.Equal(t, 50, s.MaxVariants("team-a"))
	assert.Equal(t, 5, s.MaxVariants("team-b"))
}

func TestBadLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cards: 8O":                              `this limit is invalid: line 1, column 8: cards: "8O" is not a whole number`,
		"cards: -1":                              "this limit is invalid: line 1, column 8: cards: -1 is not from 0 to 1000000000",
		"replicas: 1000000001":                   "this limit is invalid: line 1, column 11: replicas: 1000000001 is not from 0 to 1000000000",
		"cards: 1.5":                             `this limit is invalid: line 1, column 8: cards: "1.5" is not a whole number`,
		"cards: 1e30":                            `this limit is invalid: line 1, column 8: cards: "1e30" is out of range`,
		"cost: -5":                               `this limit is invalid: line 1, column 7: cost: "-5" is not a decimal number`,
		"cost: 1e30":                             `this limit is invalid: line 1, column 7: cost: "1000000000000000000000000000000" is too large`,
		"namespace: a":                           "this limit is invalid: line 1, column 1: it has none of cards, replicas, cost and variants",
		"":                                       "this limit is invalid: it has none",
		"priority: 0\ncards: 1":                  "this limit is invalid: line 1, column 11: priority: 0 is not from 1 to 100",
		"priority: 101\ncards: 1":                "this limit is invalid: line 1, column 11: priority: 101 is not from",
		"variants: 5":                            "this limit is invalid: line 1, column 11: variants: a number of variants is for a namespace",
		"namespace: a\npriority: 5\nvariants: 5": "this limit is invalid: line 3, column 11: variants: a number of variants is for a namespace",
		"namespace: a\nvariants: -5":             "this limit is invalid: line 2, column 11: variants: -5 is not from 0",
		"cards: 8\nacelerator: A100":             `this limit is invalid: line 2, column 1: acelerator: unknown field: did you mean "accelerator"?`,
		"cards: [":                               "this limit is invalid: line 1, column 1: it is not YAML: ",
	} {
		s, w := build(Limits, map[string]string{"bad": text, "good": "cards: 5"})
		assertWarnings(t, []string{`key "bad": ` + want}, w)
		assert.Equal(t, []snapshot.Limit{{Name: "good", Unit: snapshot.Cards, Amount: 5}}, s.Limits([]string{"a"}))
		assert.Equal(t, DefaultMaxVariants, s.MaxVariants("a"))
	}
}

func TestTheLowerLimitCounts(t *testing.T) {
	t.Parallel()
	s, w := build(Limits, map[string]string{"a": "namespace: x\ncards: 5\nvariants: 3", "b": "namespace: x\ncards: 4\nvariants: 2", "c": "namespace: x\ncards: 6\nvariants: 4"})
	assertWarnings(t, []string{`key "b": "a" limits the same cards: the lower one is in force`, `key "c": "b" limits the same cards`}, w)
	assert.Equal(t, []snapshot.Limit{{Name: "b", Unit: snapshot.Cards, Namespace: "x", Amount: 4}}, s.Limits([]string{"x"}))
	assert.Equal(t, 2, s.MaxVariants("x"))
}

func TestATypingErrorDoesNotRemoveALimit(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Options{})
	b.SetSources(Limits, Source{Name: "l", Data: map[string]string{"a": "namespace: x\ncards: 5\nvariants: 3", "b": "replicas: 7"}})
	for range 2 { // it stays in force through further edits
		w := b.SetSources(Limits, Source{Name: "l", Data: map[string]string{"a": "namespace: x\ncards: 5O", "b": "replicas: 8"}})
		assertWarnings(t, []string{`key "a": this limit is invalid`, `key "a": the last valid limit of this key stays in force`}, w)
		assert.Equal(t, []snapshot.Limit{
			{Name: "b", Unit: snapshot.Replicas, Amount: 8}, {Name: "a", Unit: snapshot.Cards, Namespace: "x", Amount: 5},
		}, b.Settings().Limits([]string{"x"}))
		assert.Equal(t, 3, b.Settings().MaxVariants("x"))
	}
	assert.Empty(t, b.SetSources(Limits, Source{Name: "l", Data: map[string]string{"b": "replicas: 8"}}))
	assert.Len(t, b.Settings().Limits([]string{"x"}), 1, "the key was removed")
	assert.Empty(t, b.SetSources(Limits))
	assert.Empty(t, b.Settings().Limits([]string{"x"}), "the ConfigMap was deleted")
}

func TestTheNumberOfLimitsIsBounded(t *testing.T) {
	t.Parallel()
	data := map[string]string{}
	for i := range 600 {
		data[fmt.Sprintf("limit-%03d", i)] = fmt.Sprintf("priority: %d\naccelerator: acc-%d\ncards: 1", i%100+1, i)
	}
	for i := range 12 {
		data[fmt.Sprintf("each-%02d", i)] = fmt.Sprintf("namespace: \"*\"\naccelerator: acc-%d\ncards: 1", i)
	}
	s, w := build(Limits, data)
	require.Len(t, w, maxWarnings+1)
	assert.Equal(t, `key "each-10": this limit is not in force: at most 500 limits are possible, and 10 of namespace "*"; remove some`, w[0].String())
	assert.Equal(t, "102 more problems: repair these to see them", w[0+maxWarnings].Message[:len("102 more problems: repair these to see them")])
	assert.Len(t, s.Limits(nil), 490)
	assert.Len(t, s.Limits([]string{"a", "b"}), 490+20)
}
