package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// loraAffinityScorer prefers endpoints that have the request's LoRA adapter loaded, then those with room for it.
type loraAffinityScorer struct{ noParameters }

// Score sets 1 if the adapter is running, 0.8 if another one fits, 0.6 if the adapter waits for room, else 0, as upstream.
func (*loraAffinityScorer) Score(r *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	for i := range candidates {
		page := candidates[i].Load.Page
		if page == nil || page.Adapters == nil {
			continue
		}
		a := page.Adapters
		switch {
		case slices.Contains(a.Running, r.Model):
			scores[i] = 1
		case len(a.Running)+len(a.Waiting) < a.Max:
			scores[i] = 0.8
		case slices.Contains(a.Waiting, r.Model):
			scores[i] = 0.6
		}
	}
}
