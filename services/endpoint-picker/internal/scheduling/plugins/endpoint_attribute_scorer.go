package plugins

import (
	"math"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Algorithms of the scorer.
const (
	lowerIsBetter  = "linear_lower_is_better"
	higherIsBetter = "linear_higher_is_better"
)

// endpointAttributeScorer rates an endpoint by the position of an attribute in a range.
type endpointAttributeScorer struct {
	AttributeKey string                   `yaml:"attributeKey"`
	Producer     string                   `yaml:"producer,omitempty"`
	Algorithm    attributeScorerAlgorithm `yaml:"algorithm"`

	higherIsBetter bool
}

type attributeScorerAlgorithm struct {
	Type          string        `yaml:"type"`
	Normalization normalization `yaml:"normalization,omitempty"`
}

// normalization is the range of the attribute: a fixed one, or that of the candidates, which is the default.
type normalization struct {
	FixedRange    *fixedRange `yaml:"fixedRange,omitempty"`
	AdaptiveRange *struct{}   `yaml:"adaptiveRange,omitempty"`
}

type fixedRange struct {
	Min float64 `yaml:"min"`
	Max float64 `yaml:"max"`
}

// Validate checks the parameters.
func (s *endpointAttributeScorer) Validate(c *Check) {
	c.Require(s.AttributeKey != "", "attributeKey", missingAttribute)
	c.requireProducer("producer", s.Producer, typeCoreMetricsExtractor)
	c.OneOf("algorithm.type", s.Algorithm.Type, lowerIsBetter, higherIsBetter)
	if fixed := s.Algorithm.Normalization.FixedRange; fixed != nil {
		c.Require(s.Algorithm.Normalization.AdaptiveRange == nil, "algorithm.normalization.adaptiveRange",
			"fixedRange is set too: keep one")
		c.Require(fixed.Min < fixed.Max, "algorithm.normalization.fixedRange", "min %v is not below max %v", fixed.Min, fixed.Max)
	}
	s.higherIsBetter = s.Algorithm.Type == higherIsBetter
}

// ApplyTo checks that the attribute is read.
func (s *endpointAttributeScorer) ApplyTo(b *Builder) {
	b.requireAttribute("attributeKey", s.AttributeKey)
}

// Score sets 1 at the good end of the range, and 0 at the other end or if the attribute is missing. Candidates with equal
// values get 1.
func (s *endpointAttributeScorer) Score(_ *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	least, most := s.valueRange(candidates)
	for i := range candidates {
		value, ok := candidates[i].Load.Attribute(s.AttributeKey)
		switch {
		case !ok:
		case least == most:
			scores[i] = 1
		case s.higherIsBetter:
			scores[i] = (value - least) / (most - least)
		default:
			scores[i] = (most - value) / (most - least)
		}
	}
}

// valueRange returns the fixed range, or that of the candidates.
func (s *endpointAttributeScorer) valueRange(candidates []scheduling.Candidate) (least, most float64) {
	if fixed := s.Algorithm.Normalization.FixedRange; fixed != nil {
		return fixed.Min, fixed.Max
	}
	least, most = math.Inf(1), math.Inf(-1)
	for i := range candidates {
		if value, ok := candidates[i].Load.Attribute(s.AttributeKey); ok {
			least, most = min(least, value), max(most, value)
		}
	}
	return least, most
}
