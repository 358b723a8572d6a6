package plugins

import (
	"maps"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Values of onMissing.
const (
	missingPass = "Pass"
	missingFail = "Fail"
)

// operators compare an attribute with a value.
var operators = map[string]func(a, b float64) bool{
	"LessThan":           func(a, b float64) bool { return a < b },
	"LessThanOrEqual":    func(a, b float64) bool { return a <= b },
	"GreaterThan":        func(a, b float64) bool { return a > b },
	"GreaterThanOrEqual": func(a, b float64) bool { return a >= b },
	"Equal":              func(a, b float64) bool { return a == b },
	"NotEqual":           func(a, b float64) bool { return a != b },
}

// endpointAttributeFilter keeps the endpoints for which a comparison of one attribute is true.
type endpointAttributeFilter struct {
	Attribute       string                   `yaml:"attribute"`
	Producer        string                   `yaml:"producer,omitempty"`
	OnMissing       string                   `yaml:"onMissing"`       // Pass keeps endpoints without the attribute, too
	FallbackOnEmpty bool                     `yaml:"fallbackOnEmpty"` // keep all if none remains
	Algorithm       attributeFilterAlgorithm `yaml:"algorithm"`

	isTrue      func(a, b float64) bool
	value       float64
	keepMissing bool
}

type attributeFilterAlgorithm struct {
	Type      string              `yaml:"type"`
	Threshold *attributeThreshold `yaml:"threshold,omitempty"`
}

type attributeThreshold struct {
	Operator string  `yaml:"operator"`
	Value    float64 `yaml:"value"`
}

// Validate checks the parameters and compiles the comparison.
func (f *endpointAttributeFilter) Validate(c *Check) {
	c.Require(f.Attribute != "", "attribute", missingAttribute)
	c.requireProducer("producer", f.Producer, typeCoreMetricsExtractor)
	c.OneOf("onMissing", f.OnMissing, missingPass, missingFail)
	c.OneOf("algorithm.type", f.Algorithm.Type, "threshold")
	c.Require(f.Algorithm.Threshold != nil, "algorithm.threshold", "it is missing: give {operator, value}")
	if f.Algorithm.Threshold != nil {
		c.OneOf("algorithm.threshold.operator", f.Algorithm.Threshold.Operator, slices.Sorted(maps.Keys(operators))...)
		f.isTrue, f.value = operators[f.Algorithm.Threshold.Operator], f.Algorithm.Threshold.Value
	}
	f.keepMissing = f.OnMissing == missingPass
}

// ApplyTo checks that the attribute is read.
func (f *endpointAttributeFilter) ApplyTo(b *Builder) { b.requireAttribute("attribute", f.Attribute) }

// Filter keeps the candidates for which the comparison is true.
func (f *endpointAttributeFilter) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	holds := func(c *scheduling.Candidate) bool {
		value, ok := c.Load.Attribute(f.Attribute)
		if !ok {
			return f.keepMissing
		}
		return f.isTrue(value, f.value)
	}
	if f.FallbackOnEmpty {
		return scheduling.PreferAccepted(candidates, holds)
	}
	return scheduling.KeepAccepted(candidates, holds)
}
