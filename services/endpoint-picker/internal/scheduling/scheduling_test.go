package scheduling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// busy returns candidates with these loads, numbered from 0.
func busy(loads ...Load) []Candidate {
	candidates := make([]Candidate, 0, len(loads))
	for i, load := range loads {
		candidates = append(candidates, Candidate{Index: i, Load: load})
	}
	return candidates
}

func indexes(candidates []Candidate) []int {
	list := []int{}
	for _, c := range candidates {
		list = append(list, c.Index)
	}
	return list
}

// loadScorer rates an endpoint by its load. A request in the queue counts twice, and KV cache usage decides between equal
// counts.
type loadScorer struct{}

func (loadScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		l := &candidates[i].Load
		scores[i] = 1 / (1 + l.Requests + l.Waiting + l.KVUsage)
	}
}

// freshFilter prefers endpoints that are not stale.
type freshFilter struct{ after time.Duration }

func (f freshFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	return PreferAccepted(candidates, func(c *Candidate) bool { return !c.Load.Stale(r.Now, f.after) })
}

// bestPicker picks the highest score. The random number decides between equal ones.
type bestPicker struct{}

func (bestPicker) Pick(r *Request, scores []float64, places []int) []int {
	best := slices.Max(scores)
	var equals []int
	for i, score := range scores {
		if score == best {
			equals = append(equals, i)
		}
	}
	return append(places, equals[r.Random%uint64(len(equals))])
}

func leastLoaded(staleAfter time.Duration) *Profile {
	return &Profile{
		Filters: []Filter{freshFilter{staleAfter}},
		Scorers: []WeightedScorer{{Name: "load", Scorer: loadScorer{}, Weight: 1}},
		Picker:  bestPicker{},
	}
}

// pageScorer rates an endpoint by its queue alone, as of its last page.
type pageScorer struct{}

func (pageScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = 1 / (1 + candidates[i].Load.Waiting)
	}
}

func TestScheduleBreaksTiesByRequests(t *testing.T) {
	t.Parallel()
	p := &Profile{Scorers: []WeightedScorer{{Name: "page", Scorer: pageScorer{}, Weight: 1}}, Picker: bestPicker{}}
	chosen := map[int]bool{}
	for random := range uint64(20) {
		c, err := p.Schedule(&Request{Now: noon, Random: random}, busy(Load{Requests: 9}, Load{Requests: 5}, Load{Waiting: 1}, Load{Requests: 5}), &Scratch{})
		require.NoError(t, err)
		chosen[c.Index] = true
	}
	assert.Equal(t, map[int]bool{1: true, 3: true}, chosen)
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	old := endpoint.ToMonotonic(noon.Add(-3 * time.Second))
	tests := []struct {
		name  string
		give  []Candidate
		draw  uint64
		want  int
		error error
	}{
		{name: "no endpoints", give: nil, error: ErrNoEndpoints},
		{name: "one", give: busy(Load{Requests: 100}), want: 0},
		{name: "fewest requests", give: busy(Load{Requests: 3}, Load{Requests: 1}, Load{Requests: 2}), want: 1},
		{name: "a queue weighs more than a batch", give: busy(Load{Requests: 10, Waiting: 5}, Load{Requests: 12}), want: 1},
		{name: "KV usage decides between equals", give: busy(Load{Requests: 2, KVUsage: 0.9}, Load{Requests: 2, KVUsage: 0.3}), want: 1},
		{name: "KV usage decides nothing else", give: busy(Load{Requests: 2, KVUsage: 0}, Load{Requests: 1, KVUsage: 0.99}), want: 1},
		{name: "equals, first draw", give: busy(Load{Requests: 1}, Load{}, Load{}), draw: 0, want: 1},
		{name: "equals, second draw", give: busy(Load{Requests: 1}, Load{}, Load{}), draw: 7, want: 2},
		{name: "stale is not preferred", give: busy(Load{Failing: old}, Load{Requests: 50}), want: 1},
		{name: "all stale", give: busy(Load{Failing: old, Requests: 2}, Load{Failing: old, Requests: 1}), want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			profile := leastLoaded(2 * time.Second)
			for range 2 { // the same input, the same choice
				var s Scratch
				got, err := profile.Schedule(&Request{Now: noon, Random: tt.draw}, append([]Candidate{}, tt.give...), &s)
				require.ErrorIs(t, err, tt.error)
				if err == nil {
					assert.Equal(t, tt.want, got.Index)
				}
			}
		})
	}
}

