package plugins

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Staleness is a filter of every profile. It prefers endpoints whose scrapes have not been failing for longer than After: an
// endpoint whose metrics page fails repeatedly will probably fail requests too, and its queue is unknown. If every endpoint
// is stale it keeps all, so that a pool without metrics is still served, based only on requests in flight.
type Staleness struct {
	After time.Duration
}

// Filter keeps the candidates that are not stale. It keeps all candidates if every one is stale.
func (f Staleness) Filter(r *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	fresh := 0
	for i := range candidates {
		if !candidates[i].Load.Stale(r.Now, f.After) {
			fresh++
		}
	}
	if fresh == 0 || fresh == len(candidates) { // the usual case; PreferAccepted is slower
		return candidates
	}
	return scheduling.KeepAccepted(candidates, func(c *scheduling.Candidate) bool { return !c.Load.Stale(r.Now, f.After) })
}
