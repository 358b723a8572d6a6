package nodepool

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func (p *Pool) names() []string { return slices.Sorted(maps.Keys(p.Members())) }

func TestAnEmptyPoolKeepsItsLastMembers(t *testing.T) {
	t.Parallel()
	p := New(zap.NewNop())
	require.ErrorIs(t, p.CheckReady(), ErrUnknown)
	p.ReplaceMembers(nil)
	require.ErrorIs(t, p.CheckReady(), ErrUnknown)

	p.UpdateMembership(map[string]bool{"a": true, "b": true, "c": false})
	require.NoError(t, p.CheckReady())
	before := p.Members()
	assert.Equal(t, []string{"a", "b"}, p.names())

	p.UpdateMembership(map[string]bool{"a": false, "b": false})
	assert.Equal(t, []string{"a", "b"}, p.names())

	p.ReplaceMembers([]string{"c", "c"})
	assert.Equal(t, []string{"c"}, p.names())
	assert.Equal(t, []string{"a", "b"}, slices.Sorted(maps.Keys(before)), "a set changed after it was returned")
}

func TestRunReportsChangedNodesOnce(t *testing.T) {
	t.Parallel()
	p := New(zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := make(chan []string, 8)
	p.ReplaceMembers([]string{"a", "b"})
	p.UpdateMembership(map[string]bool{"c": true, "x": false})
	go p.Run(ctx, func(nodes []string) { reports <- slices.Sorted(slices.Values(nodes)) })
	assert.Equal(t, []string{"a", "b", "c"}, <-reports)
	p.UpdateMembership(map[string]bool{"b": true}) // is a member
	p.ReplaceMembers([]string{"a", "c"})
	assert.Equal(t, []string{"b"}, <-reports)
}
