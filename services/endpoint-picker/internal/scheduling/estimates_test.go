package scheduling

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSetEstimates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		filters  []Filter
		scorers  []Scorer
		detector Detector
		want     bool // it reads estimates
	}{
		{name: "nothing"},
		{name: "load", filters: []Filter{StalenessFilter{}, SessionFilter{}}, scorers: []Scorer{QueueScorer{}, ActiveScorer{}, ConsistentHashScorer{}}, detector: UtilizationDetector{}},
		{name: "expected wait", scorers: []Scorer{QueueScorer{}, PredictedWaitScorer{}}, want: true},
		{name: "prefix scorer", scorers: []Scorer{PrefixScorer{}}, want: true},
		{name: "prefix filter", filters: []Filter{PrefixAffinityFilter{}}, want: true},
		{name: "tokens", scorers: []Scorer{TokenLoadScorer{}}, want: true},
		{name: "detector of requests", detector: ConcurrencyDetector{Requests: 10}},
		{name: "detector of tokens", detector: ConcurrencyDetector{Tokens: 10}, want: true},
		{name: "filter of tokens", filters: []Filter{ConcurrencyDetector{Tokens: 10}}, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Profile{Filters: tt.filters}
			for _, s := range tt.scorers {
				p.Scorers = append(p.Scorers, WeightedScorer{Scorer: s})
			}
			p.SetEstimates(tt.detector)
			assert.Equal(t, !tt.want, p.WithoutEstimates)
		})
	}
}

// A scorer whose scores depend on estimates must implement estimateReader.
func TestScorersDeclareTheEstimatesTheyRead(t *testing.T) {
	t.Parallel()
	blank := func() []Candidate {
		return []Candidate{{Server: &Server{Name: "a"}}, {Server: &Server{Name: "b"}}}
	}
	estimated := blank()
	estimated[0].Matched, estimated[0].Load.Tokens, estimated[0].Load.Wait = 500, 1000, 3
	estimated[1].Matched, estimated[1].Load.Tokens, estimated[1].Load.Wait = 10, 100, 1
	r := &Request{Tokens: 1000, Prefix: 7}
	for _, s := range []Scorer{
		QueueScorer{}, RunningScorer{}, KVCacheScorer{}, QueueLimitScorer{Threshold: 1}, ActiveScorer{}, ConsistentHashScorer{Bound: 1.25},
		SessionScorer{}, AdapterScorer{}, AttributeScorer{}, PredictedWaitScorer{}, PrefixScorer{}, TokenLoadScorer{Threshold: 5000},
	} {
		without, with := make([]float64, 2), make([]float64, 2)
		s.Score(r, estimated, with)
		plain := blank()
		plain[0].Load.Wait, plain[1].Load.Wait = 1, 1
		s.Score(r, plain, without)
		assert.Equal(t, !readsEstimates(s), assert.ObjectsAreEqual(without, with), "%T", s)
	}
}
