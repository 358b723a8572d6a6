package decision

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestHugeMinimumsAreNoError: a tenant may ask for more pods, with more cards, than any cluster has. Others are planned.
func TestHugeMinimumsAreNoError(t *testing.T) {
	t.Parallel()
	s := &snapshot.Snapshot{
		Time: noon, Nodes: []snapshot.NodeSet{{Name: "n", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: 8, Nodes: 1}}}},
		Quotas:   []snapshot.Quota{{Name: "q", Parent: -1, Nominal: 8}},
		Settings: snapshot.Settings{Split: "capacity"},
	}
	add := func(least int, pods snapshot.Pods) {
		g := snapshot.Group{Namespace: "a", Model: fmt.Sprint(len(s.Groups)), Priority: 1}
		g.Variants = []snapshot.Variant{{Namespace: "a", Name: g.Model, Cards: 1, Min: least, Pods: &pods}}
		s.Groups = append(s.Groups, g)
	}
	add(0, snapshot.Pods{Cards: 1, Count: 1, Quotas: []int{0}})
	for range 100 {
		add(optimizer.MaxReplicas, snapshot.Pods{Cards: 1e7, Count: 1e7, Quotas: []int{0}})
	}
	got, err := Decide(s)
	require.NoError(t, err)
	assert.Len(t, got.Groups, 101)
}
