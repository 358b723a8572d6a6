package gatewayplan

import (
	"net/netip"
	"slices"

	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/weights"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// buildSets computes the endpoints of all sets.
func (b *planBuilder) buildSets() {
	counts := map[routing.Backend]int{}
	for i := range b.desired.Sets {
		s := &b.desired.Sets[i]
		b.Sets[s.Name] = b.buildSet(s.Key, s.Members, b.parametersOf(s))
		for _, m := range s.Members {
			counts[m.Backend] = len(activeOf(b.memberEndpoints(&m, s.Members).endpoints))
		}
	}
	others := 0
	for name, n := range b.Live.Sets {
		if b.Sets[name] == nil {
			others += n
		}
	}
	for name, problem := range b.desired.CheckBackends(counts, b.limits.Backends, others) {
		b.Sets[name].Problem = problem
	}
}

// parametersOf returns the parameters of a set: those of the oldest Gateway whose routes use it. Sets of the responder are checked by
// connections, as it answers all requests with errors.
func (b *planBuilder) parametersOf(s *routing.Set) *Parameters {
	parameters := b.firstParameters()
	if s.Key == routing.EmptyKey || s.Key == routing.DefaultKey {
		if parameters.Health = (plan.HealthChecker{}); b.planner.fallback != nil {
			parameters.Health.Protocol = plan.HealthTCP
		}
		return parameters
	}
	for _, g := range b.Gateways {
		for i := range b.desired.Policies {
			p := &b.desired.Policies[i]
			if p.Gateway == g.gatewayName() && slices.ContainsFunc(p.Rules, func(r plan.Rule) bool { return r.Set == s.Name }) {
				own := g.Parameters
				return &own
			}
		}
	}
	return parameters
}

// firstParameters returns the parameters of the oldest Gateway: those of sets that no route uses.
func (b *planBuilder) firstParameters() *Parameters {
	if len(b.Gateways) == 0 {
		return &Parameters{}
	}
	own := b.Gateways[0].Parameters
	return &own
}

// buildSet returns what the actor should do for a set.
func (b *planBuilder) buildSet(key string, members []routing.Member, p *Parameters) *Set {
	s := &Set{Key: key, Wanted: &actor.Wanted{Weight: 1, Drain: p.drainTimes(), Limits: b.backendLimits()}}
	if p.Health != (plan.HealthChecker{}) {
		s.Wanted.Health = new(p.healthChecker())
	}
	var groups []weights.Group
	for _, m := range members {
		f := b.memberEndpoints(&m, members)
		if f.problem.IsSet() {
			s.Problem = f.problem
		} else if f.refused != "" {
			s.Problem = plan.Problem{Reason: reasonAddresses, Message: f.refused}
		}
		s.Wanted.Endpoints = mergeEndpoints(s.Wanted.Endpoints, f.endpoints)
		if f.service != "" && !slices.Contains(s.Wanted.Services, f.service) {
			s.Wanted.Services = append(s.Wanted.Services, f.service)
		}
		groups = append(groups, weights.Group{Weight: m.Weight, Addresses: activeOf(f.endpoints)})
		if b.Document != nil {
			if own := b.Document.RouteLimits(m.Namespace, b.limits).Backends; own > 0 && (s.Wanted.Maximum == 0 || own < s.Wanted.Maximum) {
				s.Wanted.Maximum = own
			}
		}
	}
	if len(members) > 1 {
		scaled := weights.Scale(groups, b.Weights[key])
		s.Wanted.Weights, s.WeightChoice = scaled.Backends, scaled.Choice
	}
	return s
}

// activeOf returns the addresses of the endpoints that get requests: as package plan chooses them.
func activeOf(endpoints []plan.Endpoint) []netip.AddrPort {
	least := plan.Ready
	if !slices.ContainsFunc(endpoints, func(e plan.Endpoint) bool { return e.State == plan.Ready }) {
		least = plan.Finishing
	}
	var active []netip.AddrPort
	for _, e := range endpoints {
		if e.State >= least {
			active = append(active, e.Address)
		}
	}
	return active
}
