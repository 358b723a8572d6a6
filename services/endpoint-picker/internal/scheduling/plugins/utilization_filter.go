package plugins

import (
	"maps"
	"slices"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// shareMetric is the only metric that is a share.
const shareMetric = "kv-cache-utilization"

// utilizationMetrics are the metrics of conditions, by their names.
var utilizationMetrics = map[string]metric{
	"active-requests":  activeRequests,
	"running-requests": runningRequests,
	"waiting-queue":    waitingRequests,
	shareMetric:        kvCacheUsage,
}

// utilizationFilter keeps the endpoints within all limits.
type utilizationFilter struct {
	Conditions               []utilizationCondition `yaml:"conditions"`
	FallbackOnEmpty          bool                   `yaml:"fallbackOnEmpty"` // keep all if no endpoint is within them
	InFlightLoadProducerName string                 `yaml:"inFlightLoadProducerName,omitempty"`
}

type utilizationCondition struct {
	Metric   string   `yaml:"metric"`
	MaxValue *float64 `yaml:"maxValue"`

	metric metric
}

// Validate checks the parameters and compiles the conditions.
func (f *utilizationFilter) Validate(c *Check) {
	c.Require(len(f.Conditions) > 0, "conditions", "it is missing: give at least one {metric, maxValue}")
	names := slices.Sorted(maps.Keys(utilizationMetrics))
	for i, condition := range f.Conditions {
		at := strictyaml.Indexed("conditions", i)
		c.OneOf(at+".metric", condition.Metric, names...)
		switch {
		case condition.MaxValue == nil:
			c.Errorf(at+".maxValue", "it is missing: give the maximum of the metric")
		case condition.Metric == shareMetric:
			c.Share(at+".maxValue", *condition.MaxValue)
		default:
			c.NotNegative(at+".maxValue", *condition.MaxValue)
		}
		f.Conditions[i].metric = utilizationMetrics[condition.Metric]
	}
	c.requireProducer("inFlightLoadProducerName", f.InFlightLoadProducerName, typeInflightLoadProducer)
}

// ErrEmpty returns ErrNoCapacity.
func (*utilizationFilter) ErrEmpty() error { return scheduling.ErrNoCapacity }

// Filter keeps the endpoints within the limits.
func (f *utilizationFilter) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	within := func(c *scheduling.Candidate) bool {
		for _, condition := range f.Conditions {
			if condition.metric(&c.Load) > *condition.MaxValue {
				return false
			}
		}
		return true
	}
	if f.FallbackOnEmpty {
		return scheduling.PreferAccepted(candidates, within)
	}
	return scheduling.KeepAccepted(candidates, within)
}
