package simulation

import (
	"slices"
	"time"
)

// usual is a scenario of eight servers.
func usual(name string, w Workload) Scenario {
	return Scenario{
		Name: name, Workload: w, Servers: slices.Repeat([]Engine{UsualEngine()}, 8),
		Warm: 6 * time.Second, Measured: 30 * time.Second,
	}
}

// Kinds of prefixes.
var (
	even   = Prefixes{Count: 32, Tokens: 2560, Own: 128, Answer: 160}
	skewed = Prefixes{Count: 100, Skew: 1.2, Tokens: 2048, Own: 128, Answer: 160}
)

// Standard returns the six kinds of traffic that pickers are compared with. Each is about 70 % of what the greedy policy
// sustains.
func Standard() []Scenario {
	churn, slow := usual("churn", skewed.Workload(95)), usual("slow", even.Workload(105))
	churn.Churn = true
	slow.Servers[0].Slowness = 2
	return []Scenario{
		usual("uniform", even.Workload(110)),
		usual("zipf", skewed.Workload(100)), // the hottest prefix has more traffic than one server can take
		usual("multiturn", Conversations(26)),
		usual("mixed", Mixed(72)),
		churn,
		slow,
	}
}
