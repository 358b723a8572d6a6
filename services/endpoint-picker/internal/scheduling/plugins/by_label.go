package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// byLabel keeps the candidates with one of the values of a label.
type byLabel struct {
	Label         string   `yaml:"label"`
	ValidValues   []string `yaml:"validValues,omitempty"`
	AllowsNoLabel bool     `yaml:"allowsNoLabel,omitempty"` // keep candidates without the label, too
}

// Validate checks the parameters.
func (f *byLabel) Validate(c *Check) {
	c.Require(f.Label != "", "label", "it is missing: give the label to compare")
	c.Require(len(f.ValidValues) > 0 || f.AllowsNoLabel, "validValues", "it is empty and would keep no endpoint: give the values to keep")
}

// Filter keeps the candidates with one of the values.
func (f *byLabel) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	return keepServers(f, candidates)
}

// AcceptsServer reports whether a server has one of the values.
func (f *byLabel) AcceptsServer(s *scheduling.Server) bool {
	value, ok := s.Labels[f.Label]
	if !ok {
		return f.AllowsNoLabel
	}
	return slices.Contains(f.ValidValues, value)
}

// keepServers keeps the candidates whose servers a filter accepts.
func keepServers(f scheduling.ServerFilter, candidates []scheduling.Candidate) []scheduling.Candidate {
	return scheduling.KeepAccepted(candidates, func(c *scheduling.Candidate) bool { return f.AcceptsServer(c.Server) })
}
