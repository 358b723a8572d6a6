package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/layout"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/record"
	"fairlead.dev/services/backendset-syncer/internal/routing"
)

// retireObjects decides what becomes of recorded objects that the plan does not have. Backend sets drain before they are deleted.
func (b *planBuilder) retireObjects() {
	var draining []record.Object
	for _, o := range b.before.Objects {
		ref := layout.Ref{Kind: o.Kind, Name: o.Name}
		switch {
		case b.wantsObject(ref):
		case slices.Contains(b.Gone, ref):
			b.after.RemoveObject(o.Kind, o.Name)
		case b.isFrozen(&o):
			if o.Kind == record.BackendSet {
				b.keepSet(&o)
			}
		case o.Kind == record.BackendSet:
			draining = append(draining, b.retireSet(o))
		case o.Kind == record.RoutingPolicy && len(b.foreignRules(o.Name)) > 0:
			b.leavePolicy(&o)
		default:
			b.layout.Delete = append(b.layout.Delete, ref)
		}
	}
	slices.SortFunc(draining, func(x, y record.Object) int {
		return cmp.Or(x.Retired.Compare(y.Retired), strings.Compare(x.Name, y.Name))
	})
	for _, o := range draining {
		b.layout.Retired = append(b.layout.Retired, o.Name)
	}
}

// isFrozen reports whether an object stays as it is because of a Gateway that cannot be resolved.
func (b *planBuilder) isFrozen(o *record.Object) bool {
	return o.Kind == record.Listener && b.frozenListeners[o.Name] || b.usedByFrozen(o.Kind, o.Name)
}

// retireSet drains a backend set, and deletes it when it is empty. Without a listener, no request is in flight.
func (b *planBuilder) retireSet(o record.Object) record.Object {
	ref := layout.Ref{Kind: o.Kind, Name: o.Name}
	if o.Retired.IsZero() {
		o.Retired = b.now.UTC().Truncate(time.Second)
		b.after.PutObject(o)
	}
	if b.live.Sets[o.Name] == 0 || len(b.gateways) == 0 {
		b.layout.Delete = append(b.layout.Delete, ref)
	}
	if b.live.Uses[ref] {
		b.keepSet(&o) // the policy that uses it changes first
	} else {
		b.drainSet(&o)
	}
	return o
}

// wantsObject reports whether the plan has an object.
func (b *planBuilder) wantsObject(ref layout.Ref) bool {
	w := b.layout
	switch ref.Kind {
	case record.Listener:
		return slices.ContainsFunc(w.Listeners, func(x layout.Listener) bool { return x.Name == ref.Name })
	case record.RoutingPolicy:
		return slices.ContainsFunc(w.Policies, func(x layout.Policy) bool { return x.Name == ref.Name })
	case record.RuleSet:
		return slices.ContainsFunc(w.RuleSets, func(x layout.RuleSet) bool { return x.Name == ref.Name })
	case record.Hostname:
		return slices.ContainsFunc(w.Hostnames, func(x layout.Hostname) bool { return x.Name == ref.Name })
	case record.Certificate:
		return slices.ContainsFunc(w.Certificates, func(x layout.Certificate) bool { return x.Name == ref.Name })
	}
	return b.sets[ref.Name] != nil && slices.ContainsFunc(w.Sets, func(x layout.Set) bool { return x.Name == ref.Name })
}

// keepSet keeps the endpoints of a set that something still uses.
func (b *planBuilder) keepSet(o *record.Object) {
	members, ok := routing.ParseSetKey(o.Key)
	if !ok {
		return
	}
	b.sets[o.Name] = b.buildSet(o.Key, members, b.firstParameters())
}

// drainSet drains the backends of a set that nothing uses any longer: requests in flight end.
func (b *planBuilder) drainSet(o *record.Object) {
	drain := b.firstParameters().drainTimes()
	drain.Minimum = drain.Maximum
	b.sets[o.Name] = &Set{Key: o.Key, Wanted: &actor.Wanted{Weight: 1, Drain: drain, Emptying: true, Retired: true, Limits: b.backendLimits()}}
}

// backendLimits returns the limits of the load balancer, also if no Gateway may program it any longer.
func (b *planBuilder) backendLimits() plan.Limits {
	if b.limits.Backends != (plan.Limits{}) {
		return b.limits.Backends
	}
	const documented = 512
	return plan.Limits{PerSet: documented, Total: documented}
}
