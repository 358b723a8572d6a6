package scheduling

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func scoresOf(s Scorer, r *Request, candidates []Candidate) []float64 {
	scores := make([]float64, len(candidates))
	s.Score(r, candidates, scores)
	return scores
}

func TestScorers(t *testing.T) {
	t.Parallel()
	adapters := func(a ...*Adapters) []Candidate {
		loads := []Load{{}}
		for _, a := range a {
			loads = append(loads, Load{Page: &Page{Adapters: a}})
		}
		return busy(loads...)
	}
	matched := func(tokens ...int) []Candidate {
		candidates := busy(make([]Load, len(tokens))...)
		for i := range tokens {
			candidates[i].Matched = tokens[i]
		}
		return candidates
	}
	temperatures := pages(map[string]float64{"t": 10}, map[string]float64{"t": 20}, map[string]float64{"t": 50})
	tests := []struct {
		name    string
		scorer  Scorer
		request Request
		give    []Candidate
		want    []float64
	}{
		{name: "queue", scorer: QueueScorer{}, give: busy(Load{Waiting: 2}, Load{Waiting: 10}, Load{Waiting: 4}), want: []float64{1, 0, 0.75}},
		{name: "queue, equal", scorer: QueueScorer{}, give: busy(Load{Waiting: 2}, Load{Waiting: 2}), want: []float64{1, 1}},
		{name: "running", scorer: RunningScorer{}, give: busy(Load{Running: 0, Waiting: 9}, Load{Running: 8}, Load{Running: 6}), want: []float64{1, 0, 0.25}},
		{name: "KV cache", scorer: KVCacheScorer{}, give: busy(Load{KVUsage: 0.3}, Load{}, Load{KVUsage: 1}), want: []float64{0.7, 1, 0}},

		{name: "prefix", scorer: PrefixScorer{}, request: Request{Tokens: 100}, give: matched(0, 50, 100, 112), want: []float64{0, 0.5, 1, 1}},
		{name: "prefix, no prompt", scorer: PrefixScorer{}, give: matched(0, 16), want: []float64{0, 0}},
		{name: "prefix, by its length too", scorer: PrefixScorer{LengthWeight: 0.5, Scale: 1000}, request: Request{Tokens: 1000}, give: matched(0, 500, 1000, 2000), want: []float64{0, 0.375, 1, 1}},

		{
			name: "adapter", scorer: AdapterScorer{}, request: Request{Model: "m"},
			give: adapters(nil, &Adapters{Max: 1, Running: []string{"x", "m"}}, &Adapters{Max: 2, Running: []string{"x"}}, &Adapters{Max: 2, Running: []string{"x"}, Waiting: []string{"m"}}, &Adapters{Max: 1, Running: []string{"x"}}),
			want: []float64{0, 0, 1, 0.8, 0.6, 0},
		},

		{name: "token load", scorer: TokenLoadScorer{Threshold: 1000}, give: busy(Load{}, Load{Tokens: 250}, Load{Tokens: 5000}), want: []float64{1, 0.75, 0}},
		{name: "load-aware", scorer: QueueLimitScorer{Threshold: 128}, give: busy(Load{}, Load{Waiting: 32}, Load{Waiting: 500}), want: []float64{0.5, 0.375, 0}},
		{name: "active", scorer: ActiveScorer{BusyBest: 1}, give: busy(Load{}, Load{Requests: 1}, Load{Requests: 4}), want: []float64{1, 0.75, 0}},
		{name: "active, idle with some", scorer: ActiveScorer{Idle: 1, BusyBest: 0.5}, give: busy(Load{Requests: 1}, Load{Requests: 2}, Load{Requests: 4}), want: []float64{1, 0.25, 0}},

		{name: "session", scorer: SessionScorer{}, request: Request{Session: "ns/b"}, give: servers(nil, nil, nil), want: []float64{0, 1, 0}},
		{name: "no session", scorer: SessionScorer{}, give: servers(nil, nil), want: []float64{0, 0}},

		{name: "attribute, lower, adaptive", scorer: AttributeScorer{Attribute: "t"}, give: temperatures, want: []float64{1, 0.75, 0, 0}},
		{name: "attribute, higher, adaptive", scorer: AttributeScorer{Attribute: "t", HigherIsBetter: true}, give: temperatures, want: []float64{0, 0.25, 1, 0}},
		{name: "attribute, fixed range", scorer: AttributeScorer{Attribute: "t", Min: 0, Max: 40}, give: temperatures, want: []float64{0.75, 0.5, -0.25, 0}},
		{name: "attribute, equal", scorer: AttributeScorer{Attribute: "t"}, give: pages(map[string]float64{"t": 3}, map[string]float64{"t": 3}), want: []float64{1, 1, 0}},
		{name: "attribute, no number", scorer: AttributeScorer{Attribute: "t"}, give: pages(map[string]float64{"t": math.NaN()}, map[string]float64{"t": 3}), want: []float64{0, 1, 0}},
		{name: "attribute that nobody has", scorer: AttributeScorer{Attribute: "x"}, give: temperatures, want: []float64{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.InDeltaSlice(t, tt.want, scoresOf(tt.scorer, &tt.request, tt.give), 1e-9)
		})
	}
}

