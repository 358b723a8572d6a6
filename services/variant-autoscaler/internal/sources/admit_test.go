package sources

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestFairLevel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		counts map[string]int
		want   int
	}{
		{nil, 10},
		{map[string]int{"a": 10}, 10},
		{map[string]int{"a": 11}, 10},
		{map[string]int{"a": 1, "b": 20}, 9},
		{map[string]int{"a": 4, "b": 4, "c": 4}, 3},
		{map[string]int{"a": 1, "b": 6, "c": 7}, 4},
		{map[string]int{"a": 0, "b": 10}, 10},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, fairLevel(slices.Collect(maps.Values(tt.counts)), 10), tt.counts)
	}
}

// TestAllNamespacesTogether: a namespace with few variants loses none to those with many.
func TestAllNamespacesTogether(t *testing.T) {
	t.Parallel()
	variants := func(namespaces, each int) []*Variant {
		var all []*Variant
		for n := range namespaces {
			for i := range each {
				name := fmt.Sprint("v", i)
				all = append(all, &Variant{
					Variant: snapshot.Variant{Namespace: fmt.Sprint("ns", n), Name: name, Target: snapshot.Target{Kind: "Deployment", Name: name}},
					Created: time.Unix(int64(i), 0),
				})
			}
		}
		return all
	}
	admitted := func(all []*Variant) map[string]int {
		counts := map[string]int{}
		for _, v := range admitVariants(all, func(string) int { return 1000 }) {
			if v.Problem == nil {
				counts[v.Namespace]++
				counts[""]++
			} else {
				assert.Equal(t, snapshot.LimitExceeded, v.Problem.Reason)
			}
		}
		return counts
	}
	small := &Variant{
		Variant: snapshot.Variant{Namespace: "small", Name: "new", Target: snapshot.Target{Kind: "Deployment", Name: "new"}}, Created: time.Unix(1e6, 0),
	}
	got := admitted(append(variants(15, 800), small))
	assert.Equal(t, 1, got["small"], "it is the newest of all")
	assert.Equal(t, 666, got["ns0"])
	assert.Equal(t, 15*666+1, got[""])

	got = admitted(variants(optimizer.MaxVariants+5, 1))
	assert.Equal(t, optimizer.MaxVariants, got[""], "more namespaces than variants are possible")
	assert.Equal(t, 1000, admitted(variants(1, 1100))[""])
}
