package plugins

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// customMetrics returns an extractor that reads custom metrics.
func customMetrics(attributes ...string) modelserver.Extractor {
	e := modelserver.DefaultSettings().Extractor
	e.Engines = []modelserver.Engine{{Name: "mine", Waiting: modelserver.Metrics{"q"}}}
	for _, a := range attributes {
		e.Engines[0].Custom = append(e.Engines[0].Custom, modelserver.CustomMetric{Attribute: a, Metric: a})
	}
	return e
}

func scoresOf(s scheduling.Scorer, r *pickRequest, candidates []candidate) []float64 {
	scores := make([]float64, len(candidates))
	s.Score(r, candidates, scores)
	return scores
}

func TestScorers(t *testing.T) {
	t.Parallel()
	withAdapters := func(list ...*adapters) []candidate {
		loads := []load{{}}
		for _, a := range list {
			loads = append(loads, load{Page: &page{Adapters: a}})
		}
		return busy(loads...)
	}
	cached := func(tokens ...int) []candidate { return matched(make([]load, len(tokens)), tokens...) }
	temperatures := pages(map[string]float64{"t": 10}, map[string]float64{"t": 20}, map[string]float64{"t": 50})
	const attribute, lower = "endpoint-attribute-scorer", "{attributeKey: t, algorithm: {type: linear_lower_is_better}}"
	tests := []struct {
		name       string
		scorer     string
		parameters string
		request    pickRequest
		give       []candidate
		want       []float64
	}{
		{name: "predicted wait", scorer: "predicted-wait-scorer", give: busy(load{Wait: 0.2}, load{Wait: 0.1}, load{Wait: 0.4}), want: []float64{0.5, 1, 0.25}},
		{name: "predicted wait, and the delay of others", scorer: "predicted-wait-scorer", give: busy(load{Wait: 0.2}, load{Wait: 0.1, Delay: 0.3}, load{Wait: 0.1, Delay: 0.7}), want: []float64{1, 0.5, 0.25}},
		{name: "queue", scorer: "queue-scorer", give: busy(load{Waiting: 2}, load{Waiting: 10}, load{Waiting: 4}), want: []float64{1, 0, 0.75}},
		{name: "queue, equal", scorer: "queue-scorer", give: busy(load{Waiting: 2}, load{Waiting: 2}), want: []float64{1, 1}},
		{name: "running", scorer: "running-requests-size-scorer", give: busy(load{Running: 0, Waiting: 9}, load{Running: 8}, load{Running: 6}), want: []float64{1, 0, 0.25}},
		{name: "KV cache", scorer: "kv-cache-utilization-scorer", give: busy(load{KVUsage: 0.3}, load{}, load{KVUsage: 1}), want: []float64{0.7, 1, 0}},

		{name: "prefix", scorer: "prefix-cache-scorer", request: pickRequest{Tokens: 100}, give: cached(0, 50, 100, 112), want: []float64{0, 0.5, 1, 1}},
		{name: "prefix, no prompt", scorer: "prefix-cache-scorer", give: cached(0, 16), want: []float64{0, 0}},
		{name: "prefix, by its length too", scorer: "prefix-cache-scorer", parameters: "{matchLengthWeight: 0.5, matchLengthScaleTokens: 1000}", request: pickRequest{Tokens: 1000}, give: cached(0, 500, 1000, 2000), want: []float64{0, 0.375, 1, 1}},

		{
			name: "adapter", scorer: "lora-affinity-scorer", request: pickRequest{Model: "m"},
			give: withAdapters(nil, &adapters{Max: 1, Running: []string{"x", "m"}}, &adapters{Max: 2, Running: []string{"x"}}, &adapters{Max: 2, Running: []string{"x"}, Waiting: []string{"m"}}, &adapters{Max: 1, Running: []string{"x"}}),
			want: []float64{0, 0, 1, 0.8, 0.6, 0},
		},

		{name: "token load", scorer: "token-load-scorer", parameters: "{queueThresholdTokens: 1000}", give: busy(load{}, load{Tokens: 250}, load{Tokens: 5000}), want: []float64{1, 0.75, 0}},
		{name: "load-aware", scorer: "load-aware-scorer", give: busy(load{}, load{Waiting: 32}, load{Waiting: 500}), want: []float64{0.5, 0.375, 0}},
		{name: "active", scorer: "active-request-scorer", give: busy(load{}, load{Requests: 1}, load{Requests: 4}), want: []float64{1, 0.75, 0}},
		{name: "active, idle with some", scorer: "active-request-scorer", parameters: "{idleThreshold: 1, maxBusyScore: 0.5}", give: busy(load{Requests: 1}, load{Requests: 2}, load{Requests: 4}), want: []float64{1, 0.25, 0}},

		{name: "attribute, lower, adaptive", scorer: attribute, parameters: lower, give: temperatures, want: []float64{1, 0.75, 0, 0}},
		{name: "attribute, higher, adaptive", scorer: attribute, parameters: "{attributeKey: t, algorithm: {type: linear_higher_is_better}}", give: temperatures, want: []float64{0, 0.25, 1, 0}},
		{name: "attribute, fixed range", scorer: attribute, parameters: "{attributeKey: t, algorithm: {type: linear_lower_is_better, normalization: {fixedRange: {min: 0, max: 40}}}}", give: temperatures, want: []float64{0.75, 0.5, -0.25, 0}},
		{name: "attribute, equal", scorer: attribute, parameters: lower, give: pages(map[string]float64{"t": 3}, map[string]float64{"t": 3}), want: []float64{1, 1, 0}},
		{name: "attribute, not a number", scorer: attribute, parameters: lower, give: pages(map[string]float64{"t": math.NaN()}, map[string]float64{"t": 3}), want: []float64{0, 1, 0}},
		{name: "missing attribute", scorer: attribute, parameters: "{attributeKey: x, algorithm: {type: linear_lower_is_better}}", give: temperatures, want: []float64{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.InDeltaSlice(t, tt.want, scoresOf(scorer(t, tt.scorer, tt.parameters), &tt.request, tt.give), 1e-9)
		})
	}
}

