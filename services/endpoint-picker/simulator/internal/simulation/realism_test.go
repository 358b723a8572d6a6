package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func wordsOf(text string) []string {
	var tokens []string
	from := 0
	for _, end := range appendWords(nil, []byte(text), 0) {
		tokens = append(tokens, text[from:end])
		from = end
	}
	return tokens
}

func TestTokensAreWords(t *testing.T) {
	t.Parallel()
	const text = "<|user|>the quick brown fox, and \"others\"\n"
	tokens := wordsOf(text)
	assert.Subset(t, tokens, []string{"<", "|", ",", "\"", "\n"})
	assert.Subset(t, []string{" quick", " qu", "ick"}, tokens[slices.IndexFunc(tokens, func(s string) bool { return s[0] == ' ' }):][:1])
	for cut := range len(text) {
		before := wordsOf(text[:cut])
		if cut == 0 || isLetter(text[cut]) {
			continue // within a word, or before one that belongs to the space before it
		}
		assert.Equal(t, tokens[:len(before)], before, "%q alone has the same tokens", text[:cut])
	}
	assert.InDelta(t, 4.4, bytesPerToken(prose()), 0.1)
	assert.InDelta(t, 2.3, bytesPerToken(code()), 0.1)
}

func bytesPerToken(text string) float64 {
	return float64(len(text)) / float64(len(appendWords(nil, []byte(text), 0)))
}

// What a server computes and caches is not what the picker counts.
func TestRealisticTrafficHasOtherTokens(t *testing.T) {
	t.Parallel()
	s := find(t, StandardScenarios(), "multiturn")
	w := s.Realistic().Workload
	last := map[int]*arrival{}
	turns, ratios := 0, map[int]bool{}
	for _, a := range generated(t, w, 1) {
		body := len(a.appendBody(nil))
		ratios[10*body/a.prompt/int(charsPerToken)] = true
		assert.InDelta(t, (a.prompt+a.out)/a.blockTokens, len(a.chain), 1)
		if before := last[a.group]; before != nil && len(before.messages) < len(a.messages) {
			turns++
			n := (before.prompt + before.out) / before.blockTokens
			require.Equal(t, before.chain[:n], a.chain[:n], "a turn begins with the tokens of the one before, and its answer's")
		}
		last[a.group] = a
	}
	assert.Positive(t, turns)
	assert.Greater(t, len(ratios), 4, "prompts differ in bytes a token")
}

func TestGaugesAreAsOldAsTheLastStep(t *testing.T) {
	t.Parallel()
	e := plain()
	e.StaleGauges = true
	s := newServer(e)
	shown := func() []float64 {
		g, _, _ := s.metricsPage()
		return []float64{g.Running, g.Waiting}
	}
	for i := range 4 {
		s.enqueue(&job{arrival: asking(40, 8, 10*i), watcher: &log{}})
	}
	assert.Equal(t, []float64{0, 0}, shown(), "the first step is under way")
	until := func(d time.Duration) { s.timeline.runWhile(func() bool { return s.timeline.now < d }) }
	until(1040 * time.Millisecond)
	assert.Equal(t, []float64{1, 0}, shown(), "the others came after it began")
	until(2 * time.Second)
	assert.Equal(t, []float64{2, 2}, shown())
	until(time.Hour)
	g, _, _ := s.metricsPage()
	assert.Equal(t, endpoint.Gauges{Blocks: 100, Alignment: 16, Queries: 160, Counted: true}, g)
}

func TestPageHoldsUpTokens(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	e := plain()
	e.PageTime = 30 * ms
	s := newServer(e)
	s.timeline.scheduleAt(1040*ms, func() {
		_, took, _ := s.metricsPage()
		assert.Equal(t, 30*ms, took)
		_, took, _ = s.metricsPage()
		assert.Equal(t, 60*ms, took, "one after the other")
	})
	jobs := serve(s, asking(50, 2, 0))
	assert.Equal(t, 1100*ms, jobs[0].first, "made at 1050 ms")
	assert.Equal(t, 2150*ms, jobs[0].done, "the next step does not wait")
	assert.Equal(t, []string{"began", "ended"}, jobs[0].watcher.(*log).told)
}

// A server that dies while a page holds up the first token has lost the request, and what is lost has not begun.
func TestLostWhileThePageHoldsUpAToken(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	e := plain()
	e.PageTime = 100 * ms
	s := newServer(e)
	s.timeline.scheduleAt(1040*ms, func() { s.metricsPage() })
	s.timeline.scheduleAt(1060*ms, s.kill)
	j := serve(s, asking(50, 2, 0))[0]
	assert.Equal(t, []string{"lost"}, j.watcher.(*log).told)
	assert.Zero(t, j.first)
}

func TestForecastKnowsTheLawAndNotTheNoise(t *testing.T) {
	t.Parallel()
	realistic := find(t, StandardScenarios(), "uniform").Realistic().Servers[0]
	run := func(noise float64) (forecast, took time.Duration) {
		e := realistic
		e.Law.Noise = noise
		f := &fleet{timeline: &timeline{}, chooser: &reference{}, seed: 1, contents: contents}
		f.addEngine(e)
		s := f.servers[0]
		a := asking(3000, 5, 0)
		forecast = s.forecast(a)
		return forecast, serve(s, a)[0].first
	}
	forecast, took := run(0)
	assert.Equal(t, forecast, took)
	noisy, took := run(0.2)
	assert.Equal(t, forecast, noisy)
	assert.NotEqual(t, forecast, took)
	assert.InEpsilon(t, forecast, took, 0.5)
}
