package episode

import (
	"cmp"
	"math"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// Qwen32 returns the law of a replica of Qwen3-32B on two H100 with tensor parallelism, in FP8 (64 layers, 8 KV heads of 128):
//
//   - Base: 32.8 GB of weights take 4.9 ms to read from two memories of 3.35 TB/s, and 2.2 ms for launches and all-reduces.
//   - PerToken: 2 x 32.8e9 operations at 60 % of 2 x 989 TFLOP/s take 55 us.
//   - PerContext: 262 kB take 39 ns to read from both.
//   - PerMegaPair: 4 x 8192 x 64 operations a pair take 1.77 ns.
//   - The KV cache has 430 000 tokens: 95 % of 160 GB, less weights and activations.
//
// A replica serves about 1.55 requests/s of 4000 tokens in and 1000 out, so 8 static replicas serve 10 requests/s, as published.
func Qwen32() steptime.Law {
	return steptime.Law{
		Base: 7100 * time.Microsecond, PerSeq: 150 * time.Microsecond, PerToken: 55 * time.Microsecond,
		PerContext: 39 * time.Nanosecond, PerMegaPair: 1770 * time.Microsecond, Noise: 0.05, Graphs: true,
	}
}

const (
	model     = "m"
	qwenCache = 430_000
	slots     = 256
)

// PublishedScenario returns the scored episode of llm-d, with a factor on its rates.
func PublishedScenario(law steptime.Law, factor float64, seed uint64) *Scenario {
	phases := []Phase{{330, 2}, {360, 4}, {360, 6}, {360, 8}, {360, 10}, {360, 4}, {300, 1}}
	for i := range phases {
		phases[i].Rate *= factor
	}
	s := &Scenario{
		Variants: []Variant{{
			Name: "qwen", Model: model, Cost: 10, Start: 100, Min: 3, Max: 8, KV: qwenCache, Prefill: 1 / law.PerToken.Seconds(),
			Server: modelserver.NewStepServers(law, slots, qwenCache, 1),
		}},
		TTFT: 3, TPOT: 0.1, Grace: 120, Seed: seed,
	}
	s.Phases = map[string][]Phase{model: phases}
	s.Arrivals, s.End = PoissonArrivals(phases, 4000, 1000, 0.1, seed)
	return s
}

// EnvelopeScenario returns a load of two models with two variants each. It ramps up, shifts from one model to the other, drops, and
// returns.
func EnvelopeScenario(law steptime.Law, seed uint64) *Scenario {
	const other = "n"
	s := UnlikeScenario(law, 1, seed)
	for _, v := range s.Variants {
		v.Name, v.Model = v.Name+"-2", other
		s.Variants = append(s.Variants, v)
	}
	s.Phases = map[string][]Phase{}
	for _, p := range []struct{ seconds, one, two float64 }{
		{300, 1, 1},
		{120, 2, 1}, {120, 3, 1}, {120, 4, 1}, {120, 5, 1}, {120, 6, 1}, {120, 7, 1}, {600, 8, 1},
		{120, 7, 2}, {120, 6, 3}, {120, 5, 4}, {120, 4, 5}, {120, 3, 6}, {600, 2, 7},
		{600, 1, 1},
		{120, 2, 1}, {120, 3, 1}, {120, 4, 1}, {120, 5, 1}, {600, 6, 1},
	} {
		s.Phases[model] = append(s.Phases[model], Phase{p.seconds, p.one})
		s.Phases[other] = append(s.Phases[other], Phase{p.seconds, p.two})
	}
	s.Arrivals = nil
	for i, name := range []string{model, other} {
		var arrivals []Arrival
		arrivals, s.End = PoissonArrivals(s.Phases[name], 4000, 1000, 0.1, seed*2+uint64(i))
		for _, a := range arrivals {
			a.Model = name
			s.Arrivals = append(s.Arrivals, a)
		}
	}
	slices.SortFunc(s.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return s
}

// PrefillHeavyScenario returns the episode of llm-d's guide to token-aware autoscaling in which prefill and decode servers serve 2316
// prompts of 8192 tokens, with answers of 256. A prefill server computes 1300 tokens per second: the guide has measured 1154 to 1410.
// Clients give up after 600 s. The guide does not print the rate: at the one here, which is constant, static servers complete as many
// requests as published, 116. Each of them waits longer than the one before.
func PrefillHeavyScenario(law steptime.Law, seed uint64) *Scenario {
	const rate, requests = 0.89, 2316
	s := DisaggregatedScenario(law, 1./1300, seed)
	s.Variants[0].Max, s.Variants[1].Max = 4, 4
	s.TTFT, s.Patience = 8, 600
	for i := range requests {
		s.Arrivals = append(s.Arrivals, Arrival{Model: model, At: float64(i) / rate, Input: 8192, Output: 256})
	}
	s.End = math.Ceil(requests / rate)
	return s
}

// DisaggregatedScenario returns prefill and decode servers of a model without a load. A prompt token takes a time at the former.
func DisaggregatedScenario(law steptime.Law, perToken float64, seed uint64) *Scenario {
	prefill := steptime.Law{Base: law.Base, PerToken: time.Duration(perToken * float64(time.Second)), Noise: law.Noise}
	return &Scenario{
		Variants: []Variant{
			{Name: "prefill", Model: model, Role: "prefill", Cost: 5, Start: 100, Min: 1, Max: 8, KV: 48_000,
				Server: modelserver.NewStepServers(prefill, slots, 48_000, 1)},
			{Name: "decode", Model: model, Role: "decode", Cost: 10, Start: 100, Min: 1, Max: 8, KV: qwenCache,
				Server: modelserver.NewStepServers(law, slots, qwenCache, 1)},
		},
		TTFT: 3, TPOT: 0.1, Transfer: 0.1, Grace: 120, Seed: seed,
	}
}

// UnlikeScenario returns the episode with two ways to serve the model: the published one, and replicas that take 1.6 times as long for
// everything, cost 45 % and start in 200 s.
func UnlikeScenario(law steptime.Law, factor float64, seed uint64) *Scenario {
	const slower = 1.6
	s := PublishedScenario(law, factor, seed)
	slow := s.Variants[0]
	slow.Name, slow.Cost, slow.Start, slow.Min, slow.Max = "slow", 4.5, 200, 1, 12
	slow.Prefill /= slower
	slow.Server = modelserver.NewStepServers(law, slots, qwenCache, slower)
	s.Variants[0].Min = 1
	s.Variants = append(s.Variants, slow)
	return s
}
