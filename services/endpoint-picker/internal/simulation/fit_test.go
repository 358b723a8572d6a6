package simulation

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/racetest"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// keeping is a fleet of four servers whose caches hold a part of what is asked for.
func keeping(w Workload, change func(e *Engine)) Scenario {
	s := usual("keeping", w).of(4).with(func(e *Engine) {
		e.Blocks = 2048
		change(e)
	})
	s.Workload.rate = w.rate
	s.Warm, s.Measured = 60*time.Second, 30*time.Second
	return s
}

// prefixRates are shares of prompt tokens.
type prefixRates struct{ expected, reported, real float64 }

// measurePrefixes runs a scenario, and compares the metrics of the picker's endpoints with the caches of their servers, from the end of
// the warm-up on.
func measurePrefixes(s Scenario, p Policy, seed uint64) prefixRates {
	w := watch(p)
	var before, after endpoint.PrefixTokens
	var queries, hits int
	read := func(sum *endpoint.PrefixTokens, sign int) {
		for _, r := range w.replicas {
			for _, m := range r.members {
				t := m.endpoint.Stats(epoch).Prefix
				sum.Prompt, sum.Expected, sum.Reported = sum.Prompt+t.Prompt, sum.Expected+t.Expected, sum.Reported+t.Reported
			}
		}
		for _, server := range w.fleet.servers {
			queries, hits = queries+sign*server.queries, hits+sign*server.hits
		}
	}
	measured := Policy{start: func(f *fleet) chooser {
		c := w.start(f)
		f.timeline.at(s.Warm, func() { read(&before, -1) })
		f.timeline.at(s.Warm+s.Measured, func() { read(&after, 1) })
		return c
	}}
	s.Trace(seed).Run(measured)
	prompt := float64(after.Prompt - before.Prompt)
	return prefixRates{
		expected: float64(after.Expected-before.Expected) / prompt, reported: float64(after.Reported-before.Reported) / prompt,
		real: float64(hits) / float64(queries),
	}
}

// The hit rate that the picker expects is the one that servers report and have, whatever their engine, tokenizer and page, after a minute
// of traffic. The page does not tell our hits from those of another replica, which matters where most prompts are lost.
func TestPickerExpectsWhatServersKeep(t *testing.T) {
	racetest.SkipCalculation(t)
	t.Parallel()
	var (
		prefixes  = Prefixes{Count: 48, Skew: 0.6, Tokens: 1200, Own: 150, Answer: 60}
		usage     = Reports{Usage: true, NoPage: true}
		page      = Reports{}
		both      = Reports{Usage: true} // without hits, zeros in usage alone are no evidence
		small     = func(*Engine) {}
		large     = func(e *Engine) { e.BlockTokens, e.Blocks = 128, e.Blocks/8 }
		hybrid    = func(e *Engine) { e.BlockTokens, e.Blocks, e.Cache = 128, 64, CacheKind{Part: 10, Alignment: 5} }
		off       = func(e *Engine) { e.Cache.Off = true }
		restarted = 20 * time.Second
	)
	for _, tt := range []struct {
		name     string
		bytes    float64 // per token
		engine   func(e *Engine)
		reports  Reports
		replicas int
		restart  time.Duration
		within   float64 // 0 is 5 points
	}{
		{"blocks of 16, by usage", 2.5, small, usage, 1, 0, 0},
		{"blocks of 16, by page", 6, small, page, 1, restarted, 0},
		{"blocks of 16, by usage, two replicas", 6, small, usage, 2, restarted, 0},
		{"blocks of 16, by page, two replicas", 4.4, small, page, 2, 0, 0},
		{"blocks of 128, by usage", 4.4, large, usage, 1, restarted, 0},
		{"blocks of 128, by page", 2.5, large, page, 1, 0, 0},
		{"blocks of 128, by usage, two replicas", 2.5, large, usage, 2, 0, 0},
		{"blocks of 128, by page, two replicas", 6, large, page, 2, restarted, 0},
		{"hybrid, by usage", 4.4, hybrid, usage, 1, 0, 0},
		{"hybrid, by page", 6, hybrid, page, 1, restarted, 0},
		{"hybrid, by usage, two replicas", 2.5, hybrid, usage, 2, restarted, 0},
		{"hybrid, by page, two replicas", 4.4, hybrid, page, 2, 0, 0.09},
		{"off, by usage and page", 2.5, off, both, 1, restarted, 0},
		{"off, by page", 6, off, page, 1, 0, 0},
		{"off, by usage and page, two replicas", 6, off, both, 2, 0, 0},
		{"off, by page, two replicas", 2.5, off, page, 2, restarted, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := keeping(prefixes.Workload(20), func(e *Engine) {
				e.Reports = tt.reports
				tt.engine(e)
			})
			s.Workload.bytes, s.Restart = []float64{tt.bytes}, tt.restart
			if tt.restart > 0 {
				s.Warm += tt.restart + 5*time.Second
			}
			got := measurePrefixes(s, Picker(tt.replicas, InTurn), *firstSeed)
			t.Logf("expected %.3f, reported %.3f, real %.3f", got.expected, got.reported, got.real)
			assert.InDelta(t, 0, got.expected-got.real, cmp.Or(tt.within, 0.05))
			assert.InDelta(t, 0, got.reported-got.real, 0.02)
		})
	}
}
