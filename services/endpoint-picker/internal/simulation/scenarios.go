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

// usual returns a scenario with equal servers.
func usual(name string, w Workload) Scenario {
	return Scenario{
		Name: name, Workload: w, Servers: slices.Repeat([]Engine{UsualEngine()}, usualServers),
		Warm: 6 * time.Second, Measured: 30 * time.Second,
	}
}

// Standard returns the six common workloads for comparisons of pickers. As in the other scenarios, the rate is about 70 % of
// the maximum for the greedy policy.
func Standard() []Scenario {
	churn, slow := usual("churn", skewed.Workload(95)), usual("slow", even.Workload(105))
	churn.Churn = true
	slow.Servers[0].Slowness = 2
	multiturn := usual("multiturn", Conversations(26))
	multiturn.Measured *= 2 // it has few requests, some of them long
	return []Scenario{
		usual("uniform", even.Workload(110)),
		usual("zipf", skewed.Workload(100)),
		multiturn,
		usual("mixed", Mixed(72)),
		churn,
		slow,
	}
}

// Others returns scenarios in which a picker fails that was made only for the standard ones.
func Others() []Scenario {
	return slices.Concat(sizes(), speeds(), costs(), answers(), []Scenario{
		usual("zipf-bursts", skewed.Workload(80).inBursts(3)),
		usual("mixed-bursts", Mixed(55).inBursts(2.5)),
	})
}

// Realistic returns a scenario whose servers behave like vLLM on an H100: the law of steptime.Realistic, a tokenizer that
// differs from the picker's, gauges as of the last step, and pages that delay tokens.
func (s Scenario) Realistic() Scenario { return s.like("realistic", steptime.Realistic()) }

// Overlapping returns the same with another law: the longer of the times for arithmetic and memory, instead of their sum.
func (s Scenario) Overlapping() Scenario {
	law := steptime.Realistic()
	law.Overlap = true
	return s.like("overlapping", law)
}

func (s Scenario) like(name string, law steptime.Law) Scenario {
	// The same requests cost such servers more. At this factor of the rate, the greedy policy is again at about 70 % of its
	// maximum; at 1.5 times as much its queues grow without limit.
	const rate = 0.55
	s.Name += "-" + name
	s.Workload.rate *= rate
	s.Workload.words = true
	s.Servers = slices.Clone(s.Servers)
	return s.with(func(e *Engine) {
		e.Law, e.StaleGauges, e.PageTime = law, true, 10*time.Millisecond
	})
}

// sizes returns other fleet sizes.
func sizes() []Scenario {
	var made []Scenario
	for _, s := range []Scenario{
		usual("zipf-4-servers", skewed.Workload(100)).of(4),
		usual("multiturn-4-servers", Conversations(26)).of(4),
		usual("zipf-16-servers", skewed.Workload(100)).of(16),
		usual("multiturn-16-servers", Conversations(26)).of(16),
		usual("zipf-32-servers", skewed.Workload(100)).of(32),
		usual("multiturn-32-servers", Conversations(26)).of(32),
	} {
		s.Measured = min(s.Measured, s.Measured*2*usualServers/time.Duration(len(s.Servers))) // the same number of requests is enough
		made = append(made, s)
	}
	return made
}

// of changes the number of servers and scales the rate.
func (s Scenario) of(servers int) Scenario {
	s.Servers = slices.Repeat(s.Servers[:1], servers)
	s.Workload.rate *= float64(servers) / usualServers
	return s
}

// speeds returns fleets with one slow server, and with some fast ones.
func speeds() []Scenario {
	made := []Scenario{
		usual("zipf-speeds", skewed.Workload(140)), usual("multiturn-speeds", Conversations(36)), usual("mixed-speeds", Mixed(100)),
	}
	for i := range made {
		made[i].Servers = slices.Repeat([]Engine{UsualEngine()}, 9)
		made[i].Servers[0].Slowness = 4
		for n := range 3 {
			made[i].Servers[1+n].Slowness = 0.5
		}
	}
	return made
}

// costs returns other models and machines.
func costs() []Scenario {
	slowPrefill, fastPrefill := func(e *Engine) { e.Law.PerToken *= 10 }, func(e *Engine) { e.Law.PerToken /= 10 }
	slowAnswers, smallCache := func(e *Engine) { e.Law.PerSeq *= 10 }, func(e *Engine) { e.Blocks = 1536 }
	zipf, multiturn := usual("zipf-slow-prefill", skewed.Workload(34)), usual("multiturn-slow-prefill", Conversations(8))
	zipf.Warm, multiturn.Warm = 26*time.Second, 26*time.Second // even the greedy policy takes this long to fill the caches
	return []Scenario{
		zipf.with(slowPrefill),
		multiturn.with(slowPrefill),
		usual("zipf-fast-prefill", skewed.Workload(125)).with(fastPrefill),
		usual("multiturn-fast-prefill", Conversations(50)).with(fastPrefill),
		usual("mixed-fast-prefill", Mixed(170)).with(fastPrefill),
		usual("zipf-slow-answers", skewed.Workload(23)).with(slowAnswers),
		usual("multiturn-slow-answers", Conversations(19)).with(slowAnswers),
		usual("zipf-small-cache", skewed.Workload(60)).with(smallCache),
		usual("multiturn-small-cache", Conversations(14)).with(smallCache),
	}
}

// with changes all servers.
func (s Scenario) with(change func(e *Engine)) Scenario {
	for i := range s.Servers {
		change(&s.Servers[i])
	}
	return s
}

// answers returns scenarios with unstreamed or long answers.
func answers() []Scenario {
	return []Scenario{
		usual("zipf-whole", skewed.Workload(100).inOnePiece(1)),
		usual("multiturn-whole", Conversations(26).inOnePiece(1)),
		usual("mixed-half-whole", Mixed(72).inOnePiece(0.5)),
		usual("long-answers", chatty.Workload(20)),
	}
}
