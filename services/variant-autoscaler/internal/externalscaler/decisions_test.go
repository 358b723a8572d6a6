package externalscaler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func variant(namespace, name string, replicas int) decision.ActedVariant {
	return decision.ActedVariant{
		Variant: snapshot.Variant{
			Namespace: namespace, Name: name, Source: snapshot.ScaledObject,
			Target: snapshot.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: name + "-decode"},
		},
		Desired: replicas,
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	declared := variant("a", "llama-h100", 5)
	declared.Source = snapshot.VariantAutoscaling
	sameName := variant("a", "chat", 8) // a VariantAutoscaling with the name of a ScaledObject
	sameName.Source = snapshot.VariantAutoscaling
	sameName.Target.Name = "other"
	set := variant("a", "llama-set", 6)
	set.Target = snapshot.Target{Kind: "StatefulSet", Name: "llama-h100-decode"}
	loser := variant("a", "loser", 9)
	loser.Resolution = decision.Suppressed
	named := variant("a", "qwen", 11) // by the metadata of the trigger of a ScaledObject
	named.ObjectName, named.Target.Name = "qwen-so", "qwen"
	table := NewTable()
	table.Publish([]decision.ActedVariant{named, sameName, declared, set, loser, variant("a", "chat", 3), variant("b", "chat", 7)})

	tests := []struct {
		name  string
		query Query
		want  int
	}{
		{name: "the ScaledObject is a variant", query: Query{ScaledObject: "chat"}, want: 3},
		{name: "the ScaledObject has the name of a variant", query: Query{ScaledObject: "llama-h100"}, want: 5},
		{name: "the ScaledObject has the name of a target", query: Query{ScaledObject: "chat-decode"}, want: 3},
		{name: "the ScaledObject declares a variant of another name", query: Query{ScaledObject: "qwen-so"}, want: 11},
		{name: "and its metadata names it", query: Query{ScaledObject: "qwen-so", Variant: "qwen"}, want: 11},
		{name: "the metadata names a variant", query: Query{ScaledObject: "chat", Variant: "llama-h100"}, want: 5},
		{name: "the metadata names a target", query: Query{ScaledObject: "chat", TargetName: "llama-h100-decode"}, want: 5},
		{name: "the metadata names a target and its kind", query: Query{ScaledObject: "chat", TargetName: "llama-h100-decode", TargetKind: "StatefulSet"}, want: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.query.Namespace = "a"
			got, err := table.Lookup(tt.query)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	other, err := table.Lookup(Query{Namespace: "b", ScaledObject: "chat"})
	require.NoError(t, err)
	assert.Equal(t, 7, other)
	for _, q := range []Query{
		{},
		{Namespace: "a"},
		{Namespace: "a", ScaledObject: "none"},
		{Namespace: "a", ScaledObject: "loser"},
		{Namespace: "b", ScaledObject: "llama-h100"},
		{Namespace: "b", ScaledObject: "chat", Variant: "llama-h100"},
		{Namespace: "b", ScaledObject: "chat", TargetName: "llama-h100-decode"},
		{Namespace: "a", ScaledObject: "chat", Variant: "none"},
		{Namespace: "a", ScaledObject: "chat", TargetName: "chat-decode", TargetKind: "StatefulSet"},
	} {
		_, err := table.Lookup(q)
		assert.ErrorIs(t, err, ErrUnknown, "%+v", q)
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	table := NewTable()
	q := Query{Namespace: "a", ScaledObject: "chat"}
	_, err := table.Lookup(q)
	require.ErrorIs(t, err, ErrNotLeading)
	leading, began := table.Watch()
	assert.False(t, leading)

	table.EndTerm()
	_, same := table.Watch()
	assert.Equal(t, began, same, "nothing has changed")
	table.Publish(nil)
	<-began
	leading, ended := table.Watch()
	assert.True(t, leading, "a decision on no variants is one")
	_, err = table.Lookup(q)
	require.ErrorIs(t, err, ErrUnknown)

	table.EndTerm()
	<-ended
	_, err = table.Lookup(q)
	require.ErrorIs(t, err, ErrNotLeading)
}
