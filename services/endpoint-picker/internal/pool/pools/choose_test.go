package pools

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"
)

func candidate(name string, created int64, port int) Candidate {
	c := Candidate{Name: cache.NewObjectName("ns", name), Created: time.Unix(created, 0)}
	if port > 0 {
		c.Address = Address{Namespace: "ns", Service: "epp", Port: port}
	}
	return c
}

func TestChoose(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		candidates []Candidate
		served     []string
		refused    map[string]Refusal
	}{
		{name: "none"},
		{name: "each with its address", candidates: []Candidate{candidate("b", 1, 2), candidate("a", 2, 1)}, served: []string{"b", "a"}},
		{
			name: "the oldest has an address", candidates: []Candidate{candidate("young", 2, 1), candidate("old", 1, 1)},
			served: []string{"old"}, refused: map[string]Refusal{"young": Shadowed},
		},
		{
			name: "of the same age", candidates: []Candidate{candidate("b", 1, 1), candidate("a", 1, 1)},
			served: []string{"a"}, refused: map[string]Refusal{"b": Shadowed},
		},
		{name: "no address", candidates: []Candidate{candidate("a", 1, 0)}, refused: map[string]Refusal{"a": Unaddressed}},
		{
			name:       "at most three, and shadowed pools do not count",
			candidates: []Candidate{candidate("e", 5, 4), candidate("d", 4, 3), candidate("c", 3, 2), candidate("b", 2, 1), candidate("a", 1, 1)},
			served:     []string{"a", "c", "d"}, refused: map[string]Refusal{"b": Shadowed, "e": Excess},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			served, refused := ChoosePools(tt.candidates, 3)
			var names []string
			for _, c := range served {
				names = append(names, c.Name.Name)
			}
			assert.Equal(t, tt.served, names)
			want := map[cache.ObjectName]Refusal{}
			for name, reason := range tt.refused {
				want[cache.NewObjectName("ns", name)] = reason
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
		var candidates []Candidate
		add := func(prefix string, created int64) {
			for i := range random.IntN(12) {
				candidates = append(candidates, candidate(fmt.Sprint(prefix, i), created+random.Int64N(10), random.IntN(8)))
			}
		}
		add("old", 0)
		before, _ := ChoosePools(candidates, 5)
		add("new", 10)
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		after, refused := ChoosePools(candidates, 5)
		assert.True(t, slices.Equal(before, after[:len(before)]))
		assert.LessOrEqual(t, len(after), 5)
		assert.Len(t, candidates, len(after)+len(refused))
		assert.False(t, slices.ContainsFunc(after, func(c Candidate) bool { return refused[c.Name] != "" }))
	}
}
