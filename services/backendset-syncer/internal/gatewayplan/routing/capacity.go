package routing

import "fmt"

// BackendLimits are the limits of a load balancer for backends.
type BackendLimits struct {
	PerSet, Total int
}

// OversizedSet is a set whose endpoints exceed a limit.
type OversizedSet struct {
	Set     string // name
	Message string
}

// CheckBackends returns the sets for whose endpoints there is no room. Sets of older routes get room first. The rules stay programmed,
// because dropping them would send their requests to other rules: some of the endpoints get no requests instead.
func (d *Desired) CheckBackends(endpoints map[Backend]int, limits BackendLimits, others int) []OversizedSet {
	left := max(limits.Total-others, 0)
	var oversized []OversizedSet
	for _, s := range d.Sets {
		n := 0
		for _, m := range s.Members {
			n += endpoints[m.Backend]
		}
		switch room := min(limits.PerSet, left); {
		case n > limits.PerSet:
			oversized = append(oversized,
				OversizedSet{s.Name, fmt.Sprintf("%d endpoints need a backend, the limit of a backend set is %d", n, limits.PerSet)})
		case n > room:
			oversized = append(oversized,
				OversizedSet{
					s.Name, fmt.Sprintf("%d endpoints need a backend, and sets of older routes leave %d of the load balancer", n, room),
				})
		}
		left -= min(n, limits.PerSet, left)
	}
	return oversized
}
