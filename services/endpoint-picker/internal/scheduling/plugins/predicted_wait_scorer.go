package plugins

import (
	"math"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// PredictedWaitScorer is the type of the default scorer.
const PredictedWaitScorer = "predicted-wait-scorer"

// predictedWaitScorer rates an endpoint by its expected time to first token, and the delay of others: 1 for the least, 0.5 for twice as
// much.
type predictedWaitScorer struct{ noParameters }

// Score sets least/cost.
func (*predictedWaitScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	least := math.Inf(1)
	for i := range candidates {
		scores[i] = candidates[i].Load.Wait + candidates[i].Load.Delay
		least = min(least, scores[i])
	}
	for i := range candidates {
		scores[i] = least / scores[i]
	}
}

// ReadsEstimates reports that the scorer reads Load.Wait.
func (*predictedWaitScorer) ReadsEstimates() bool { return true }
