package gatewayplan

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// A routing policy belongs to a listener of the load balancer, and others may have rules in it. It stays with its listener: if a listener
// of a Gateway gets another name, or another Gateway takes its port, the policy and the rules of others stay. If the listener is deleted,
// only the program's rules go.

// namePolicies gives listeners the policies that their listeners of the load balancer have.
func (b *planBuilder) namePolicies() {
	names, taken := b.input.Names, map[string]bool{}
	for name := range b.frozenListeners {
		taken[b.Live.Listeners[name].Policy] = true
	}
	var others []*Listener
	for _, l := range b.valid {
		if policy := b.policyOf(l); policy != "" && !taken[policy] {
			names[l.policyKey()], taken[policy] = policy, true
		} else {
			others = append(others, l)
		}
	}
	for _, l := range others {
		name := cmp.Or(names[l.policyKey()], routing.PolicyName(l.gateway.gatewayName(), string(l.Name)))
		for suffix := fmt.Sprintf("_%d", l.Port); taken[name]; suffix += "_" { // names of listeners have no underscore
			name = routing.PolicyName(l.gateway.gatewayName(), string(l.Name)+suffix)
		}
		names[l.policyKey()], taken[name] = name, true
	}
}

// policyOf returns the recorded routing policy of the listener of the load balancer that a listener keeps.
func (b *planBuilder) policyOf(l *Listener) string {
	o := b.before.FindByKey(lbrecord.Listener, l.key)
	if o == nil {
		return ""
	}
	if policy := b.Live.Listeners[o.Name].Policy; b.before.HasObject(lbrecord.RoutingPolicy, policy) {
		return policy
	}
	return ""
}

func (l *Listener) policyKey() string {
	return routing.PolicyKey(l.gateway.gatewayName(), string(l.Name))
}

// addPolicy adds the routing policy of a listener, and returns its name: empty without one.
func (b *planBuilder) addPolicy(l *Listener, p *routing.Policy) string {
	if len(p.Rules) == 0 && !b.hasForeignRules(p) {
		return ""
	}
	own := lblayout.Policy{Name: p.Name, Rules: p.Rules}
	if o := b.before.FindByName(lbrecord.RoutingPolicy, p.Name); o != nil {
		own.Adopted = o.AdoptedRules
	}
	b.Plan.Record.PutObject(lbrecord.Object{Kind: lbrecord.RoutingPolicy, Key: p.Key, Name: p.Name, AdoptedRules: own.Adopted})
	l.needs = append(l.needs, lblayout.Ref{Kind: lbrecord.RoutingPolicy, Name: p.Name})
	b.Layout.Policies = append(b.Layout.Policies, own)
	return p.Name
}

// hasForeignRules reports whether the routing policy of a listener has rules of others. The listener keeps it then, also without a route.
func (b *planBuilder) hasForeignRules(p *routing.Policy) bool {
	return len(b.foreignRules(p.Name)) > 0
}

// foreignRules returns the rules of others in a routing policy that is recorded, or that was left to them.
func (b *planBuilder) foreignRules(policy string) []plan.Rule {
	var adopted []string
	if o := b.before.FindByName(lbrecord.RoutingPolicy, policy); o != nil {
		adopted = o.AdoptedRules
	} else if !b.isLeft(lblayout.Ref{Kind: lbrecord.RoutingPolicy, Name: policy}) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Live.Policies[policy].Rules), func(r plan.Rule) bool {
		return lblayout.IsOwnRule(r.Name) || slices.Contains(adopted, r.Name)
	})
}

// isLeft reports whether an object is a routing policy that an earlier listener with the name left to others: it has only their rules, and
// no listener uses it. The listener takes it up again, with their rules.
func (b *planBuilder) isLeft(ref lblayout.Ref) bool {
	p, found := b.Live.Policies[ref.Name]
	return found && ref.Kind == lbrecord.RoutingPolicy && !b.before.HasObject(ref.Kind, ref.Name) && !b.Live.Uses[ref] &&
		!slices.ContainsFunc(p.Rules, func(r plan.Rule) bool { return lblayout.IsOwnRule(r.Name) })
}

// leavePolicy leaves a routing policy to the other clients that have rules in it: once no listener uses it, the program's rules are
// removed, and then the policy is removed from the record.
func (b *planBuilder) leavePolicy(o *lbrecord.Object) {
	rules := b.Live.Policies[o.Name].Rules
	switch {
	case b.Live.Uses[lblayout.Ref{Kind: o.Kind, Name: o.Name}]: // its listener is deleted first
	case len(rules) > len(b.foreignRules(o.Name)):
		b.Layout.Policies = append(b.Layout.Policies, lblayout.Policy{Name: o.Name, Adopted: o.AdoptedRules})
	default:
		b.Plan.Record.RemoveObject(o.Kind, o.Name)
	}
}