// scorerFunc scores each candidate by its index.
type scorerFunc func(index int) float64

func (f scorerFunc) Score(_ *Request, candidates []Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = f(candidates[i].Index)
	}
}

// emptyFilter keeps no candidate.
type emptyFilter struct{}

func (emptyFilter) Filter(*Request, []Candidate) []Candidate { return nil }

// fullFilter is an emptyFilter with its own reason.
type fullFilter struct{ emptyFilter }

func (fullFilter) ErrEmpty() error { return ErrNoCapacity }

func TestScheduleSumsWeightedScores(t *testing.T) {
	t.Parallel()
	rising := scorerFunc(func(i int) float64 { return float64(i) / 2 })
	falling := scorerFunc(func(i int) float64 { return 1 - float64(i)/2 })
	schedule := func(scorers ...WeightedScorer) int {
		p := &Profile{Scorers: scorers, Picker: bestPicker{}}
		got, err := p.Schedule(&Request{}, busy(Load{}, Load{}, Load{}), &Scratch{})
		require.NoError(t, err)
		return got.Index
	}
	assert.Equal(t, 2, schedule(WeightedScorer{Scorer: rising, Weight: 3}, WeightedScorer{Scorer: falling, Weight: 2}))
	assert.Equal(t, 0, schedule(WeightedScorer{Scorer: rising, Weight: 2}, WeightedScorer{Scorer: falling, Weight: 3}))
	assert.Equal(t, 0, schedule(WeightedScorer{Scorer: scorerFunc(func(i int) float64 { return float64(i * 1000) }), Weight: 1},
		WeightedScorer{Scorer: falling, Weight: 3}), "a scorer that leaves the scale is held to it")
	assert.Equal(t, 1, schedule(WeightedScorer{Scorer: scorerFunc(func(i int) float64 { return []float64{math.NaN(), 0.1, -5}[i] }), Weight: 1}))
}

func TestScratchIsReused(t *testing.T) {
	t.Parallel()
	var s Scratch
	profile := leastLoaded(0)
	for _, loads := range [][]Load{{{Requests: 9}, {}}, {{Requests: 1}, {Requests: 9}}, {{}}, {{Requests: 1}, {Requests: 1}, {}}} {
		fresh, err := profile.Schedule(&Request{Now: noon}, busy(loads...), &Scratch{})
		require.NoError(t, err)
		reused, err := profile.Schedule(&Request{Now: noon}, busy(loads...), &s)
		require.NoError(t, err)
		assert.Equal(t, fresh, reused)
	}
}

func TestEmptyResultHasTheFiltersReason(t *testing.T) {
	t.Parallel()
	for want, filter := range map[error]Filter{ErrFiltered: emptyFilter{}, ErrNoCapacity: fullFilter{}} {
		p := leastLoaded(0)
		p.Filters = append(p.Filters, filter)
		var s Scratch
		_, err := p.Schedule(&Request{}, busy(Load{}), &s)
		require.ErrorIs(t, err, want)
		assert.Empty(t, s.Candidates())
		assert.Empty(t, s.Places())
	}
}

func TestScratchHasTheScores(t *testing.T) {
	t.Parallel()
	rising := scorerFunc(func(i int) float64 { return float64(i) / 3 })
	p := &Profile{
		Filters: []Filter{freshFilter{time.Second}},
		Scorers: []WeightedScorer{{Name: "rising", Scorer: rising, Weight: 2}, {Name: "load", Scorer: loadScorer{}, Weight: 1}},
		Picker:  bestPicker{},
	}
	var s Scratch
	for range 2 {
		chosen, err := p.Schedule(&Request{Now: noon}, busy(Load{Failing: endpoint.ToMonotonic(noon.Add(-time.Hour))}, Load{Requests: 1}, Load{Requests: 3}, Load{}), &s)
		require.NoError(t, err)
		assert.Equal(t, 3, chosen.Index)
		assert.Equal(t, []int{1, 2, 3}, indexes(s.Candidates()))
		assert.Equal(t, []int{2}, s.Places())
		assert.InDeltaSlice(t, []float64{1. / 3, 2. / 3, 1}, s.scorerScores(0), 1e-9)
		assert.InDeltaSlice(t, []float64{0.5, 0.25, 1}, s.scorerScores(1), 1e-9)
		assert.InDeltaSlice(t, []float64{2./3 + 0.5, 4./3 + 0.25, 3}, s.Totals(), 1e-9)
	}
}

