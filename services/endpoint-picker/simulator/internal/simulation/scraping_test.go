package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

// scraped runs a picker on two servers until the end of the warm-up, and returns how often each page was asked for in the last ten seconds.
func scraped(t *testing.T, p Policy, rate float64, change func(e *Engine)) (pages []int, w *watched) {
	t.Helper()
	s := find(t, StandardScenarios(), "zipf").withServers(2).withChange(change)
	s.Workload.rate = max(rate, 0.001)
	s.Warm, s.Measured = 12*time.Second, time.Second
	w = watch(p)
	trace := s.Trace(1)
	f := &fleet{timeline: &timeline{}, seed: 1, contents: trace.contents}
	f.chooser = w.start(f)
	for _, e := range s.Servers {
		f.addEngine(e)
	}
	if rate > 0 {
		g := &gateway{timeline: f.timeline, chooser: f.chooser, result: &Result{}, open: len(trace.arrivals)}
		for _, a := range trace.arrivals {
			f.timeline.scheduleAt(a.at, func() { g.tryServer(a) })
		}
	}
	f.timeline.scheduleAt(s.Warm-10*time.Second, func() {
		for _, one := range f.servers {
			pages = append(pages, -one.pages)
		}
	})
	f.timeline.scheduleAt(s.Warm, func() {
		for i, one := range f.servers {
			pages[i] += one.pages
		}
	})
	f.timeline.runWhile(func() bool { return f.timeline.now < s.Warm })
	return pages, w
}

// busy is a rate at which a server always has a request, or nearly so.
const busy = 20

// reading is a picker whose configuration has a metrics-data-source with parameters.
func reading(t *testing.T, parameters string) Policy {
	t.Helper()
	return ConfiguredPicker("configured", 1, func(o pluginconfig.Options) *pluginconfig.Config {
		c, err := pluginconfig.Load(fmt.Appendf(nil, "kind: EndpointPickerConfig\napiVersion: llm-d.ai/v1alpha1\nplugins:\n- type: predicted-wait-scorer\n"+
			"- type: metrics-data-source\n  parameters: {%s}\n- type: core-metrics-extractor\n"+
			"dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}\n", parameters), o)
		require.NoError(t, err)
		return c
	})
}

// Pages are read as often as the scraper reads them: see the table of package modelserver.
func TestPagesAreReadAsTheScraperDoes(t *testing.T) {
	t.Parallel()
	steady := func(*Engine) {}
	fault := func(f PageFault) func(e *Engine) { return func(e *Engine) { e.Fault = f } }
	slow := func(e *Engine) { e.PageDelay = 400 * time.Millisecond }
	tooSlow := func(e *Engine) { e.PageDelay = 3 * time.Second }
	for _, tt := range []struct {
		name        string
		picker      Policy
		rate        float64
		change      func(e *Engine)
		least, most int
		failures    bool
	}{
		{"no traffic: the slowest", IndependentPickers(1, InTurn), 0, steady, 9, 11, false},
		{"traffic: faster", IndependentPickers(1, InTurn), busy, steady, 30, 105, false},
		{"little traffic: leases foretell the pages", IndependentPickers(1, InTurn), 1, steady, 9, 60, false},
		{"a frozen page surprises each time", IndependentPickers(1, InTurn), busy, fault(Frozen), 85, 105, false},
		{"a slow page: one at a time", IndependentPickers(1, InTurn), busy, slow, 15, 25, false},
		{"too slow: once in a time limit", IndependentPickers(1, InTurn), busy, tooSlow, 9, 11, true},
		{"hangs: once in a time limit", IndependentPickers(1, InTurn), busy, fault(Hangs), 9, 11, true},
		{"fails: once a second", IndependentPickers(1, InTurn), busy, fault(Fails), 9, 11, true},
		{"a shorter interval in the configuration", reading(t, "interval: 20ms"), busy, steady, 120, 600, false},
		{"a longer one", reading(t, "interval: 2s"), busy, steady, 4, 6, false},
		{"two replicas: each reads", IndependentPickers(2, InTurn), 0, steady, 18, 22, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pages, w := scraped(t, tt.picker, tt.rate, tt.change)
			for i, n := range pages {
				assert.GreaterOrEqual(t, n, tt.least, "server %d", i)
				assert.LessOrEqual(t, n, tt.most, "server %d", i)
				stats := w.replicas[0].members[i].endpoint.StatsAt(w.fleet.timeline.Now())
				assert.Equal(t, tt.failures, stats.ScrapeFailures > 0)
				assert.Equal(t, !tt.failures, stats.Sampled)
			}
		})
	}
}

// A configuration without a source of metrics reads no page.
func TestNoPageIsReadWithoutASource(t *testing.T) {
	t.Parallel()
	p := ConfiguredPicker("off", 1, func(o pluginconfig.Options) *pluginconfig.Config {
		c := pluginconfig.Default(o)
		c.Scraping.Off = true
		return c
	})
	pages, _ := scraped(t, p, busy, func(*Engine) {})
	assert.Equal(t, []int{0, 0}, pages)
}

// All servers of a replica share the scraper's budget.
func TestScrapesOfManyServersShareABudget(t *testing.T) {
	t.Parallel()
	s := find(t, StandardScenarios(), "zipf").withServers(70).withChange(func(e *Engine) { e.Fault = Idle })
	s.Warm, s.Measured, s.Workload.rate = time.Second, 2*time.Second, 350
	w := watch(IndependentPickers(1, InTurn))
	sum := 0
	during := Policy{start: func(f *fleet) chooser {
		c := w.start(f)
		count := func(sign int) {
			for _, one := range f.servers {
				sum += sign * one.pages
			}
		}
		f.timeline.scheduleAt(s.Warm, func() { count(-1) })
		f.timeline.scheduleAt(s.Warm+s.Measured, func() { count(1) })
		return c
	}}
	s.Trace(1).Run(during)
	for _, one := range w.fleet.servers {
		assert.Greater(t, one.pages, 5)
	}
	assert.InDelta(t, 400, float64(sum)/s.Measured.Seconds(), 60)
}
