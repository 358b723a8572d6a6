package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// PredictedWaitScorer is the type of the default scorer.
const PredictedWaitScorer = "predicted-wait-scorer"

var predictedWaitScorerType = Type{
	Name: PredictedWaitScorer, Section: SectionProfile,
	New: func(Environment) Plugin { return &predictedWaitScorer{} },
}

// predictedWaitScorer rates an endpoint by its expected time to first token: 1 for the shortest, 0.5 for twice as long.
type predictedWaitScorer struct{ noParameters }

// Score sets shortest/wait.
func (*predictedWaitScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	least := candidates[0].Load.Wait
	for i := range candidates {
		least = min(least, candidates[i].Load.Wait)
	}
	for i := range candidates {
		scores[i] = least / candidates[i].Load.Wait
	}
}

// ReadsEstimates reports that the scorer reads Load.Wait.
func (*predictedWaitScorer) ReadsEstimates() bool { return true }
