package pickerconfig

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// plainScorer is a scorer without parameters.
type plainScorer struct{ made scheduling.Scorer }

func (*plainScorer) check(checker) {}

func (p *plainScorer) scorer() scheduling.Scorer { return p.made }

type prefixScorerParameters struct {
	MatchLengthWeight           float64 `yaml:"matchLengthWeight"`
	MatchLengthScaleTokens      int     `yaml:"matchLengthScaleTokens"`
	PrefixMatchInfoProducerName string  `yaml:"prefixMatchInfoProducerName,omitempty"`
}

func (p *prefixScorerParameters) check(c checker) {
	c.share("matchLengthWeight", p.MatchLengthWeight)
	c.positive("matchLengthScaleTokens", float64(p.MatchLengthScaleTokens))
	c.producer("prefixMatchInfoProducerName", p.PrefixMatchInfoProducerName, approxPrefixProducer)
}

func (p *prefixScorerParameters) scorer() scheduling.Scorer {
	return scheduling.PrefixScorer{LengthWeight: p.MatchLengthWeight, Scale: float64(p.MatchLengthScaleTokens)}
}

type tokenLoadParameters struct {
	QueueThresholdTokens     int    `yaml:"queueThresholdTokens"`
	InFlightLoadProducerName string `yaml:"inFlightLoadProducerName,omitempty"`
}

func (p *tokenLoadParameters) check(c checker) {
	c.positive("queueThresholdTokens", float64(p.QueueThresholdTokens))
	c.producer("inFlightLoadProducerName", p.InFlightLoadProducerName, inflightProducer)
}

func (p *tokenLoadParameters) scorer() scheduling.Scorer {
	return scheduling.TokenLoadScorer{Threshold: float64(p.QueueThresholdTokens)}
}

type loadAwareParameters struct {
	Threshold int `yaml:"threshold"`
}

func (p *loadAwareParameters) check(c checker) { c.positive("threshold", float64(p.Threshold)) }

func (p *loadAwareParameters) scorer() scheduling.Scorer {
	return scheduling.QueueLimitScorer{Threshold: float64(p.Threshold)}
}

type activeParameters struct {
	RequestTimeout           string  `yaml:"requestTimeout,omitempty"`
	IdleThreshold            int     `yaml:"idleThreshold"`
	MaxBusyScore             float64 `yaml:"maxBusyScore"`
	InFlightLoadProducerName string  `yaml:"inFlightLoadProducerName,omitempty"`
}

func (p *activeParameters) check(c checker) {
	if p.RequestTimeout != "" {
		c.warnf(c.at("requestTimeout"), "it has no effect: requests count until they end")
	}
	c.notNegative("idleThreshold", float64(p.IdleThreshold))
	c.share("maxBusyScore", p.MaxBusyScore)
	c.producer("inFlightLoadProducerName", p.InFlightLoadProducerName, inflightProducer)
}

func (p *activeParameters) scorer() scheduling.Scorer {
	return scheduling.ActiveScorer{Idle: float64(p.IdleThreshold), BusyBest: p.MaxBusyScore}
}

// Algorithms of an endpoint-attribute-scorer.
const (
	lowerIsBetter  = "linear_lower_is_better"
	higherIsBetter = "linear_higher_is_better"
)

type attributeScorerParameters struct {
	AttributeKey string                   `yaml:"attributeKey"`
	Producer     string                   `yaml:"producer,omitempty"`
	Algorithm    attributeScorerAlgorithm `yaml:"algorithm"`
}

type attributeScorerAlgorithm struct {
	Type          string        `yaml:"type"`
	Normalization normalization `yaml:"normalization,omitempty"`
}

type normalization struct {
	FixedRange    *fixedRange `yaml:"fixedRange,omitempty"`
	AdaptiveRange *struct{}   `yaml:"adaptiveRange,omitempty"`
}

type fixedRange struct {
	Min float64 `yaml:"min"`
	Max float64 `yaml:"max"`
}

func (p *attributeScorerParameters) check(c checker) {
	c.require(p.AttributeKey != "", "attributeKey", missingAttribute)
	c.producer("producer", p.Producer, coreMetricsExtractor)
	c.oneOf("algorithm.type", p.Algorithm.Type, lowerIsBetter, higherIsBetter)
	if fixed := p.Algorithm.Normalization.FixedRange; fixed != nil {
		c.require(p.Algorithm.Normalization.AdaptiveRange == nil, "algorithm.normalization.adaptiveRange", "fixedRange is set too: keep one")
		c.require(fixed.Min < fixed.Max, "algorithm.normalization.fixedRange", "min %v is not below max %v", fixed.Min, fixed.Max)
	}
}

func (p *attributeScorerParameters) use(c checker) { c.attribute("attributeKey", p.AttributeKey) }

func (p *attributeScorerParameters) scorer() scheduling.Scorer {
	s := scheduling.AttributeScorer{Attribute: p.AttributeKey, HigherIsBetter: p.Algorithm.Type == higherIsBetter}
	if fixed := p.Algorithm.Normalization.FixedRange; fixed != nil {
		s.Min, s.Max = fixed.Min, fixed.Max
	}
	return s
}

type consistentHashParameters struct {
	LoadFactor float64 `yaml:"loadFactor"`
}

func (p *consistentHashParameters) check(c checker) {
	c.require(p.LoadFactor >= 1, "loadFactor", "%v is out of range: give a multiple of the mean load from 1 on, such as 1.25", p.LoadFactor)
}

func (p *consistentHashParameters) scorer() scheduling.Scorer {
	return scheduling.ConsistentHashScorer{Bound: p.LoadFactor}
}

// pickerParameters are the parameters of all pickers.
type pickerParameters struct {
	MaxNumOfEndpoints int `yaml:"maxNumOfEndpoints"`

	of func(most int) scheduling.Picker
}

func (p *pickerParameters) check(c checker) {
	c.positive("maxNumOfEndpoints", float64(p.MaxNumOfEndpoints))
}

func (p *pickerParameters) picker() scheduling.Picker { return p.of(p.MaxNumOfEndpoints) }

func maxScore(most int) scheduling.Picker { return scheduling.MaxScorePicker{Most: most} }

func random(most int) scheduling.Picker { return scheduling.RandomPicker{Most: most} }

func weightedRandom(most int) scheduling.Picker { return scheduling.WeightedRandomPicker{Most: most} }
