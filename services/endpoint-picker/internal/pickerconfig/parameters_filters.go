package pickerconfig

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// selectorParameters are a label selector.
type selectorParameters struct {
	MatchLabels      map[string]string `yaml:"matchLabels,omitempty"`
	MatchExpressions []labelExpression `yaml:"matchExpressions,omitempty"`

	selector labels.Selector
}

type labelExpression struct {
	Key      string   `yaml:"key"`
	Operator string   `yaml:"operator"`
	Values   []string `yaml:"values,omitempty"`
}

func (p *selectorParameters) check(c checker) {
	selector := metav1.LabelSelector{MatchLabels: p.MatchLabels}
	for _, e := range p.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	var err error
	p.selector, err = metav1.LabelSelectorAsSelector(&selector)
	c.require(err == nil, "", "it is not a label selector: %v", err)
	c.require(len(p.MatchLabels)+len(p.MatchExpressions) > 0, "", "it is empty: give matchLabels or matchExpressions")
}

func (p *selectorParameters) filter() scheduling.Filter {
	return scheduling.SelectorFilter{Selector: p.selector}
}

// byLabelParameters are one label and its values.
type byLabelParameters struct {
	Label         string   `yaml:"label"`
	ValidValues   []string `yaml:"validValues,omitempty"`
	AllowsNoLabel bool     `yaml:"allowsNoLabel,omitempty"`
}

func (p *byLabelParameters) check(c checker) {
	c.require(p.Label != "", "label", "it is missing: give the label to compare")
	c.require(len(p.ValidValues) > 0 || p.AllowsNoLabel, "validValues", "it is empty and would keep no endpoint: give the values to keep")
}

func (p *byLabelParameters) filter() scheduling.Filter {
	return scheduling.LabelFilter{Label: p.Label, Values: p.ValidValues, KeepMissing: p.AllowsNoLabel}
}

// roleParameters belong to filters without parameters.
type roleParameters struct{ role scheduling.LabelFilter }

func (*roleParameters) check(checker) {}

func (p *roleParameters) filter() scheduling.Filter { return p.role }

// testingParameters belong to a filter without parameters.
type testingParameters struct{}

func (*testingParameters) check(checker) {}

func (*testingParameters) use(c checker) {
	c.headers[scheduling.TestingHeader] = true
	c.warnf(c.path, "clients choose endpoints by the header %s: use it only for tests", scheduling.TestingHeader)
}

func (*testingParameters) filter() scheduling.Filter { return scheduling.TestingFilter{} }

// Sources of the times in a prefix-cache-affinity-filter.
const (
	ttftFromLoad      = "prefillThroughput"
	ttftFromPredictor = "latencyPredictor"
)

type prefixAffinityParameters struct {
	AffinityThreshold                 float64 `yaml:"affinityThreshold"`
	ExplorationProbability            float64 `yaml:"explorationProbability"`
	MaxTTFTPenaltyMs                  float64 `yaml:"maxTTFTPenaltyMs"`
	TTFTSource                        string  `yaml:"ttftSource"`
	PeakPrefillThroughput             float64 `yaml:"peakPrefillThroughput"`
	PrefixMatchInfoProducerName       string  `yaml:"prefixMatchInfoProducerName,omitempty"`
	LatencyPredictionInfoProducerName string  `yaml:"latencyPredictionInfoProducerName,omitempty"`
	InFlightLoadProducerName          string  `yaml:"inFlightLoadProducerName,omitempty"`
}

func defaultPrefixAffinity() *prefixAffinityParameters {
	return &prefixAffinityParameters{AffinityThreshold: 0.8, MaxTTFTPenaltyMs: 18_000, TTFTSource: ttftFromLoad, PeakPrefillThroughput: 15_928}
}

func (p *prefixAffinityParameters) check(c checker) {
	c.share("affinityThreshold", p.AffinityThreshold)
	c.share("explorationProbability", p.ExplorationProbability)
	c.notNegative("maxTTFTPenaltyMs", p.MaxTTFTPenaltyMs)
	c.positive("peakPrefillThroughput", p.PeakPrefillThroughput)
	c.oneOf("ttftSource", p.TTFTSource, ttftFromLoad, ttftFromPredictor)
	c.producer("prefixMatchInfoProducerName", p.PrefixMatchInfoProducerName, approxPrefixProducer)
	c.producer("inFlightLoadProducerName", p.InFlightLoadProducerName, inflightProducer)
	c.require(p.LatencyPredictionInfoProducerName == "", "latencyPredictionInfoProducerName", "the picker predicts latency itself: leave it out")
}

