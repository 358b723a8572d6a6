package plugins

import (
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// headerBasedTestingFilter keeps the candidates that the request names in the header of the gateways' conformance tests: a
// list of "ip:port" or "ip". Do not use it with untrusted clients.
type headerBasedTestingFilter struct{ noParameters }

// ApplyTo requests the header, and warns of it.
func (*headerBasedTestingFilter) ApplyTo(b *Builder) {
	b.wantHeader(api.HeaderSelection)
	b.Parts.TestHeader = api.HeaderSelection
	b.Warnf("", "clients choose endpoints by the header %s: use it only for tests", api.HeaderSelection)
}

// Filter keeps the named candidates, or all if none is named.
func (*headerBasedTestingFilter) Filter(r *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	named := r.Headers.ValueOf(api.HeaderSelection)
	if named == "" {
		return candidates
	}
	subset := scheduling.ParseSubset([]string{named})
	return scheduling.KeepAccepted(candidates, func(c *scheduling.Candidate) bool { return subset.Contains(c.Server.Address) })
}
