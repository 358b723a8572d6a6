package estimate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// engine is a server that computes one prompt after the other, at these costs.
type engine struct {
	*Server

	costs    Costs
	slowdown float64
	idleAt   float64 // seconds after noon
}

// serve places a request and answers it.
func (e *engine) serve(now float64, tokens int) { e.serveAfter(now, tokens, 0) }

// serveAfter does so for a prompt with a part in the cache.
func (e *engine) serveAfter(now float64, tokens, context int) {
	p := Prefill{Tokens: tokens, Context: context}
	q := e.begin(after(now), p, 0)
	e.idleAt = max(e.idleAt, now) + e.slowdown*e.costs.estimateTTFT(float64(e.decoding.Load()), 0, e.costs.prefillWork(&p))
	q.OnFirstToken(after(e.idleAt))
	q.OnEnd(endpoint.Finished)
}

// Attention costs as much as all the rest for prompts of 50 000 tokens, and the first token of a long conversation costs more than
// that of a short one.
func TestLearner_FindsTheCostOfContext(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	costs := Costs{Base: 0.012, PerDecoding: 0.0001, PerToken: 32e-6, PerPair: 1.2e-9}
	x := newTestEstimator(1 << 20)
	e := &engine{Server: x.addServer(), costs: costs, slowdown: 1}
	for range 3000 {
		e.decoding.Store(random.Int64N(40))
		e.serveAfter(e.idleAt+random.ExpFloat64(), int(math.Exp(4+8*random.Float64())), int(math.Exp(11.5*random.Float64())))
	}
	for _, p := range []Prefill{{Tokens: 3000}, {Tokens: 1000, Context: 100_000}, {Tokens: 100_000}, {Tokens: 50_000, Context: 50_000}} {
		got := x.Costs()
		assert.InEpsilon(t, costs.estimateTTFT(10, 0, costs.prefillWork(&p)), got.estimateTTFT(10, 0, got.prefillWork(&p))*e.slowdownFactor(), 0.1,
			"%+v", p)
	}
}

func TestLearner_FindsTheCosts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Costs
	}{
		{name: "the prior", give: priorCosts},
		{name: "ten times slower", give: Costs{Base: 0.1, PerDecoding: 0.001, PerToken: 500e-6}},
		{name: "slow prefill", give: Costs{Base: 0.005, PerToken: 1e-3}},
		{name: "fast prefill", give: Costs{Base: 0.03, PerDecoding: 0.0005, PerToken: 5e-6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 1))
			x := newTestEstimator(1 << 20)
			e := &engine{Server: x.addServer(), costs: tt.give, slowdown: 1}
			for range 3000 {
				e.decoding.Store(random.Int64N(40))
				e.serve(e.idleAt+random.ExpFloat64(), random.IntN(4000))
			}
			for _, decoding := range []float64{0, 20, 40} {
				for _, tokens := range []float64{10, 300, 4000} {
					assert.InEpsilon(t, tt.give.estimateTTFT(decoding, 0, tokens), x.Costs().estimateTTFT(decoding, 0, tokens)*e.slowdownFactor(), 0.1,
						"%v decoding, %v tokens", decoding, tokens)
				}
			}
		})
	}
}

// TestLearner_ShowsWhatItLearned: the prior is no speed of a server, and neither is the least cost that a token can have.
func TestLearner_ShowsWhatItLearned(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	serve := func(x *Estimator, perToken, slowdown float64, times int) *engine {
		e := &engine{Server: x.addServer(), costs: Costs{Base: 0.01, PerToken: perToken}, slowdown: slowdown}
		for range times {
			e.serve(e.idleAt+random.ExpFloat64(), random.IntN(4000))
		}
		return e
	}
	x := newTestEstimator(1 << 20)
	e := serve(x, 1e-4, 1, learnedCosts-10)
	assert.Zero(t, e.Estimates().PrefillRate)
	serve(x, 1e-4, 1, 20)
	assert.InEpsilon(t, 1e4, e.Estimates().PrefillRate, 0.15)
	e.Server.slowdown.Store(2)
	assert.InEpsilon(t, 0.5e4, e.Estimates().PrefillRate, 0.15)
	e.backlog.Store(5000)
	assert.InEpsilon(t, 1, e.Estimates().BacklogTime.Seconds(), 0.15)

	assert.Zero(t, serve(newTestEstimator(1<<20), 0, 1, 1000).Estimates().PrefillRate, "prompts cost nothing")
}

func TestServer_ShowsItsBatch(t *testing.T) {
	t.Parallel()
	e := newTestEstimator(1 << 20).addEndpoint(1)
	observeOften(&ServerOf(e).batch, 100, 4, 0)
	assert.Zero(t, e.StatsAt(noon).BatchCapacity, "it never had a queue")
	observeOften(&ServerOf(e).batch, batchPages+1, 4, 3)
	assert.InDelta(t, 4, e.StatsAt(noon).BatchCapacity, 0)
}

