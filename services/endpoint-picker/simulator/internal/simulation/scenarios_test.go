package simulation

import (
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
)

// Kinds of prefixes.
var (
	even   = Prefixes{Count: 32, Tokens: 2560, Own: 128, Answer: 160}
	skewed = Prefixes{Count: 100, Skew: 1.2, Tokens: 2048, Own: 128, Answer: 160} // the hottest has 28 % of the traffic
	chatty = Prefixes{Count: 32, Tokens: 1024, Own: 256, Answer: 1000}
)

// usualServers is the number of servers for the rates of the workloads.
const usualServers = 8

// usualScenario returns a scenario with equal servers.
func usualScenario(name string, w Workload) Scenario {
	return Scenario{
		Name: name, Workload: w, Servers: slices.Repeat([]Engine{UsualEngine()}, usualServers),
		Warm: 6 * time.Second, Measured: 30 * time.Second,
	}
}

// StandardScenarios returns the six common workloads for comparisons of pickers. As in the other scenarios, the rate is about 70 % of
// the maximum for the greedy policy.
func StandardScenarios() []Scenario {
	churn, slow := usualScenario("churn", skewed.Workload(95)), usualScenario("slow", even.Workload(105))
	churn.Churn = true
	slow.Servers[0].Slowness = 2
	multiturn := usualScenario("multiturn", Conversations(26))
	multiturn.Measured *= 2 // it has few requests, some of them long
	return []Scenario{
		usualScenario("uniform", even.Workload(110)),
		usualScenario("zipf", skewed.Workload(100)),
		multiturn,
		usualScenario("mixed", Mixed(72)),
		churn,
		slow,
	}
}

// OtherScenarios returns scenarios in which a picker fails that was made only for the standard ones.
func OtherScenarios() []Scenario {
	return slices.Concat(fleetSizes(), mixedSpeeds(), otherCosts(), otherAnswers(), []Scenario{
		usualScenario("zipf-bursts", skewed.Workload(80).inBursts(3)),
		usualScenario("mixed-bursts", Mixed(55).inBursts(2.5)),
	})
}

// Realistic returns a scenario whose servers behave like vLLM on an H100: the law of steptime.Realistic, a tokenizer that
// differs from the picker's, gauges as of the last step, and pages that delay tokens.
func (s Scenario) Realistic() Scenario { return s.withLaw("realistic", steptime.Realistic()) }

// Overlapping returns the same with another law: the longer of the times for arithmetic and memory, instead of their sum.
func (s Scenario) Overlapping() Scenario {
	law := steptime.Realistic()
	law.Overlap = true
	return s.withLaw("overlapping", law)
}

func (s Scenario) withLaw(name string, law steptime.Law) Scenario {
	// The same requests cost such servers more. At this factor of the rate, the greedy policy is again at about 70 % of its
	// maximum; at 1.5 times as much its queues grow without limit.
	const rate = 0.55
	s.Name += "-" + name
	s.Workload.rate *= rate
	s.Workload.words = true
	s.Servers = slices.Clone(s.Servers)
	return s.withChange(func(e *Engine) {
		e.Law, e.StaleGauges, e.PageTime = law, true, 10*time.Millisecond
	})
}

// fleetSizes returns other fleet sizes.
func fleetSizes() []Scenario {
	var scenarios []Scenario
	for _, s := range []Scenario{
		usualScenario("zipf-4-servers", skewed.Workload(100)).withServers(4),
		usualScenario("multiturn-4-servers", Conversations(26)).withServers(4),
		usualScenario("zipf-16-servers", skewed.Workload(100)).withServers(16),
		usualScenario("multiturn-16-servers", Conversations(26)).withServers(16),
		usualScenario("zipf-32-servers", skewed.Workload(100)).withServers(32),
		usualScenario("multiturn-32-servers", Conversations(26)).withServers(32),
	} {
		s.Measured = min(s.Measured, s.Measured*2*usualServers/time.Duration(len(s.Servers))) // the same number of requests is enough
		scenarios = append(scenarios, s)
	}
	return scenarios
}