func TestSubset(t *testing.T) {
	t.Parallel()
	endpoint := netip.MustParseAddrPort
	tests := []struct {
		name string
		give []string
		in   []string
		out  []string
	}{
		{name: "list", give: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, in: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, out: []string{"10.0.0.3:8000"}},
		{name: "comma string", give: []string{"10.0.0.1:8000, 10.0.0.2:8000"}, in: []string{"10.0.0.1:8000", "10.0.0.2:8000"}, out: []string{"10.0.0.3:8000"}},
		{name: "ports matter", give: []string{"10.0.0.1:8001"}, in: []string{"10.0.0.1:8001"}, out: []string{"10.0.0.1:8000"}},
		{name: "address alone is all its ports", give: []string{"10.0.0.1"}, in: []string{"10.0.0.1:8000", "10.0.0.1:8001"}, out: []string{"10.0.0.2:8000"}},
		{name: "IPv6 in any spelling", give: []string{"[2001:DB8:0:0::1]:8000", "[::2]", "::3"}, in: []string{"[2001:db8::1]:8000", "[::2]:1", "[::3]:1"}, out: []string{"[2001:db8::1]:8001"}},
		{name: "IPv4 in IPv6", give: []string{"[::ffff:10.0.0.1]:8000"}, in: []string{"10.0.0.1:8000"}},
		{name: "nothing named, nothing allowed", give: nil, out: []string{"10.0.0.1:8000"}},
		{name: "nonsense", give: []string{"", ",", "host:8000", "10.0.0.1:", "10.0.0.1:99999", ":8000"}, out: []string{"10.0.0.1:8000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := ParseSubset(tt.give)
			for _, e := range tt.in {
				assert.True(t, s.Contains(endpoint(e)), e)
			}
			for _, e := range tt.out {
				assert.False(t, s.Contains(endpoint(e)), e)
			}
		})
	}
	assert.True(t, (*Subset)(nil).Contains(endpoint("10.0.0.1:8000")), "no hint allows everything")
}

// FuzzSchedule checks that whatever the loads, the choice is a candidate, the least loaded of the fresh ones if there are
// any, and the same again.
func FuzzSchedule(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Add(uint64(99), uint8(64))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		random := rand.New(rand.NewPCG(seed, 1))
		candidates := make([]Candidate, n)
		for i := range candidates {
			candidates[i] = Candidate{Index: i, Load: Load{
				Requests: float64(random.IntN(5)), Waiting: float64(random.IntN(3)), KVUsage: random.Float64(),
				Failing: endpoint.ToMonotonic(noon.Add(-time.Duration(random.IntN(4)) * time.Second)),
			}}
		}
		r := &Request{Now: noon, Random: random.Uint64()}
		profile := leastLoaded(time.Second)
		got, err := profile.Schedule(r, append([]Candidate{}, candidates...), &Scratch{})
		if n == 0 {
			require.ErrorIs(t, err, ErrNoEndpoints)
			return
		}
		require.NoError(t, err)
		again, err := profile.Schedule(r, append([]Candidate{}, candidates...), &Scratch{})
		require.NoError(t, err)
		require.Equal(t, got, again)

		fresh := func(c Candidate) bool { return endpoint.ToMonotonic(noon).Sub(c.Load.Failing) <= time.Second }
		weight := func(c Candidate) float64 { return c.Load.Requests + c.Load.Waiting + c.Load.KVUsage }
		for _, c := range candidates {
			if fresh(c) == fresh(*got) {
				require.GreaterOrEqual(t, weight(c), weight(*got))
			}
			require.False(t, fresh(c) && !fresh(*got))
		}
	})
}

func BenchmarkSchedule(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			candidates := make([]Candidate, n)
			for i := range candidates {
				candidates[i].Load = Load{Requests: float64(i % 7)}
			}
			profile := leastLoaded(time.Second)
			list := make([]Candidate, n)
			var s Scratch
			r := &Request{Now: noon}
			b.ReportAllocs()
			for b.Loop() {
				copy(list, candidates)
				r.Random++
				if _, err := profile.Schedule(r, list, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
