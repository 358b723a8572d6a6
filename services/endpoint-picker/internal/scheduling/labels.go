package scheduling

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// RoleLabel is the label of pods with the role of a model server.
const RoleLabel = "llm-d.ai/role"

// SelectorFilter keeps the candidates with labels that the selector matches.
type SelectorFilter struct {
	Selector labels.Selector
}

// Filter keeps the matching candidates.
func (f SelectorFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	return keep(candidates, func(c *Candidate) bool { return f.Selector.Matches(labels.Set(c.Server.Labels)) })
}

// LabelFilter keeps the candidates with one of the values of a label.
type LabelFilter struct {
	Label       string
	Values      []string
	KeepMissing bool // keep candidates without the label, too
}

// DecodeFilter returns the filter for servers that generate answers: those with such a role, or without a role.
func DecodeFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"decode", "prefill-decode", "both", "encode-prefill-decode"}, KeepMissing: true}
}

// PrefillFilter returns the filter for servers with a prefill role.
func PrefillFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}}
}

// EncodeFilter returns the filter for servers with a role that encodes images and sounds.
func EncodeFilter() LabelFilter {
	return LabelFilter{Label: RoleLabel, Values: []string{"encode", "encode-prefill", "encode-prefill-decode"}}
}

// Filter keeps the candidates with one of the values.
func (f LabelFilter) Filter(_ *Request, candidates []Candidate) []Candidate {
	return keep(candidates, func(c *Candidate) bool {
		value, ok := c.Server.Labels[f.Label]
		if !ok {
			return f.KeepMissing
		}
		return slices.Contains(f.Values, value)
	})
}
