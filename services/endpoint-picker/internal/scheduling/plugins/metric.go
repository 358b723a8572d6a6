package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// metric is one value of an endpoint's load.
type metric int

const (
	activeRequests metric = iota // estimated current requests
	runningRequests
	waitingRequests
	kvCacheUsage
)

// valueOf returns the value of the metric.
func (m metric) valueOf(l *scheduling.Load) float64 {
	switch m {
	case runningRequests:
		return l.Running
	case waitingRequests:
		return l.Waiting
	case kvCacheUsage:
		return l.KVUsage
	default:
		return l.Requests
	}
}

// scoreFewest sets 1 for the least value of the metric and 0 for the greatest; 1 for all if they are equal.
func scoreFewest(m metric, candidates []scheduling.Candidate, scores []float64) {
	least, most := m.valueOf(&candidates[0].Load), m.valueOf(&candidates[0].Load)
	for i := range candidates {
		value := m.valueOf(&candidates[i].Load)
		least, most = min(least, value), max(most, value)
	}
	for i := range candidates {
		scores[i] = 1
		if most > least {
			scores[i] = (most - m.valueOf(&candidates[i].Load)) / (most - least)
		}
	}
}