// withServers changes the number of servers and scales the rate.
func (s Scenario) withServers(servers int) Scenario {
	s.Servers = slices.Repeat(s.Servers[:1], servers)
	s.Workload.rate *= float64(servers) / usualServers
	return s
}

// mixedSpeeds returns fleets with one slow server, and with some fast ones.
func mixedSpeeds() []Scenario {
	scenarios := []Scenario{
		usualScenario("zipf-speeds", skewed.Workload(140)), usualScenario("multiturn-speeds", Conversations(36)),
		usualScenario("mixed-speeds", Mixed(100)),
	}
	for i := range scenarios {
		scenarios[i].Servers = slices.Repeat([]Engine{UsualEngine()}, 9)
		scenarios[i].Servers[0].Slowness = 4
		for n := range 3 {
			scenarios[i].Servers[1+n].Slowness = 0.5
		}
	}
	return scenarios
}

// otherCosts returns other models and machines.
func otherCosts() []Scenario {
	slowPrefill, fastPrefill := func(e *Engine) { e.Law.PerToken *= 10 }, func(e *Engine) { e.Law.PerToken /= 10 }
	slowAnswers, smallCache := func(e *Engine) { e.Law.PerSeq *= 10 }, func(e *Engine) { e.Blocks = 1536 }
	zipf, multiturn := usualScenario("zipf-slow-prefill", skewed.Workload(34)), usualScenario("multiturn-slow-prefill", Conversations(8))
	zipf.Warm, multiturn.Warm = 26*time.Second, 26*time.Second // even the greedy policy takes this long to fill the caches
	return []Scenario{
		zipf.withChange(slowPrefill),
		multiturn.withChange(slowPrefill),
		usualScenario("zipf-fast-prefill", skewed.Workload(125)).withChange(fastPrefill),
		usualScenario("multiturn-fast-prefill", Conversations(50)).withChange(fastPrefill),
		usualScenario("mixed-fast-prefill", Mixed(170)).withChange(fastPrefill),
		usualScenario("zipf-slow-answers", skewed.Workload(23)).withChange(slowAnswers),
		usualScenario("multiturn-slow-answers", Conversations(19)).withChange(slowAnswers),
		usualScenario("zipf-small-cache", skewed.Workload(60)).withChange(smallCache),
		usualScenario("multiturn-small-cache", Conversations(14)).withChange(smallCache),
	}
}

// withChange changes all servers.
func (s Scenario) withChange(change func(e *Engine)) Scenario {
	for i := range s.Servers {
		change(&s.Servers[i])
	}
	return s
}

// otherAnswers returns scenarios with unstreamed or long answers.
func otherAnswers() []Scenario {
	return []Scenario{
		usualScenario("zipf-whole", skewed.Workload(100).inOnePiece(1)),
		usualScenario("multiturn-whole", Conversations(26).inOnePiece(1)),
		usualScenario("mixed-half-whole", Mixed(72).inOnePiece(0.5)),
		usualScenario("long-answers", chatty.Workload(20)),
	}
}

// UsualEngine returns an engine like a model of 8 billion parameters on one recent GPU.
func UsualEngine() Engine {
	return Engine{
		Slots: 48, Blocks: 4096, BlockTokens: 16, Batch: 2048, Law: steptime.Linear(), Slowness: 1,
	}
}

// WithProfile returns a scenario with as many servers of a profile, and text of its tokenizer. Slow servers stay slow.
func (s Scenario) WithProfile(p *Profile) Scenario {
	engines := p.Engines(len(s.Servers))
	for i := range engines {
		engines[i].Slowness *= s.Servers[i].Slowness
	}
	s.Servers, s.Workload.bytes = engines, p.BytesPerToken
	return s
}
