package gatewayplan

import (
	"slices"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// A backendRef that is not valid should get its share of the requests answered with 500. A rule has one backend set, so the set gets
// backends of the responder with the weight of the reference. A reference whose Service does not exist yet keeps its place in the key of
// the set: when the Service comes, the set stays, and only its backends change.
//
// The responder fails HTTP health checks, because it answers all requests with errors. With such a check, and without a responder, the
// other backendRefs of the rule get the share, and the condition ResolvedRefs names the reason.

// Consequences of an invalid backendRef, in the message of ResolvedRefs.
const (
	shareFails     = "its share of the requests gets status 500"
	shareIsDivided = "the other backendRefs get its share of the requests"
	ruleFails      = "requests for the rule get status 500"
	ruleIsEmpty    = "requests for the rule get status 502"
)

// invalidRef is a backendRef that the route may not use, or that cannot be resolved.
type invalidRef struct {
	index   int
	member  routing.Member
	problem plan.Problem
}

// resolveMembers returns the members of the backend set of a rule, and the problem of its first invalid backendRef.
func (b *planBuilder) resolveMembers(route *gatewayv1.HTTPRoute, rule *gatewayv1.HTTPRouteRule) ([]routing.Member, plan.Problem) {
	var valid []routing.Member
	var invalid []invalidRef
	for i := range rule.BackendRefs {
		ref := &rule.BackendRefs[i]
		backend, problem := b.resolveBackend(route.Namespace, &ref.BackendRef)
		member := routing.Member{Backend: backend, Weight: ptr.Deref(ref.Weight, 1)}
		if problem.IsSet() {
			invalid = append(invalid, invalidRef{index: i, member: member, problem: problem})
		} else {
			valid = append(valid, member)
		}
	}
	if len(invalid) == 0 {
		return valid, plan.Problem{}
	}
	members, consequence := valid, ""
	switch serves := slices.ContainsFunc(valid, func(m routing.Member) bool { return m.Weight > 0 }); {
	case serves && b.answersShares():
		members, consequence = b.withShares(valid, invalid), shareFails
	case serves:
		consequence = shareIsDivided
	case b.planner.fallback != nil:
		consequence = ruleFails
	default:
		consequence = ruleIsEmpty
	}
	first := invalid[0]
	problem := plan.NewProblem(first.problem.Reason, "backendRefs[%d]: %s", first.index, first.problem.Message)
	if first.member.Weight > 0 {
		problem.Message += ": " + consequence
	}
	return members, problem
}

// answersShares reports whether the responder can be a backend beside others.
func (b *planBuilder) answersShares() bool {
	return b.planner.fallback != nil &&
		!slices.ContainsFunc(b.Gateways, func(g *ResolvedGateway) bool { return g.Parameters.Health.Protocol == plan.HealthHTTP })
}

// withShares returns the members of a rule with those of its invalid backendRefs.
func (b *planBuilder) withShares(valid []routing.Member, invalid []invalidRef) []routing.Member {
	members := slices.Clone(valid)
	for _, x := range invalid {
		switch x.problem.Reason {
		case string(gatewayv1.RouteReasonInvalidKind), string(gatewayv1.RouteReasonRefNotPermitted): // other routes may use the backend
			x.member.Backend = b.planner.fallback.NoBackends
		}
		members = append(members, x.member)
	}
	return members
}

// memberEndpoints returns the endpoints of a member of a set: those of the responder if the backend cannot be resolved and stands beside
// others.
func (b *planBuilder) memberEndpoints(m *routing.Member, members []routing.Member) backendEndpoints {
	f := b.findEndpoints(m.Backend)
	if !f.problem.IsSet() || len(members) < 2 || !b.answersShares() {
		return f
	}
	f = b.findEndpoints(b.planner.fallback.NoBackends)
	f.problem = plan.Problem{}
	return f
}
