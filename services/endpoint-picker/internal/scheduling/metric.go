package scheduling

import "math"

// A Metric is one figure of an endpoint's load.
type Metric int

// The metrics.
const (
	ActiveRequests Metric = iota // requests that it has now, as far as is known
	RunningRequests
	WaitingRequests
	KVCacheUsage
)

// of returns the figure.
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

// A Limit is the most that a metric may be.
type Limit struct {
	Metric Metric
	Max    float64
}

// UtilizationFilter keeps the endpoints that are within all of some limits.
type UtilizationFilter struct {
	Limits          []Limit
	FallbackOnEmpty bool // keep all if none is
}

// Filter keeps those within the limits.
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

// holds reports whether the comparison is true.
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

// AttributeFilter keeps the endpoints of which a comparison of one attribute is true.
type AttributeFilter struct {
	Attribute       string
	Operator        Operator
	Value           float64
	KeepMissing     bool // and those without the attribute
	FallbackOnEmpty bool // keep all if none is left
}

// Filter keeps those of which it is true.
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

// AttributeScorer rates an endpoint by where one attribute is in a range.
type AttributeScorer struct {
	Attribute      string
	HigherIsBetter bool
	// Min and Max are the range. Both 0, it is that of the candidates.
	Min, Max float64
}

// Score sets 1 at the good end of the range, 0 at the other and where the attribute is missing; of candidates that do not
// differ all are at the good end.
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

// attribute returns one of the figures that the configuration asks for.
func (l *Load) attribute(name string) (value float64, ok bool) {
	if l.Page == nil {
		return 0, false
	}
	value, ok = l.Page.Attributes[name]
	return value, ok && !math.IsNaN(value)
}