// hashed returns n idle candidates, each on its own pod.
func hashed(n int) []candidate {
	candidates := busy(make([]load, n)...)
	for i := range candidates {
		candidates[i].Server = &server{
			Name: fmt.Sprintf("ns/model-%d", i), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000),
		}
	}
	return candidates
}

// first is the index of the best candidate.
func first(r *pickRequest, candidates []candidate) int {
	scores := scoresOf(&consistentHashScorer{LoadFactor: 1.25}, r, candidates)
	return candidates[highestIndex(scores, 0)].Index
}

func TestConsistentHashScorerMovesOnlyOwnRequests(t *testing.T) {
	t.Parallel()
	const endpoints, prompts = 10, 2000
	all := hashed(endpoints)
	counts := make([]int, endpoints)
	for prompt := uint64(1); prompt <= prompts; prompt++ {
		r := &pickRequest{Prefix: prompt}
		at := first(r, all)
		counts[at]++
		without := append(append([]candidate{}, all[:3]...), all[4:]...)
		if at != 3 {
			require.Equal(t, at, first(r, without), "another endpoint has gone")
		}
	}
	for i, n := range counts {
		assert.InDelta(t, prompts/endpoints, n, 60, "endpoint %d", i)
	}
}

func TestConsistentHashScorerSpreadsUnderLoad(t *testing.T) {
	t.Parallel()
	candidates := hashed(10)
	r := &pickRequest{Prefix: 7}
	scores := scoresOf(&consistentHashScorer{LoadFactor: 1.25}, r, candidates)
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

	assert.Equal(t, make([]float64, 10), scoresOf(&consistentHashScorer{LoadFactor: 1.25}, &pickRequest{}, candidates), "no prompt, no opinion")
}