// hashed is n idle candidates on pods of their own.
func hashed(n int) []Candidate {
	candidates := busy(make([]Load, n)...)
	for i := range candidates {
		candidates[i].Server = &Server{
			Name: fmt.Sprintf("ns/model-%d", i), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000),
		}
	}
	return candidates
}

// first is the index of the best candidate.
func first(r *Request, candidates []Candidate) int {
	scores := scoresOf(ConsistentHashScorer{Bound: 1.25}, r, candidates)
	return candidates[highest(scores, 0)].Index
}

func TestConsistentHashScorer_MovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	const endpoints, prompts = 10, 2000
	all := hashed(endpoints)
	counts := make([]int, endpoints)
	for prompt := uint64(1); prompt <= prompts; prompt++ {
		r := &Request{Prefix: prompt}
		at := first(r, all)
		counts[at]++
		without := append(append([]Candidate{}, all[:3]...), all[4:]...)
		if at != 3 {
			require.Equal(t, at, first(r, without), "another endpoint has gone")
		}
	}
	for i, n := range counts {
		assert.InDelta(t, prompts/endpoints, n, 60, "endpoint %d", i)
	}
}

func TestConsistentHashScorer_GoesOnWhenThereIsTooMuch(t *testing.T) {
	t.Parallel()
	candidates := hashed(10)
	r := &Request{Prefix: 7}
	scores := scoresOf(ConsistentHashScorer{Bound: 1.25}, r, candidates)
	ranks := map[float64]int{}
	for i, score := range scores {
		ranks[score] = i
	}
	assert.Len(t, ranks, rankedPlaces+1)
	assert.Contains(t, ranks, 1.0)
	assert.Contains(t, ranks, 0.5)
	for range 100 { // all with one beginning
		i := first(r, candidates)
		candidates[i].Load.Requests++
	}
	for i := range candidates {
		assert.LessOrEqual(t, candidates[i].Load.Requests, 13.0, "endpoint %d", i)
	}
	assert.InDelta(t, 13, candidates[ranks[1]].Load.Requests, 0, "the first takes as much as it may")
	assert.InDelta(t, 13, candidates[ranks[0.5]].Load.Requests, 0, "and so does the next")

	assert.Equal(t, make([]float64, 10), scoresOf(ConsistentHashScorer{Bound: 1.25}, &Request{}, candidates), "no prompt, no opinion")
}

func TestConsistentHashScorer_NamesAndPortsCount(t *testing.T) {
	t.Parallel()
	moved := hashed(10)
	for i := range moved {
		moved[i].Server.Address = netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), 8000) // restarted
	}
	ports := hashed(2)
	ports[1].Server = &Server{Name: ports[0].Server.Name, Address: netip.AddrPortFrom(ports[0].Server.Address.Addr(), 8001)}
	onSecond := 0
	for prompt := uint64(1); prompt <= 1000; prompt++ {
		r := &Request{Prefix: prompt}
		require.Equal(t, first(r, hashed(10)), first(r, moved))
		onSecond += first(r, ports)
	}
	assert.InDelta(t, 500, onSecond, 80)
}

