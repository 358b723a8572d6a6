package pools

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/ownership"
)

func candidateAt(name string, created int64, port int) candidate {
	c := candidate{Age: ownership.Age{Name: types.NamespacedName{Namespace: "ns", Name: name}, Created: time.Unix(created, 0)}}
	if port > 0 {
		c.address = address{namespace: "ns", service: "epp", port: port}
	}
	return c
}

func TestChoose(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		candidates []candidate
		served     []string
		refused    map[string]string
	}{
		{name: "none"},
		{name: "each with its address", candidates: []candidate{candidateAt("b", 1, 2), candidateAt("a", 2, 1)}, served: []string{"b", "a"}},
		{
			name: "the oldest has an address", candidates: []candidate{candidateAt("young", 2, 1), candidateAt("old", 1, 1)},
			served: []string{"old"}, refused: map[string]string{"young": shadowed},
		},
		{
			name: "of the same age", candidates: []candidate{candidateAt("b", 1, 1), candidateAt("a", 1, 1)},
			served: []string{"a"}, refused: map[string]string{"b": shadowed},
		},
		{name: "no address", candidates: []candidate{candidateAt("a", 1, 0)}, refused: map[string]string{"a": unaddressed}},
		{
			name:       "at most three, and shadowed pools do not count",
			candidates: []candidate{candidateAt("e", 5, 4), candidateAt("d", 4, 3), candidateAt("c", 3, 2), candidateAt("b", 2, 1), candidateAt("a", 1, 1)},
			served:     []string{"a", "c", "d"}, refused: map[string]string{"b": shadowed, "e": excess},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			served, refused := choosePools(tt.candidates, 3)
			var names []string
			for _, c := range served {
				names = append(names, c.Name.Name)
			}
			assert.Equal(t, tt.served, names)
			want := map[types.NamespacedName]string{}
			for name, reason := range tt.refused {
				want[types.NamespacedName{Namespace: "ns", Name: name}] = reason
			}
			assert.Equal(t, want, refused)
		})
	}
}

// TestChoose_NewPoolsTakeNothingFromOlderOnes adds the pools of a hostile tenant.
func TestChoose_NewPoolsTakeNothingFromOlderOnes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var candidates []candidate
		add := func(prefix string, created int64) {
			for i := range random.IntN(12) {
				candidates = append(candidates, candidateAt(fmt.Sprint(prefix, i), created+random.Int64N(10), random.IntN(8)))
			}
		}
		add("old", 0)
		before, _ := choosePools(candidates, 5)
		add("new", 10)
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		after, refused := choosePools(candidates, 5)
		assert.True(t, slices.Equal(before, after[:len(before)]))
		assert.LessOrEqual(t, len(after), 5)
		assert.Len(t, candidates, len(after)+len(refused))
		assert.False(t, slices.ContainsFunc(after, func(c candidate) bool { return refused[c.Name] != "" }))
	}
}
