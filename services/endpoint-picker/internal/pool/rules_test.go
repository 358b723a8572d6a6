package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rulesStart = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// to is a rule for these models, for all if there are none, with one target.
func to(target string, models ...string) Rule {
	return Rule{Models: models, Targets: []RewriteTarget{{Model: target, Weight: 1}}}
}

func object(name string, age time.Duration, rules ...Rule) RewriteObject {
	return RewriteObject{Name: name, Created: rulesStart.Add(-age), Rules: rules}
}

func TestPriority(t *testing.T) {
	t.Parallel()
	s := CompileRules([]Objective{{Name: "gold", Priority: 10}, {Name: "none"}, {Name: "batch", Priority: -5}}, nil)
	for name, want := range map[string]int{"gold": 10, "none": 0, "batch": -5} {
		got, found := s.PriorityOf(name)
		assert.True(t, found, name)
		assert.Equal(t, want, got, name)
	}
	_, found := s.PriorityOf("unknown")
	assert.False(t, found)
	_, found = s.PickRewrite("any", 0)
	assert.False(t, found)
}

func TestRewrites(t *testing.T) {
	t.Parallel()
	r := NewRules()
	assert.False(t, r.CurrentSnapshot().HasRewrites())
	for _, rule := range []Rule{to("t"), to("t", "m")} {
		r.SetSnapshot(CompileRules(nil, []RewriteObject{object("a", 0, rule)}))
		assert.True(t, r.CurrentSnapshot().HasRewrites())
	}
	r.SetSnapshot(CompileRules(nil, []RewriteObject{object("a", 0)}))
	assert.False(t, r.CurrentSnapshot().HasRewrites())
}

func TestWhichRuleHolds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		objects []RewriteObject
		model   string
		want    Rewrite
	}{
		{name: "no objects", model: "m"},
		{name: "an object without rules", objects: []RewriteObject{object("a", 0)}, model: "m"},
		{name: "another model", objects: []RewriteObject{object("a", 0, to("t", "other"))}, model: "m"},
		{name: "its name", objects: []RewriteObject{object("a", 0, to("t", "other", "m"))}, model: "m", want: Rewrite{"a", "t"}},
		{name: "all models", objects: []RewriteObject{object("a", 0, to("t"))}, model: "m", want: Rewrite{"a", "t"}},
		{name: "all models, even without a name", objects: []RewriteObject{object("a", 0, to("t"))}, want: Rewrite{"a", "t"}},
		{
			name:    "its name before all models, in one object",
			objects: []RewriteObject{object("a", 0, to("generic"), to("exact", "m"))},
			model:   "m", want: Rewrite{"a", "exact"},
		},
		{
			name:    "its name before all models, in an older object",
			objects: []RewriteObject{object("old", time.Hour, to("generic")), object("new", 0, to("exact", "m"))},
			model:   "m", want: Rewrite{"new", "exact"},
		},
		{
			name:    "the older object",
			objects: []RewriteObject{object("a", 0, to("young", "m")), object("b", time.Hour, to("old", "m"))},
			model:   "m", want: Rewrite{"b", "old"},
		},
		{
			name:    "the older object, for all models",
			objects: []RewriteObject{object("a", 0, to("young")), object("b", time.Hour, to("old"))},
			model:   "m", want: Rewrite{"b", "old"},
		},
		{
			name:    "of equally old ones the first name",
			objects: []RewriteObject{object("b", time.Hour, to("second", "m")), object("a", time.Hour, to("first", "m"))},
			model:   "m", want: Rewrite{"a", "first"},
		},
		{
			name:    "the earlier rule",
			objects: []RewriteObject{object("a", 0, to("first", "m"), to("second", "m"))},
			model:   "m", want: Rewrite{"a", "first"},
		},
		{
			name:    "the earlier rule, for all models",
			objects: []RewriteObject{object("a", 0, to("first"), to("second"))},
			model:   "m", want: Rewrite{"a", "first"},
		},
		{name: "no part of a name", objects: []RewriteObject{object("a", 0, to("t", "model"))}, model: "mod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				got, found := CompileRules(nil, tt.objects).PickRewrite(tt.model, 42)
				assert.Equal(t, tt.want, got)
				assert.Equal(t, tt.want != Rewrite{}, found)
				slices.Reverse(tt.objects) // the order in which they were listed is nobody's
			}
		})
	}
}

