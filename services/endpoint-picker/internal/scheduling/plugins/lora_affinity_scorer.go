package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// loraAffinityScorer prefers endpoints that have the request's LoRA adapter loaded, then those with room for it.
type loraAffinityScorer struct{ noParameters }

// Scores of an endpoint by the work to serve an adapter, as upstream.
const (
	adapterLoaded = 1.0
	adapterFits   = 0.8
	adapterComing = 0.6
)

// Score sets 1 if the adapter is running, 0.8 if another one fits, 0.6 if the adapter waits for room, else 0.
func (*loraAffinityScorer) Score(r *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	for i := range candidates {
		page := candidates[i].Load.Page
		if page == nil || page.Adapters == nil {
			continue
		}
		a := page.Adapters
		switch {
		case slices.Contains(a.Running, r.Model):
			scores[i] = adapterLoaded
		case len(a.Running)+len(a.Waiting) < a.Max:
			scores[i] = adapterFits
		case slices.Contains(a.Waiting, r.Model):
			scores[i] = adapterComing
		}
	}
}
