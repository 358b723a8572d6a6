package simulation

import (
	"math"
	"time"

	"fairlead.dev/pkg/steptime"
)

// AffinityTokenLoad is what the optimized-baseline guide of llm-d recommends, with a calibrated throughput: of the servers that have at
// least 80 % of the blocks of a prompt, the one with the fewest tokens of prompts under way; of all others too, if these servers would be
// 200 ms later.
func AffinityTokenLoad() Policy {
	const threshold, penalty = 0.8, 200 * time.Millisecond
	return newReference("affinity-tokenload", func(f *fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			near := func(s *server) bool {
				return float64(s.cache.matchChain(a.promptChain())) >= threshold*float64(max(a.prompt/a.blockTokens, 1))
			}
			home, other := math.Inf(1), math.Inf(1)
			for _, o := range f.servers {
				switch load := float64(o.promptLoad()); {
				case o.dead:
				case near(o):
					home = min(home, load)
				default:
					other = min(other, load)
				}
			}
			if closed := home-other <= penalty.Seconds()*f.peakRate(); closed && !math.IsInf(home, 1) && !near(s) {
				return math.Inf(1)
			}
			return float64(s.promptLoad() + s.uncachedTokens(a))
		}
	})
}

// peakRate returns the prompt tokens per second of an idle server, measured with one full step.
func (f *fleet) peakRate() float64 {
	e := f.servers[0].Engine
	var step steptime.Step
	step.Prefill(0, e.Batch)
	return float64(e.Batch) / (float64(e.Law.Time(step)) * e.Slowness / float64(time.Second))
}

// LeastLoad chooses the server with the fewest requests.
func LeastLoad() Policy {
	return newReference("leastload", func(*fleet) func(*server, *arrival) float64 {
		return func(s *server, _ *arrival) float64 { return float64(s.requestCount()) }
	})
}

// Random chooses any server.
func Random() Policy {
	return newReference("random", func(*fleet) func(*server, *arrival) float64 {
		return func(*server, *arrival) float64 { return 0 }
	})
}

// PinToGroup chooses the same server for all requests of a group, while it lives.
func PinToGroup() Policy {
	return newReference("pin", func(f *fleet) func(*server, *arrival) float64 {
		return func(s *server, a *arrival) float64 {
			n := len(f.servers)
			return float64((s.number + n - a.group%n) % n)
		}
	})
}

// promptLoad returns the uncached tokens of the prompts of requests without a first token.
func (s *server) promptLoad() int {
	tokens := 0
	for _, j := range s.allJobs() {
		if j.first == 0 {
			tokens += j.prompt - j.hit
		}
	}
	return tokens
}
