package plugins

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const typeLabelSelectorFilter = "label-selector-filter"

// labelSelectorFilter keeps the candidates with labels that the selector matches.
type labelSelectorFilter struct {
	MatchLabels      map[string]string `yaml:"matchLabels,omitempty"`
	MatchExpressions []labelExpression `yaml:"matchExpressions,omitempty"`

	selector labels.Selector
}

// labelExpression is a requirement of a selector.
type labelExpression struct {
	Key      string                       `yaml:"key"`
	Operator metav1.LabelSelectorOperator `yaml:"operator"`
	Values   []string                     `yaml:"values,omitempty"`
}

// Validate checks the parameters and compiles the selector.
func (f *labelSelectorFilter) Validate(c *Check) {
	selector := metav1.LabelSelector{MatchLabels: f.MatchLabels}
	for _, e := range f.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement(e))
	}
	var err error
	f.selector, err = metav1.LabelSelectorAsSelector(&selector)
	c.Require(err == nil, "", "it is not a label selector: %v", err)
	c.Require(len(f.MatchLabels)+len(f.MatchExpressions) > 0, "", "it is empty: give matchLabels or matchExpressions")
}

// Filter keeps the matching candidates.
func (f *labelSelectorFilter) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	return keepServers(f, candidates)
}

// AcceptsServer reports whether the selector matches a server.
func (f *labelSelectorFilter) AcceptsServer(s *scheduling.Server) bool {
	return f.selector.Matches(labels.Set(s.Labels))
}
