package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// metric returns one value of an endpoint's load.
type metric func(l *scheduling.Load) float64

func activeRequests(l *scheduling.Load) float64  { return l.Requests } // estimated current requests
func runningRequests(l *scheduling.Load) float64 { return l.Running }
func waitingRequests(l *scheduling.Load) float64 { return l.Waiting }
func kvCacheUsage(l *scheduling.Load) float64    { return l.KVUsage }

// scoreFewest sets 1 for the least value of the metric and 0 for the greatest; 1 for all if they are equal.
func scoreFewest(m metric, candidates []scheduling.Candidate, scores []float64) {
	least, most := m(&candidates[0].Load), m(&candidates[0].Load)
	for i := range candidates {
		value := m(&candidates[i].Load)
		least, most = min(least, value), max(most, value)
	}
	for i := range candidates {
		scores[i] = 1
		if most > least {
			scores[i] = (most - m(&candidates[i].Load)) / (most - least)
		}
	}
}
