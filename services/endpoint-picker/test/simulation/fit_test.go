package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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

func TestPickerExpectsWhatServersKeep(t *testing.T) {
	t.Parallel()
	prefixes := Prefixes{Count: 48, Skew: 0.6, Tokens: 1200, Own: 150, Answer: 60}
	for _, tokenizer := range []struct {
		name  string
		bytes []float64
	}{{"2.5 bytes", []float64{2.5}}, {"4.4 bytes", []float64{4.4}}, {"6 bytes", []float64{6}}} {
		for _, cache := range []struct {
			name   string
			change func(e *Engine)
		}{
			{"blocks of 16", func(*Engine) {}},
			{"blocks of 128", func(e *Engine) { e.BlockTokens, e.Blocks = 128, e.Blocks/8 }},
			{"hybrid", func(e *Engine) { e.BlockTokens, e.Blocks, e.Cache = 128, 64, CacheKind{Part: 10, Alignment: 5} }},
			{"off", func(e *Engine) { e.Cache.Off = true }},
		} {
			for _, reports := range []struct {
				name string
				Reports
			}{{"usage", Reports{Usage: true, NoPage: true}}, {"page", Reports{}}, {"both", Reports{Usage: true}}} {
				for _, replicas := range []int{1, 2} {
					for _, restart := range []bool{false, true} {
						name := tokenizer.name + "/" + cache.name + "/" + reports.name
						if replicas == 2 {
							name += "/two replicas"
						}
						if restart {
							name += "/restart"
						}
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							s := keeping(prefixes.Workload(20), func(e *Engine) {
								e.Reports = reports.Reports
								cache.change(e)
							})
							s.Workload.bytes, s.Restart = tokenizer.bytes, restart
							got := measurePrefixes(s, Picker(replicas, InTurn), 1)
							t.Logf("expected %.3f, reported %.3f, real %.3f", got.expected, got.reported, got.real)
							assert.InDelta(t, got.reported, got.expected, 0.05)
							if !restart {
								assert.InDelta(t, got.real, got.reported, 0.05)
							}
						})
					}
				}
			}
		}
	}
}
