package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// tokenLoadScorer rates an endpoint by the number of prompt tokens that it has to compute.
type tokenLoadScorer struct {
	QueueThresholdTokens     int    `yaml:"queueThresholdTokens"` // at which the score is 0
	InFlightLoadProducerName string `yaml:"inFlightLoadProducerName,omitempty"`
}

// Validate checks the parameters.
func (s *tokenLoadScorer) Validate(c *Check) {
	c.Positive("queueThresholdTokens", float64(s.QueueThresholdTokens))
	c.requireProducer("inFlightLoadProducerName", s.InFlightLoadProducerName, typeInflightLoadProducer)
}

// Score sets the remaining share below the threshold.
func (s *tokenLoadScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	threshold := float64(s.QueueThresholdTokens)
	for i := range candidates {
		scores[i] = 1 - min(candidates[i].Load.Tokens/threshold, 1)
	}
}

// ReadsEstimates reports that the scorer reads Load.Tokens.
func (*tokenLoadScorer) ReadsEstimates() bool { return true }
