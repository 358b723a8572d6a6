package scheduling

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// RoleLabel is the label of pods that says which part of the work a model server does.
const RoleLabel = "llm-d.ai/role"

// SelectorFilter keeps the candidates whose labels the selector matches.
type SelectorFilter struct {
	Selector labels.Selector
}

// Filter keeps those that match.
func (f SelectorFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	return keep(candidates, func(c *Candidate) bool { return f.Selector.Matches(labels.Set(c.Server.Labels)) })
}

// LabelFilter keeps the candidates that have one of some values under a label.
type LabelFilter struct {
	Label       string
	Values      []string
	KeepMissing bool // and those without the label
}

// DecodeFilter returns the filter that keeps servers which generate answers: those that say so, and those that say nothing.
func DecodeFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"decode", "prefill-decode", "both", "encode-prefill-decode"}, KeepMissing: true}
}

// PrefillFilter returns the filter that keeps servers which compute prompts and say so.
func PrefillFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}}
}

// EncodeFilter returns the filter that keeps servers which encode images and sounds and say so.
func EncodeFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"encode", "encode-prefill", "encode-prefill-decode"}}
}

// Filter keeps those that have one of the values.
func (f LabelFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	return keep(candidates, func(c *Candidate) bool {
		value, ok := c.Server.Labels[f.Label]
		if !ok {
			return f.KeepMissing
		}
		return slices.Contains(f.Values, value)
	})
}
