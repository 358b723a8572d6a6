package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// runningRequestsSizeScorer rates an endpoint by the size of its batch relative to the other candidates.
type runningRequestsSizeScorer struct{ noParameters }

// Score sets 1 for the smallest batch and 0 for the largest; 1 for all if they are equal.
func (*runningRequestsSizeScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	scoreFewest(runningRequests, candidates, scores)
}
