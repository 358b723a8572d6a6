package pick

import (
	"errors"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// chooseEndpoint lets the profile choose among the working endpoints. If none of these has room, it may choose one that seems to have
// stopped.
func (p *pickState) chooseEndpoint(endpoints []*endpoint.Endpoint, indexes []int) (*scheduling.Candidate, error) {
	if err := p.collectCandidates(endpoints, indexes); err != nil {
		return nil, err
	}
	p.restrictToStoringServer(endpoints)
	chosen, err := p.config.Profile.Schedule(&p.request, p.candidates, &p.scheduling)
	if errors.Is(err, scheduling.ErrNoCapacity) && p.hasSuspects(endpoints, indexes) {
		p.addCandidates(endpoints, indexes, suspect)
		chosen, err = p.config.Profile.Schedule(&p.request, p.candidates, &p.scheduling)
	}
	return chosen, err
}

// hasSuspects reports whether some endpoints seem to have stopped.
func (p *pickState) hasSuspects(endpoints []*endpoint.Endpoint, indexes []int) bool {
	now := endpoint.ToMonotonic(p.request.Now)
	return slices.ContainsFunc(indexes, func(i int) bool { return p.usabilityOf(endpoints[i], now) == suspect })
}

// A usability says how good a reason there is to choose an endpoint.
type usability uint8

const (
	excluded usability = iota // by the gateway
	unusable                  // ejected, or without the model
	suspect                   // seems to have stopped
	working
)

// collectCandidates fills the list of candidates with the working endpoints that the gateway allows, among those that the profile may
// choose. Those that seem to have stopped are candidates only if all others are ejected or lack the model. If none works for the requested
// model, all of them are candidates.
func (p *pickState) collectCandidates(endpoints []*endpoint.Endpoint, indexes []int) error {
	p.lacks, p.paces = p.balancer.params.Outliers.EndpointsLacking(p.subject), p.balancer.params.Estimator.Paces()
	for least := working; least > excluded; least-- {
		if p.addCandidates(endpoints, indexes, least); len(p.candidates) > 0 {
			return nil
		}
	}
	if slices.ContainsFunc(endpoints, func(e *endpoint.Endpoint) bool { return p.request.Subset.Contains(e.Identity().Address) }) {
		return scheduling.ErrFiltered
	}
	return scheduling.ErrNoneInSubset
}

// addCandidates fills the list of candidates with the endpoints of at least a standing.
func (p *pickState) addCandidates(endpoints []*endpoint.Endpoint, indexes []int, least usability) {
	p.candidates = slices.Grow(p.candidates[:0], len(indexes))
	now := endpoint.ToMonotonic(p.request.Now)
	for _, i := range indexes {
		if e := endpoints[i]; p.usabilityOf(e, now) >= least {
			p.addCandidate(i, e)
		}
	}
}

func (p *pickState) usabilityOf(e *endpoint.Endpoint, now endpoint.Monotonic) usability {
	switch {
	case !p.request.Subset.Contains(e.Identity().Address):
		return excluded
	case !e.Health().IsUsable(p.request.Now) || p.lacks != nil && !p.lacks.CanUse(e, p.request.Now):
		return unusable
	case p.incoming.Stored == 0 && estimate.ServerOf(e).IsSuspect(now, &p.paces): // otherwise perhaps only this server can answer
		return suspect
	}
	return working
}

// eligibleEndpoints are the endpoints of a snapshot that a profile may choose.
type eligibleEndpoints struct {
	snapshot *pool.Snapshot
	profile  *scheduling.Profile
	indexes  []int
}

// eligibleOf returns the indexes of the endpoints that a profile may choose. It computes them once for each snapshot.
func (b *Balancer) eligibleOf(s *pool.Snapshot, p *scheduling.Profile) []int {
	if last := b.lastEligible.Load(); last != nil && last.snapshot == s && last.profile == p {
		return last.indexes
	}
	indexes := make([]int, 0, len(s.Endpoints))
	for i, e := range s.Endpoints {
		if p.Eligible(e.Server()) {
			indexes = append(indexes, i)
		}
	}
	b.lastEligible.Store(&eligibleEndpoints{snapshot: s, profile: p, indexes: indexes})
	return indexes
}

// addCandidate adds an endpoint to the list, described from one reading of its load.
func (p *pickState) addCandidate(i int, e *endpoint.Endpoint) {
	e.ExpireFailed(p.request.Now, p.paces.First)
	load := &p.load
	e.LoadInto(load)
	if load.Failing.IsSet() && estimate.ServerOf(e).ShowsWork(load.Failing, endpoint.ToMonotonic(p.request.Now), load.Open) {
		load.Failing = 0 // only its page fails
	}
	p.candidates = appendCandidate(p.candidates, i, e, load)
	if p.estimated {
		estimated, c := p.prompt.Estimate(e, load), &p.candidates[len(p.candidates)-1]
		c.Matched, c.Load.Tokens = estimated.Cached, estimated.Backlog
		c.Load.Wait, c.Load.Delay = estimated.TTFT, estimated.Delay
	}
}

// appendCandidate appends an endpoint without estimates for a request. A candidate is large: it is written where it stays.
func appendCandidate(to []scheduling.Candidate, i int, e *endpoint.Endpoint, load *endpoint.Load) []scheduling.Candidate {
	to = slices.Grow(to, 1)[:len(to)+1]
	c := &to[len(to)-1]
	*c = scheduling.Candidate{Index: i, Server: e.Server()}
	l := &c.Load
	l.Requests, l.Open, l.Failed, l.Failing = load.Requests, load.Open, load.Failed, load.Failing
	l.Waiting, l.Running, l.KVUsage, l.Page = load.Waiting, load.Running, load.KVUsage, load.Page
	return to
}

// appendLoads appends the loads of endpoints, without estimates for a request.
func appendLoads(to []scheduling.Candidate, endpoints []*endpoint.Endpoint, config *pluginconfig.Config) []scheduling.Candidate {
	to = slices.Grow(to, len(endpoints))
	for i, e := range endpoints {
		load := e.Load()
		to = appendCandidate(to, i, e, &load)
		if !config.Profile.WithoutEstimates {
			to[len(to)-1].Load.Tokens = float64(estimate.ServerOf(e).Backlog())
		}
	}
	return to
}