func TestConsistentHashScorerUsesNamesAndPorts(t *testing.T) {
	t.Parallel()
	moved := hashed(10)
	for i := range moved {
		moved[i].Server.Address = netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), 8000) // restarted
	}
	ports := hashed(2)
	ports[1].Server = &server{Name: ports[0].Server.Name, Address: netip.AddrPortFrom(ports[0].Server.Address.Addr(), 8001)}
	onSecond := 0
	for prompt := uint64(1); prompt <= 1000; prompt++ {
		r := &pickRequest{Prefix: prompt}
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
		picker string
		first  []float64 // share of the draws in which each comes first
		second []float64
	}{
		{picker: "max-score-picker", first: []float64{0, 0, 1, 0, 0, 0}, second: []float64{0.5, 0, 0, 0.5, 0, 0}},
		{picker: "random-picker", first: []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}, second: []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}},
		{picker: "weighted-random-picker", first: []float64{0.2, 0, 0.5, 0.2, 0.1, 0}, second: []float64{0.272, 0, 0.306, 0.272, 0.15, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.picker, func(t *testing.T) {
			t.Parallel()
			p, random := picker(t, tt.picker, "{maxNumOfEndpoints: 2}"), rand.New(rand.NewPCG(1, 2))
			counts := [2][]float64{make([]float64, len(scores)), make([]float64, len(scores))}
			for range draws {
				places := p.Pick(&pickRequest{Random: random.Uint64()}, scores, nil)
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

// pickers returns one of each type.
func pickers(t testing.TB, most int) []scheduling.Picker {
	t.Helper()
	parameters := fmt.Sprintf("{maxNumOfEndpoints: %d}", most)
	return []scheduling.Picker{picker(t, "max-score-picker", parameters), picker(t, "random-picker", parameters), picker(t, "weighted-random-picker", parameters)}
}

func TestPickersReturnAtMostAllCandidates(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3, 100} {
		for _, p := range pickers(t, most) {
			places := p.Pick(&pickRequest{Random: 5}, []float64{0, 0, 0}, nil)
			assert.Len(t, places, min(most, 3), "%T %d", p, most)
			assert.Subset(t, []int{0, 1, 2}, places)
		}
	}
	assert.Equal(t, []int{1, 2, 0}, picker(t, "max-score-picker", "{maxNumOfEndpoints: 9}").Pick(&pickRequest{}, []float64{0.1, 0.9, 0.5}, nil))
	assert.Equal(t, []int{1}, picker(t, "weighted-random-picker", "").Pick(&pickRequest{Random: 3}, []float64{0, 1, 0}, nil))
}

func TestMaxScorePickerSpreadsEqualsEvenly(t *testing.T) {
	t.Parallel()
	counts, p := map[int]int{}, picker(t, "max-score-picker", "")
	for draw := range uint64(300) {
		counts[p.Pick(&pickRequest{Random: draw}, []float64{0.2, 0.2, 1, 0.5, 1, 1}, nil)[0]]++
	}
	assert.Equal(t, map[int]int{2: 100, 4: 100, 5: 100}, counts)
}

// everything returns a profile of all plugins.
func everything(t testing.TB) *scheduling.Profile {
	t.Helper()
	p := &scheduling.Profile{Filters: []scheduling.Filter{Staleness{}}, Picker: pickers(t, 3)[2]}
	for _, f := range [][2]string{
		{"label-selector-filter", "{matchExpressions: [{key: llm-d.ai/role, operator: NotIn, values: [encode, encode-prefill, prefill]}]}"}, {"by-label", "{label: app, validValues: [model]}"}, {"decode-filter"},
		{"session-affinity-filter"}, {"header-based-testing-filter"}, {"prefix-cache-affinity-filter", "{explorationProbability: 0.1}"},
		{"utilization-filter", "{conditions: [{metric: kv-cache-utilization, maxValue: 0.9}], fallbackOnEmpty: true}"},
		{"endpoint-attribute-filter", threshold("t", "GreaterThanOrEqual", 1, "")}, {"utilization-detector"}, {"concurrency-detector", "{maxConcurrency: 1000}"},
	} {
		p.Filters = append(p.Filters, filter(t, f[0], f[1]))
	}
	for _, s := range [][2]string{
		{"predicted-wait-scorer"}, {"queue-scorer"}, {"running-requests-size-scorer"}, {"kv-cache-utilization-scorer"},
		{"token-load-scorer", "{queueThresholdTokens: 1000000}"}, {"load-aware-scorer"}, {"active-request-scorer", "{maxBusyScore: 0}"},
		{"prefix-cache-scorer", "{matchLengthWeight: 0.5}"}, {"session-affinity-scorer", byID}, {"lora-affinity-scorer"},
		{"endpoint-attribute-scorer", "{attributeKey: t, algorithm: {type: linear_lower_is_better}}"}, {"consistent-hash-scorer"},
	} {
		p.Scorers = append(p.Scorers, scheduling.WeightedScorer{Name: s[0], Scorer: scorer(t, s[0], s[1]), Weight: 1})
	}
	return p
}

// realistic returns n candidates with all properties.
func realistic(n int) []candidate {
	candidates := hashed(n)
	for i := range candidates {
		candidates[i].Server.Labels = map[string]string{"app": "model", RoleLabel: "decode", "pod-template-hash": "7bbb54d4cd", "llm-d.ai/model": "m"}
		candidates[i].Load = load{
			Requests: float64(i % 7), Waiting: float64(i % 3), KVUsage: float64(i%10) / 12, Wait: 0.1 + float64(i%5)/10,
			Page: &page{Adapters: &adapters{Max: 2, Running: []string{"a", "b"}}, Attributes: map[string]float64{"t": float64(i)}},
		}
		candidates[i].Matched = 16 * (i % 5)
	}
	return candidates
}

// inSession returns a request of a session on an endpoint, for both strategies.
func inSession(name string) *pickRequest {
	return &pickRequest{Now: noon, Model: "m", Tokens: 64, Prefix: 9, Headers: api.Headers{
		{Name: defaultSessionHeader, Value: tokenOf(name)}, {Name: defaultSessionID, Value: "a session"},
	}}
}

func TestScheduleAllocatesNothing(t *testing.T) {
	candidates := realistic(64)
	list := make([]candidate, len(candidates))
	var s scheduling.Scratch
	r := inSession("ns/model-77:8000")
	for _, p := range []*scheduling.Profile{everything(t), {Picker: pickers(t, 1)[1]}, {Picker: pickers(t, 5)[0]}} {
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
	all := everything(b)
	for _, n := range []int{8, 64, 256} {
		candidates := realistic(n)
		list, scores := make([]candidate, n), make([]float64, n)
		r := inSession("ns/model-3:8000")
		for _, w := range all.Scorers {
			b.Run(fmt.Sprintf("%s/endpoints=%d", w.Name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.Scorer.Score(r, candidates, scores)
				}
			})
		}
		for _, f := range all.Filters {
			b.Run(fmt.Sprintf("%T/endpoints=%d", f, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					copy(list, candidates)
					f.Filter(r, list)
				}
			})
		}
		b.Run(fmt.Sprintf("everything/endpoints=%d", n), func(b *testing.B) {
			var s scheduling.Scratch
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

// FuzzProfiles checks that the list of any profile contains candidates, each once, and that the same input gives the same
// list.
func FuzzProfiles(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint16(0xffff), uint8(2))
	f.Add(uint64(2), uint8(40), uint16(0x1f), uint8(0))
	all := everything(f)
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, plugins uint16, most uint8) {
		p := &scheduling.Profile{}
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
		limit := max(int(most), 1)
		p.Picker = pickers(t, limit)[seed%3]
		r := inSession("ns/model-3:8000")
		r.Random, r.Prefix = seed, seed
		candidates, random := realistic(int(n)), rand.New(rand.NewPCG(seed, 1))
		for i := range candidates {
			candidates[i].Load.Requests = float64(random.IntN(9))
		}
		var s, again scheduling.Scratch
		_, err := p.Schedule(r, append([]candidate{}, candidates...), &s)
		_, second := p.Schedule(r, append([]candidate{}, candidates...), &again)
		require.Equal(t, err, second)
		require.Equal(t, s.Places(), again.Places())
		require.Equal(t, s.Totals(), again.Totals())
		if err != nil {
			require.Empty(t, s.Places())
			return
		}
		require.LessOrEqual(t, len(s.Places()), limit)
		seen := map[int]bool{}
		for _, place := range s.Places() {
			require.False(t, seen[place])
			seen[place] = true
			require.Less(t, place, len(s.Candidates()))
		}
		if len(s.Places()) < limit {
			require.Len(t, s.Places(), len(s.Candidates()))
		}
	})
}
