package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// activeRequestScorer rates an endpoint by its current number of requests.
type activeRequestScorer struct {
	RequestTimeout           string  `yaml:"requestTimeout,omitempty"` // accepted without effect
	IdleThreshold            int     `yaml:"idleThreshold"`            // maximum requests of an idle endpoint
	MaxBusyScore             float64 `yaml:"maxBusyScore"`             // the best score of a busy one
	InFlightLoadProducerName string  `yaml:"inFlightLoadProducerName,omitempty"`
}

// Validate checks the parameters.
func (s *activeRequestScorer) Validate(c *Check) {
	c.noEffect("requestTimeout", "requests count until they end")
	c.NotNegative("idleThreshold", float64(s.IdleThreshold))
	c.Share("maxBusyScore", s.MaxBusyScore)
	c.requireProducer("inFlightLoadProducerName", s.InFlightLoadProducerName, typeInflightLoadProducer)
}

// Score sets 1 for idle endpoints. Others get less the closer they are to the busiest one.
func (s *activeRequestScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	most := 0.0
	for i := range candidates {
		most = max(most, candidates[i].Load.Requests)
	}
	idle := float64(s.IdleThreshold)
	for i := range candidates {
		scores[i] = 1
		if n := candidates[i].Load.Requests; n > idle {
			scores[i] = (most - n) / most * s.MaxBusyScore
		}
	}
}
