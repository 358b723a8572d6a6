package simulation

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// keeping is a fleet of four servers whose caches hold a part of what is asked for.
func keeping(w Workload, change func(e *Engine)) Scenario {
	s := usualScenario("keeping", w).withServers(4).withChange(func(e *Engine) {
		e.Blocks = 2048
		change(e)
	})
	s.Workload.rate = w.rate
	s.Warm, s.Measured = 60*time.Second, 30*time.Second
	return s
}

// fewPrefixes are more than a cache holds if it keeps a part only.
var fewPrefixes = Prefixes{Count: 48, Skew: 0.6, Tokens: 1200, Own: 150, Answer: 60}

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
				t := m.endpoint.StatsAt(epoch).Prefix
				sum.Prompt, sum.Expected, sum.Reported = sum.Prompt+t.Prompt, sum.Expected+t.Expected, sum.Reported+t.Reported
			}
		}
		for _, server := range w.fleet.servers {
			queries, hits = queries+sign*server.queries, hits+sign*server.hits
		}
	}
	measured := Policy{start: func(f *fleet) chooser {
		c := w.start(f)
		f.timeline.scheduleAt(s.Warm, func() { read(&before, -1) })
		f.timeline.scheduleAt(s.Warm+s.Measured, func() { read(&after, 1) })
		return c
	}}
	s.Trace(seed).Run(measured)
	prompt := float64(after.Prompt - before.Prompt)
	return prefixRates{
		expected: float64(after.Expected-before.Expected) / prompt, reported: float64(after.Reported-before.Reported) / prompt,
		real: float64(hits) / float64(queries),
	}
}

// kept is a fleet whose caches keep a part of what is asked for, or less than its pages say.
type kept struct {
	name     string
	bytes    float64 // per token
	engine   func(e *Engine)
	reports  Reports
	replicas int
	restart  time.Duration
	within   float64       // 0 is 5 points
	warm     time.Duration // 0 is the usual time
}

var (
	byUsage = Reports{Usage: true, NoPage: true}
	byPage  = Reports{}
	byBoth  = Reports{Usage: true} // without hits, zeros in usage alone are no evidence
)

func smallBlocks(*Engine)   {}
func largeBlocks(e *Engine) { e.BlockTokens, e.Blocks = 128, e.Blocks/8 }
func hybrid(e *Engine)      { e.BlockTokens, e.Blocks, e.Cache = 128, 64, CacheKind{Part: 10, Alignment: 5} }
func noCache(e *Engine)     { e.Cache.Off = true }

const restarted = 20 * time.Second

// assertExpected checks that the hit rate that the picker expects is the one that servers report and have.
func (k kept) assertExpected(t *testing.T) {
	t.Helper()
	s := keeping(fewPrefixes.Workload(20), func(e *Engine) {
		e.Reports = k.reports
		k.engine(e)
	})
	s.Workload.bytes, s.Restart = []float64{k.bytes}, k.restart
	if k.restart > 0 {
		s.Warm += k.restart + 5*time.Second
	}
	if k.warm > 0 {
		s.Warm, s.Measured = k.warm, k.warm
	}
	got := measurePrefixes(s, IndependentPickers(k.replicas, InTurn), *firstSeed)
	t.Logf("expected %.3f, reported %.3f, real %.3f", got.expected, got.reported, got.real)
	assert.InDelta(t, 0, got.expected-got.real, cmp.Or(k.within, 0.05))
	assert.InDelta(t, 0, got.reported-got.real, 0.02)
}

// A cache that keeps what it says, by answers, and one that keeps less, by its page. All others are in fit_long_test.go.
func TestPickerExpectsWhatServersKeepOnce(t *testing.T) {
	t.Parallel()
	for _, k := range []kept{
		{name: "blocks of 16, by usage", bytes: 2.5, engine: smallBlocks, reports: byUsage, replicas: 1, warm: 15 * time.Second},
		{name: "hybrid, by page", bytes: 6, engine: hybrid, reports: byPage, replicas: 1, warm: 30 * time.Second},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.assertExpected(t)
		})
	}
}
