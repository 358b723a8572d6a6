package scheduling

import "math"

// A Metric is one value of an endpoint's load.
type Metric int

// The metrics.
const (
	ActiveRequests Metric = iota // estimated current requests
	RunningRequests
	WaitingRequests
	KVCacheUsage
)

// of returns the value of the metric.
func (m Metric) of(l *Load) float64 {
	switch m {
	case RunningRequests:
		return l.Running
	case WaitingRequests:
		return l.Waiting
	case KVCacheUsage:
		return l.KVUsage
	default:
		return l.Requests
	}
}

// A Limit is the maximum of a metric.
type Limit struct {
	Metric Metric
	Max    float64
}

// UtilizationFilter keeps the endpoints within all limits.
type UtilizationFilter struct {
	Limits          []Limit
	FallbackOnEmpty bool // keep all if no endpoint is within them
}

// Filter keeps the endpoints within the limits.
func (f UtilizationFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	within := func(c *Candidate) bool {
		for _, limit := range f.Limits {
			if limit.Metric.of(&c.Load) > limit.Max {
				return false
			}
		}
		return true
	}
	if f.FallbackOnEmpty {
		return prefer(candidates, within)
	}
	return keep(candidates, within)
}

// An Operator compares an attribute with a value.
type Operator int

// The operators.
const (
	Less Operator = iota
	LessOrEqual
	Greater
	GreaterOrEqual
	Equal
	NotEqual
)

// holds evaluates the comparison.
func (o Operator) holds(a, b float64) bool {
	switch o {
	case Less:
		return a < b
	case LessOrEqual:
		return a <= b
	case Greater:
		return a > b
	case GreaterOrEqual:
		return a >= b
	case Equal:
		return a == b
	default:
		return a != b
	}
}

// AttributeFilter keeps the endpoints for which a comparison of one attribute is true.
type AttributeFilter struct {
	Attribute       string
	Operator        Operator
	Value           float64
	KeepMissing     bool // keep endpoints without the attribute, too
	FallbackOnEmpty bool // keep all if none remains
}

// Filter keeps the candidates for which the comparison is true.
func (f AttributeFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	holds := func(c *Candidate) bool {
		value, ok := c.Load.attribute(f.Attribute)
		if !ok {
			return f.KeepMissing
		}
		return f.Operator.holds(value, f.Value)
	}
	if f.FallbackOnEmpty {
		return prefer(candidates, holds)
	}
	return keep(candidates, holds)
}

// AttributeScorer rates an endpoint by the position of an attribute in a range.
type AttributeScorer struct {
	Attribute      string
	HigherIsBetter bool
	// Min and Max are the range. If both are 0, it is the range of the candidates.
	Min, Max float64
}

// Score sets 1 at the good end of the range, and 0 at the other end or if the attribute is missing. Candidates with equal
// values get 1.
func (s AttributeScorer) Score(_ *Request, candidates []Candidate, scores []float64) {
	least, most := s.Min, s.Max
	if least == most {
		least, most = math.Inf(1), math.Inf(-1)
		for i := range candidates {
			if value, ok := candidates[i].Load.attribute(s.Attribute); ok {
				least, most = min(least, value), max(most, value)
			}
		}
	}
	for i := range candidates {
		value, ok := candidates[i].Load.attribute(s.Attribute)
		switch {
		case !ok:
		case least == most:
			scores[i] = 1
		case s.HigherIsBetter:
			scores[i] = (value - least) / (most - least)
		default:
			scores[i] = (most - value) / (most - least)
		}
	}
}

// attribute returns one of the custom metrics of the configuration.
func (l *Load) attribute(name string) (value float64, ok bool) {
	if l.Page == nil {
		return 0, false
	}
	value, ok = l.Page.Attributes[name]
	return value, ok && !math.IsNaN(value)
}
