package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// kvCacheUtilizationScorer rates an endpoint by the free part of its KV cache.
type kvCacheUtilizationScorer struct{ noParameters }

// Score sets the free share.
func (*kvCacheUtilizationScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	for i := range candidates {
		scores[i] = 1 - candidates[i].Load.KVUsage
	}
}