func TestTargetsAreDrawnByWeight(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		weights []uint32
		want    []int // of 600 numbers in a row
	}{
		{name: "one", weights: []uint32{7}, want: []int{600}},
		{name: "one of weight 0", weights: []uint32{0}, want: []int{600}},
		{name: "equal", weights: []uint32{1, 1, 1}, want: []int{200, 200, 200}},
		{name: "canary", weights: []uint32{90, 10}, want: []int{540, 60}},
		{name: "0 gets nothing", weights: []uint32{0, 2, 0, 1, 0}, want: []int{0, 400, 0, 200, 0}},
		{name: "all 0 is even", weights: []uint32{0, 0}, want: []int{300, 300}},
		{name: "sums beyond 32 bits", weights: []uint32{1 << 31, 1 << 31, 1 << 31}, want: []int{600, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rule := Rule{}
			for i, w := range tt.weights {
				rule.Targets = append(rule.Targets, RewriteTarget{Model: fmt.Sprint(i), Weight: w})
			}
			s := CompileRules(nil, []RewriteObject{object("a", 0, rule)})
			got := make([]int, len(tt.weights))
			for n := range uint64(600) {
				drawn, found := s.PickRewrite("m", n)
				require.True(t, found)
				var i int
				_, err := fmt.Sscan(drawn.Target, &i)
				require.NoError(t, err)
				got[i]++
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestSharesFollowWeightsForAnyNumbers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	s := CompileRules(nil, []RewriteObject{object("a", 0, Rule{Targets: []RewriteTarget{{"a", 1}, {"b", 2}, {"c", 97}}})})
	counts := map[string]int{}
	for range 100_000 {
		drawn, _ := s.PickRewrite("m", random.Uint64())
		counts[drawn.Target]++
	}
	assert.InDelta(t, 1_000, counts["a"], 150)
	assert.InDelta(t, 2_000, counts["b"], 200)
	assert.InDelta(t, 97_000, counts["c"], 400)
}

func TestRulesBeforeTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	r := NewRules().CurrentSnapshot()
	_, found := r.PriorityOf("gold")
	assert.False(t, found)
	_, found = r.PickRewrite("m", 1)
	assert.False(t, found)
}

func TestRulesAreReadWhileTheyAreReplaced(t *testing.T) {
	t.Parallel()
	r := NewRules()
	versions := []*RulesSnapshot{
		CompileRules([]Objective{{"o", 0}}, []RewriteObject{object("a", 0, to("0", "m"))}),
		CompileRules([]Objective{{"o", 1}}, []RewriteObject{object("a", 0, to("1", "m"))}),
	}
	r.SetSnapshot(versions[0])
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s := r.CurrentSnapshot()
				priority, _ := s.PriorityOf("o")
				drawn, _ := s.PickRewrite("m", n)
				if drawn.Target != fmt.Sprint(priority) {
					t.Errorf("priority %d with target %s", priority, drawn.Target)
					return
				}
			}
		})
	}
	for i := range 10_000 {
		r.SetSnapshot(versions[i%2])
	}
	close(stop)
	readers.Wait()
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	r := NewRules()
	r.SetSnapshot(CompileRules([]Objective{{"o", 1}}, []RewriteObject{object("a", 0,
		Rule{Models: []string{"m"}, Targets: []RewriteTarget{{"x", 1}, {"y", 2}}}, to("z"))}))
	n := uint64(0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		n++
		r.CurrentSnapshot().PriorityOf("o")
		r.CurrentSnapshot().PickRewrite("m", n)
		r.CurrentSnapshot().PickRewrite("other", n)
	}))
}

func BenchmarkRewrite(b *testing.B) {
	var objects []RewriteObject
	for i := range 1000 {
		objects = append(objects, object(fmt.Sprint(i), 0, Rule{Models: []string{fmt.Sprintf("model-%d", i)}, Targets: []RewriteTarget{{"x", 1}, {"y", 2}}}))
	}
	r := NewRules()
	r.SetSnapshot(CompileRules(nil, objects))
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		if _, found := r.CurrentSnapshot().PickRewrite("model-500", n); !found {
			b.Fatal("not found")
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	assert.Empty(t, (&RulesSnapshot{}).Models())
	s := CompileRules(nil, []RewriteObject{
		{Name: "a", Rules: []Rule{{Models: []string{"chat", "old"}, Targets: []RewriteTarget{{Model: "chat-v2"}, {Model: "chat-v1"}}}}},
		{Name: "b", Rules: []Rule{{Targets: []RewriteTarget{{Model: "chat-v1"}, {Model: "base"}}}}},
	})
	assert.Equal(t, []string{"base", "chat", "chat-v1", "chat-v2", "old"}, s.Models())
}