func TestPickersList(t *testing.T) {
	t.Parallel()
	scores := []float64{0.2, 0, 0.5, 0.2, 0.1, 0}
	const draws = 30_000
	tests := []struct {
		name   string
		picker Picker
		first  []float64 // how often each comes first
		second []float64
	}{
		{name: "max score", picker: MaxScorePicker{Most: 2}, first: []float64{0, 0, 1, 0, 0, 0}, second: []float64{0.5, 0, 0, 0.5, 0, 0}},
		{name: "random", picker: RandomPicker{Most: 2}, first: []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}, second: []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}},
		{name: "weighted random", picker: WeightedRandomPicker{Most: 2}, first: []float64{0.2, 0, 0.5, 0.2, 0.1, 0}, second: []float64{0.272, 0, 0.322, 0.272, 0.133, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			counts := [2][]float64{make([]float64, len(scores)), make([]float64, len(scores))}
			for draw := range uint64(draws) {
				places := tt.picker.Pick(&Request{Random: mix(draw)}, scores, nil)
				require.Len(t, places, 2)
				require.NotEqual(t, places[0], places[1])
				counts[0][places[0]] += 1. / draws
				counts[1][places[1]] += 1. / draws
			}
			assert.InDeltaSlice(t, tt.first, counts[0], 0.02)
			assert.InDeltaSlice(t, tt.second, counts[1], 0.02)
		})
	}
}

func TestPickersTakeWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, most := range []int{-1, 0, 1, 3, 100} {
		for _, picker := range []Picker{MaxScorePicker{most}, RandomPicker{most}, WeightedRandomPicker{most}} {
			places := picker.Pick(&Request{Random: 5}, []float64{0, 0, 0}, nil)
			assert.Len(t, places, min(max(most, 1), 3), "%T %d", picker, most)
			assert.Subset(t, []int{0, 1, 2}, places)
		}
	}
	assert.Equal(t, []int{1, 2, 0}, MaxScorePicker{Most: 9}.Pick(&Request{}, []float64{0.1, 0.9, 0.5}, nil))
	assert.Equal(t, []int{1}, WeightedRandomPicker{}.Pick(&Request{Random: 3}, []float64{0, 1, 0}, nil))
}

func TestScratchSaysWhatWasFound(t *testing.T) {
	t.Parallel()
	p := &Profile{
		Filters: []Filter{UtilizationFilter{Limits: []Limit{{WaitingRequests, 9}}}},
		Scorers: []WeightedScorer{{Name: "q", Scorer: QueueScorer{}, Weight: 2}, {Name: "kv", Scorer: KVCacheScorer{}, Weight: 1}},
		Picker:  MaxScorePicker{Most: 2},
	}
	var s Scratch
	for range 2 {
		chosen, err := p.Schedule(&Request{}, busy(Load{Waiting: 10}, Load{Waiting: 8, KVUsage: 0.5}, Load{}, Load{Waiting: 2}), &s)
		require.NoError(t, err)
		assert.Equal(t, 2, chosen.Index)
		assert.Equal(t, []int{1, 2, 3}, indexes(s.Candidates()))
		assert.Equal(t, []int{1, 2}, s.Places())
		assert.InDeltaSlice(t, []float64{0, 1, 0.75}, s.Scores(0), 1e-9)
		assert.InDeltaSlice(t, []float64{0.5, 1, 1}, s.Scores(1), 1e-9)
		assert.InDeltaSlice(t, []float64{0.5, 3, 2.5}, s.Totals(), 1e-9)
	}
	_, err := p.Schedule(&Request{}, busy(Load{Waiting: 10}), &s)
	require.ErrorIs(t, err, ErrNoCapacity)
	assert.Empty(t, s.Candidates())
	assert.Empty(t, s.Places())
}

// everything is a profile of all plugins.
func everything() *Profile {
	p := &Profile{
		Filters: []Filter{
			StalenessFilter{}, SelectorFilter{labels.SelectorFromSet(labels.Set{"app": "model"})}, DecodeFilter(), SessionFilter{}, TestingFilter{},
			PrefixAffinityFilter{Threshold: 0.8, Exploration: 0.1, MaxPenalty: 18, TokensPerSecond: 15928},
			UtilizationFilter{Limits: []Limit{{KVCacheUsage, 0.9}}, FallbackOnEmpty: true},
			AttributeFilter{Attribute: "t", Operator: GreaterOrEqual, Value: 1, KeepMissing: true}, utilization(0), ConcurrencyDetector{Requests: 1000},
		},
		Picker: WeightedRandomPicker{Most: 3},
	}
	for _, s := range []Scorer{
		PredictedWaitScorer{}, QueueScorer{}, RunningScorer{}, KVCacheScorer{}, TokenLoadScorer{1e6}, QueueLimitScorer{128}, ActiveScorer{},
		PrefixScorer{LengthWeight: 0.5, Scale: 8192}, SessionScorer{}, AdapterScorer{}, AttributeScorer{Attribute: "t"}, ConsistentHashScorer{1.25},
	} {
		p.Scorers = append(p.Scorers, WeightedScorer{Scorer: s, Weight: 1})
	}
	return p
}