func TestLearner_FindsTheHitRates(t *testing.T) {
	t.Parallel()
	for _, expected := range []float64{0, 0.3, 0.9} {
		random := rand.New(rand.NewPCG(3, 3))
		x := newTestEstimator(1 << 20)
		e := &engine{Server: x.addServer(), costs: Costs{Base: 0.01, PerToken: 40e-6}, slowdown: 1}
		history := 1 - expected
		for i := range 4500 {
			p := Prefill{Tokens: random.IntN(4000)}
			switch i % 3 {
			case 0:
				p.Expected = p.Tokens
			case 1:
				p.History = p.Tokens
			}
			cached := 0 // all of it, or nothing
			if random.Float64() < expected {
				cached = p.Expected
			}
			if random.Float64() < history {
				cached += p.History
			}
			q := e.begin(after(e.idleAt+1), p, 0)
			e.idleAt += 1 + e.costs.estimateTTFT(0, 0, float64(p.Tokens-cached))
			q.OnFirstToken(after(e.idleAt))
			q.OnEnd(endpoint.Finished)
		}
		c := x.Costs()
		assert.InDelta(t, expected, c.ExpectedHitRate, 0.12)
		assert.InDelta(t, history, c.HistoryHitRate, 0.12)
		assert.InDelta(t, 1000-1000*c.ExpectedHitRate, c.uncachedTokens(&Prefill{Tokens: 1000, Expected: 1000}), 1e-9)
		assert.InDelta(t, 1000-800*c.HistoryHitRate, c.uncachedTokens(&Prefill{Tokens: 1000, History: 800}), 1e-9)
	}
}

func TestLearner_FindsTheCostOfOtherReplicasRequests(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 4))
	x := newTestEstimator(1 << 20)
	e := &engine{Server: x.addServer(), costs: Costs{Base: 0.01, PerOther: 0.007, PerToken: 40e-6}, slowdown: 1}
	for range 2000 {
		others, tokens := float64(random.IntN(10)), float64(random.IntN(2000))
		q := e.begin(after(e.idleAt+1), Prefill{Tokens: int(tokens)}, others)
		e.idleAt += 1 + e.costs.estimateTTFT(0, others, tokens)
		q.OnFirstToken(after(e.idleAt))
		q.OnEnd(endpoint.Finished)
	}
	assert.InEpsilon(t, 0.007, x.Costs().PerOther, 0.05)
	few, many := e.ttftAfter(e.idleAt, x.Costs(), 1, serverLoad{}), e.ttftAfter(e.idleAt, x.Costs(), 1, serverLoad{others: 10})
	assert.InEpsilon(t, 0.07, many-few, 0.1)
}

func TestLearner_IsUsableFromTheFirstRequestOn(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	assert.InDelta(t, priorCosts.Base, x.Costs().Base, 1e-9)
	e := &engine{Server: x.addServer(), costs: Costs{Base: 1, PerToken: 1e-3}, slowdown: 1}
	for range 30 {
		e.serve(e.idleAt+1, 500)
		c := x.Costs()
		for _, cost := range []float64{c.Base, c.PerDecoding, c.PerToken} {
			require.False(t, math.IsNaN(cost) || math.IsInf(cost, 0) || cost < 0, "%+v", c)
		}
	}
}

func TestLearner_LimitsObservationsOfRequestsThatWaitedForMemory(t *testing.T) {
	t.Parallel()
	x := newTestEstimator(1 << 20)
	e := &engine{Server: x.addServer(), costs: priorCosts, slowdown: 1}
	for i := range 200 {
		if i == 100 {
			e.slowdown = 10_000
		}
		e.serve(e.idleAt+1, 300)
		e.slowdown = 1
	}
	assert.InEpsilon(t, priorCosts.estimateTTFT(0, 0, 300), e.slowdownFactor()*x.Costs().estimateTTFT(0, 0, 300), 0.2)
}

func TestSlowdown(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	x := newTestEstimator(1 << 20)
	var engines []*engine
	for _, slowdown := range []float64{1, 1, 1, 4} {
		engines = append(engines, &engine{Server: x.addServer(), costs: priorCosts, slowdown: slowdown})
	}
	for range 500 {
		for _, e := range engines {
			e.serve(e.idleAt+random.ExpFloat64(), random.IntN(1000))
		}
	}
	slow, fast := engines[3], engines[0]
	assert.InEpsilon(t, 4, slow.slowdownFactor()/fast.slowdownFactor(), 0.25, "the prior draws it a little towards 1")
	assert.InEpsilon(t, 1, engines[1].slowdownFactor()/fast.slowdownFactor(), 0.15)
	assert.InDelta(t, slow.slowdownFactor()/fast.slowdownFactor(), slow.ttftAfter(0, x.Costs(), 100, serverLoad{})/fast.ttftAfter(0, x.Costs(), 100, serverLoad{}), 1e-9)
}

func BenchmarkObserve(b *testing.B) {
	e := &engine{Server: newTestServer(), costs: priorCosts, slowdown: 1}
	b.ReportAllocs()
	for b.Loop() {
		e.serve(e.idleAt+1, 300)
	}
}

// What was learned with a wrong ratio of tokens holds for the right one: the times stay.
func TestLearner_FollowsTheRatioOfTokens(t *testing.T) {
	t.Parallel()
	l := newLearner()
	for i := range 400 {
		tokens := float64(100 + 37*i%900)
		l.observeStep(observation{tokens: 1.5 * tokens, decoding: float64(i % 7)}, 0.010+0.001*float64(i%7)+100e-6*tokens, 1)
	}
	assert.InEpsilon(t, 100e-6/1.5, l.currentCosts().PerToken, 0.02)
	l.followRatio(1 / 1.5)
	assert.InEpsilon(t, 100e-6, l.currentCosts().PerToken, 0.02)
	assert.InEpsilon(t, 0.001, l.currentCosts().PerDecoding, 0.2)
	before := *l.currentCosts()
	l.followRatio(1.001 / 1.5)
	assert.Equal(t, before, *l.currentCosts())
}
