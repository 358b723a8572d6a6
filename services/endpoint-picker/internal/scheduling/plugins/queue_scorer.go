package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// queueScorer rates an endpoint by the length of its queue relative to the other candidates.
type queueScorer struct{ noParameters }

// Score sets 1 for the shortest queue and 0 for the longest; 1 for all if they are equal.
func (*queueScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	scoreFewest(waitingRequests, candidates, scores)
}
