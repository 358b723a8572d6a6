package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// loadAwareScorer rates an endpoint by the distance of its queue from a limit. Its best score is one half, so it counts less
// than affinity scorers.
type loadAwareScorer struct {
	Threshold int `yaml:"threshold"` // requests in the queue at which the score is 0
}

// Validate checks the parameters.
func (s *loadAwareScorer) Validate(c *Check) { c.Positive("threshold", float64(s.Threshold)) }

// Score sets 0.5 for an empty queue, falling to 0 at the limit.
func (s *loadAwareScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	threshold := float64(s.Threshold)
	for i := range candidates {
		scores[i] = 0.5 * (1 - min(candidates[i].Load.Waiting/threshold, 1))
	}
}
