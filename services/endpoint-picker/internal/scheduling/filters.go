package scheduling

import "time"

// StalenessFilter prefers endpoints whose scrapes have not been failing for longer than After: one whose metrics page
// fails again and again is likely to fail requests too, and nothing is known of its queue. When every endpoint is stale
// it keeps them all, so that a pool without metrics is still served, by what is in flight alone.
type StalenessFilter struct {
	After time.Duration
}

// Filter keeps the candidates that are not stale, or all if there is none.
func (f StalenessFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	fresh := 0
	for i := range candidates {
		if !candidates[i].Load.Stale(r.Now, f.After) {
			fresh++
		}
	}
	if fresh == 0 || fresh == len(candidates) { // as a rule; prefer takes longer to see it
		return candidates
	}
	return keep(candidates, func(c *Candidate) bool { return !c.Load.Stale(r.Now, f.After) })
}

// TestingFilter keeps the candidates that the request itself names, in the header of the conformance tests of gateways:
// a list of "ip:port" or "ip". Not for pools whose clients are not trusted.
type TestingFilter struct{}

// TestingHeader is the header that names the endpoints.
const TestingHeader = "test-epp-endpoint-selection"

// Filter keeps the named candidates, or all if none is named.
func (TestingFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	named := r.Headers.Get(TestingHeader)
	if named == "" {
		return candidates
	}
	subset := ParseSubset([]string{named})
	return keep(candidates, func(c *Candidate) bool { return subset.Contains(c.Server.Address) })
}

// keep leaves in the candidates that f accepts.
func keep(candidates []Candidate, accepts func(*Candidate) bool) []Candidate {
	kept := candidates[:0]
	for i := range candidates {
		if accepts(&candidates[i]) {
			kept = append(kept, candidates[i])
		}
	}
	return kept
}

// prefer leaves in the candidates that f accepts, or all if it accepts none.
func prefer(candidates []Candidate, accepts func(*Candidate) bool) []Candidate {
	accepted := 0
	for i := range candidates {
		if accepts(&candidates[i]) {
			accepted++
		}
	}
	if accepted == 0 || accepted == len(candidates) {
		return candidates
	}
	return keep(candidates, accepts)
}
