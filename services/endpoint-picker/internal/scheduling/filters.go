package scheduling

import "time"

// StalenessFilter prefers endpoints whose scrapes have not been failing for longer than After: an endpoint whose metrics
// page fails repeatedly will probably fail requests too, and its queue is unknown. If every endpoint is stale it keeps all,
// so that a pool without metrics is still served, based only on requests in flight.
type StalenessFilter struct {
	After time.Duration
}

// Filter keeps the candidates that are not stale, or all if there are none.
func (f StalenessFilter) Filter(r *Request, candidates []Candidate) []Candidate {
	fresh := 0
	for i := range candidates {
		if !candidates[i].Load.Stale(r.Now, f.After) {
			fresh++
		}
	}
	if fresh == 0 || fresh == len(candidates) { // the usual case; prefer is slower
		return candidates
	}
	return keep(candidates, func(c *Candidate) bool { return !c.Load.Stale(r.Now, f.After) })
}

// TestingFilter keeps the candidates that the request names in the header of the gateways' conformance tests: a list of
// "ip:port" or "ip". Do not use it with untrusted clients.
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

// keep keeps the candidates that f accepts.
func keep(candidates []Candidate, accepts func(*Candidate) bool) []Candidate {
	kept := candidates[:0]
	for i := range candidates {
		if accepts(&candidates[i]) {
			kept = append(kept, candidates[i])
		}
	}
	return kept
}

// prefer keeps the candidates that f accepts, or all if it accepts none.
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