func (p *prefixAffinityParameters) filter() scheduling.Filter {
	f := scheduling.PrefixAffinityFilter{
		Threshold: p.AffinityThreshold, Exploration: p.ExplorationProbability, MaxPenalty: p.MaxTTFTPenaltyMs / 1000,
		TokensPerSecond: p.PeakPrefillThroughput,
	}
	if p.TTFTSource == ttftFromPredictor {
		f.TokensPerSecond = 0
	}
	return f
}

// The metrics of a utilization-filter.
var metricNames = map[string]scheduling.Metric{
	"active-requests":      scheduling.ActiveRequests,
	"running-requests":     scheduling.RunningRequests,
	"waiting-queue":        scheduling.WaitingRequests,
	"kv-cache-utilization": scheduling.KVCacheUsage,
}

type utilizationParameters struct {
	Conditions               []utilizationCondition `yaml:"conditions"`
	FallbackOnEmpty          bool                   `yaml:"fallbackOnEmpty"`
	InFlightLoadProducerName string                 `yaml:"inFlightLoadProducerName,omitempty"`
}

type utilizationCondition struct {
	Metric   string   `yaml:"metric"`
	MaxValue *float64 `yaml:"maxValue"`
}

func (p *utilizationParameters) check(c checker) {
	c.require(len(p.Conditions) > 0, "conditions", "it is missing: give at least one {metric, maxValue}")
	for i, condition := range p.Conditions {
		at := indexed("conditions", i)
		c.oneOf(at+".metric", condition.Metric, sortedKeys(metricNames)...)
		switch {
		case condition.MaxValue == nil:
			c.require(false, at+".maxValue", "it is missing: give the maximum of the metric")
		case condition.Metric == "kv-cache-utilization":
			c.share(at+".maxValue", *condition.MaxValue)
		default:
			c.notNegative(at+".maxValue", *condition.MaxValue)
		}
	}
	c.producer("inFlightLoadProducerName", p.InFlightLoadProducerName, inflightProducer)
}

func (p *utilizationParameters) filter() scheduling.Filter {
	f := scheduling.UtilizationFilter{FallbackOnEmpty: p.FallbackOnEmpty}
	for _, condition := range p.Conditions {
		f.Limits = append(f.Limits, scheduling.Limit{Metric: metricNames[condition.Metric], Max: *condition.MaxValue})
	}
	return f
}

// Keywords of an endpoint-attribute-filter.
const (
	missingPass = "Pass"
	missingFail = "Fail"
	threshold   = "threshold"
)

var operatorNames = map[string]scheduling.Operator{
	"LessThan": scheduling.Less, "LessThanOrEqual": scheduling.LessOrEqual, "GreaterThan": scheduling.Greater,
	"GreaterThanOrEqual": scheduling.GreaterOrEqual, "Equal": scheduling.Equal, "NotEqual": scheduling.NotEqual,
}

type attributeFilterParameters struct {
	Attribute       string                   `yaml:"attribute"`
	Producer        string                   `yaml:"producer,omitempty"`
	OnMissing       string                   `yaml:"onMissing"`
	FallbackOnEmpty bool                     `yaml:"fallbackOnEmpty"`
	Algorithm       attributeFilterAlgorithm `yaml:"algorithm"`
}

type attributeFilterAlgorithm struct {
	Type      string              `yaml:"type"`
	Threshold *attributeThreshold `yaml:"threshold,omitempty"`
}

type attributeThreshold struct {
	Operator string  `yaml:"operator"`
	Value    float64 `yaml:"value"`
}

func (p *attributeFilterParameters) check(c checker) {
	c.require(p.Attribute != "", "attribute", missingAttribute)
	c.producer("producer", p.Producer, coreMetricsExtractor)
	c.oneOf("onMissing", p.OnMissing, missingPass, missingFail)
	c.oneOf("algorithm.type", p.Algorithm.Type, threshold)
	c.require(p.Algorithm.Threshold != nil, "algorithm.threshold", "it is missing: give {operator, value}")
	if p.Algorithm.Threshold != nil {
		c.oneOf("algorithm.threshold.operator", p.Algorithm.Threshold.Operator, sortedKeys(operatorNames)...)
	}
}

func (p *attributeFilterParameters) use(c checker) { c.attribute("attribute", p.Attribute) }

func (p *attributeFilterParameters) filter() scheduling.Filter {
	return scheduling.AttributeFilter{
		Attribute: p.Attribute, Operator: operatorNames[p.Algorithm.Threshold.Operator], Value: p.Algorithm.Threshold.Value,
		KeepMissing: p.OnMissing == missingPass, FallbackOnEmpty: p.FallbackOnEmpty,
	}
}