func realistic(n int) []Candidate {
	candidates := hashed(n)
	for i := range candidates {
		candidates[i].Server.Labels = map[string]string{"app": "model", RoleLabel: "decode"}
		candidates[i].Load = Load{
			Requests: float64(i % 7), Waiting: float64(i % 3), KVUsage: float64(i%10) / 12, Wait: 0.1 + float64(i%5)/10, Sampled: noon,
			Page: &Page{Adapters: &Adapters{Max: 2, Running: []string{"a", "b"}}, Attributes: map[string]float64{"t": float64(i)}},
		}
		candidates[i].Matched = 16 * (i % 5)
	}
	return candidates
}

func TestScheduleAllocatesNothing(t *testing.T) {
	candidates := realistic(64)
	list := make([]Candidate, len(candidates))
	var s Scratch
	r := &Request{Now: noon, Model: "m", Tokens: 64, Prefix: 9, Session: "ns/model-77"}
	for _, p := range []*Profile{everything(), SoonestFirst(StalenessFilter{}), {Picker: RandomPicker{}}, {Picker: MaxScorePicker{Most: 5}}} {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			copy(list, candidates)
			r.Random++
			if _, err := p.Schedule(r, list, &s); err != nil {
				t.Error(err)
			}
		}))
	}
}

func BenchmarkPlugins(b *testing.B) {
	all := everything()
	for _, n := range []int{8, 64, 256} {
		candidates := realistic(n)
		list, scores := make([]Candidate, n), make([]float64, n)
		r := &Request{Now: noon, Model: "m", Tokens: 64, Prefix: 9, Session: "ns/model-3"}
		for _, w := range all.Scorers {
			b.Run(fmt.Sprintf("%T/endpoints=%d", w.Scorer, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.Scorer.Score(r, candidates, scores)
				}
			})
		}
		b.Run(fmt.Sprintf("everything/endpoints=%d", n), func(b *testing.B) {
			var s Scratch
			b.ReportAllocs()
			for b.Loop() {
				copy(list, candidates)
				r.Random++
				if _, err := all.Schedule(r, list, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzProfiles checks of any profile that its list is of candidates, each once, and the same again.
func FuzzProfiles(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint16(0xffff), uint8(2))
	f.Add(uint64(2), uint8(40), uint16(0x1f), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, plugins uint16, most uint8) {
		all, p := everything(), &Profile{}
		for i, w := range all.Scorers {
			if plugins>>i&1 == 1 {
				p.Scorers = append(p.Scorers, w)
			}
		}
		for i, filter := range all.Filters {
			if plugins>>i&1 == 0 {
				p.Filters = append(p.Filters, filter)
			}
		}
		p.Picker = []Picker{MaxScorePicker{int(most)}, RandomPicker{int(most)}, WeightedRandomPicker{int(most)}}[seed%3]
		r := &Request{Now: noon, Random: seed, Model: "m", Tokens: 64, Prefix: seed, Session: "ns/model-3"}
		candidates := realistic(int(n))
		for i := range candidates {
			candidates[i].Load.Requests = float64(mix(seed+uint64(i)) % 9)
		}
		var s, again Scratch
		_, err := p.Schedule(r, append([]Candidate{}, candidates...), &s)
		_, second := p.Schedule(r, append([]Candidate{}, candidates...), &again)
		require.Equal(t, err, second)
		require.Equal(t, s.Places(), again.Places())
		require.Equal(t, s.Totals(), again.Totals())
		if err != nil {
			require.Empty(t, s.Places())
			return
		}
		require.LessOrEqual(t, len(s.Places()), max(int(most), 1))
		seen := map[int]bool{}
		for _, place := range s.Places() {
			require.False(t, seen[place])
			seen[place] = true
			require.Less(t, place, len(s.Candidates()))
		}
		if len(s.Places()) < max(int(most), 1) {
			require.Len(t, s.Places(), len(s.Candidates()))
		}
	})
}
