package routing

import "fairlead.dev/services/backendset-syncer/internal/plan"

// CheckBackends returns problems of the sets for whose endpoints there is no room, by their names. Sets of older routes get room first. The
// rules stay programmed, because dropping them would send their requests to other rules: some of the endpoints get no requests instead.
func (d *Desired) CheckBackends(endpoints map[Backend]int, limits plan.Limits, others int) map[string]plan.Problem {
	left := max(limits.Total-others, 0)
	oversized := map[string]plan.Problem{}
	for _, s := range d.Sets {
		n := 0
		for _, m := range s.Members {
			n += endpoints[m.Backend]
		}
		switch room := min(limits.PerSet, left); {
		case n > limits.PerSet:
			oversized[s.Name] = plan.NewProblem(ReasonCapacity,
				"%d endpoints need a backend, the limit of a backend set is %d", n, limits.PerSet)
		case n > room:
			oversized[s.Name] = plan.NewProblem(ReasonCapacity,
				"%d endpoints need a backend, and sets of older routes leave %d of the load balancer", n, room)
		}
		left -= min(n, limits.PerSet, left)
	}
	return oversized
}
