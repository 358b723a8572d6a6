package gatewayplan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// retireObjects decides what becomes of recorded objects that the plan does not have. Backend sets drain before they are deleted.
func (b *planBuilder) retireObjects() {
	var draining []lbrecord.Object
	for _, o := range b.before.Objects {
		ref := lblayout.Ref{Kind: o.Kind, Name: o.Name}
		switch {
		case b.wantsObject(ref):
		case slices.Contains(b.Gone, ref):
			b.Plan.Record.RemoveObject(o.Kind, o.Name)
		case b.isFrozen(&o):
			if o.Kind == lbrecord.BackendSet {
				b.keepSet(&o)
			}
		case o.Kind == lbrecord.BackendSet:
			draining = append(draining, b.retireSet(o))
		case o.Kind == lbrecord.RoutingPolicy && len(b.foreignRules(o.Name)) > 0:
			b.leavePolicy(&o)
		default:
			b.Layout.Delete = append(b.Layout.Delete, ref)
		}
	}
	slices.SortFunc(draining, func(x, y lbrecord.Object) int {
		return cmp.Or(x.Retired.Compare(y.Retired), strings.Compare(x.Name, y.Name))
	})
	for _, o := range draining {
		b.Layout.Retired = append(b.Layout.Retired, o.Name)
	}
}

// isFrozen reports whether an object stays as it is because of a Gateway that cannot be resolved.
func (b *planBuilder) isFrozen(o *lbrecord.Object) bool {
	return o.Kind == lbrecord.Listener && b.frozenListeners[o.Name] || b.usedByFrozen(o.Kind, o.Name)
}

// retireSet drains a backend set, and deletes it when it is empty. Without a listener, no request is in flight.
func (b *planBuilder) retireSet(o lbrecord.Object) lbrecord.Object {
	ref := lblayout.Ref{Kind: o.Kind, Name: o.Name}
	if o.Retired.IsZero() {
		o.Retired = b.Now.UTC().Truncate(time.Second)
		b.Plan.Record.PutObject(o)
	}
	if b.Live.Sets[o.Name] == 0 || len(b.Gateways) == 0 {
		b.Layout.Delete = append(b.Layout.Delete, ref)
	}
	if b.Live.Uses[ref] {
		b.keepSet(&o) // the policy that uses it changes first
	} else {
		b.drainSet(&o)
	}
	return o
}

// wantsObject reports whether the plan has an object.
func (b *planBuilder) wantsObject(ref lblayout.Ref) bool {
	return b.Layout.HasObject(ref) && (ref.Kind != lbrecord.BackendSet || b.Sets[ref.Name] != nil)
}

// keepSet keeps the endpoints of a set that something still uses.
func (b *planBuilder) keepSet(o *lbrecord.Object) {
	members, ok := routing.ParseSetKey(o.Key)
	if !ok {
		return
	}
	b.Sets[o.Name] = b.buildSet(o.Key, members, b.firstParameters())
}

// drainSet drains the backends of a set that nothing uses any longer: requests in flight end.
func (b *planBuilder) drainSet(o *lbrecord.Object) {
	drain := b.firstParameters().drainTimes()
	drain.Minimum = drain.Maximum
	b.Sets[o.Name] = &Set{
		Key: o.Key, Wanted: &actor.Wanted{Weight: 1, Drain: drain, Emptying: true, Retired: true, Limits: b.backendLimits()},
	}
}

// backendLimits returns the limits of the load balancer, also if no Gateway may program it any longer.
func (b *planBuilder) backendLimits() plan.Limits {
	if b.limits.Backends != (plan.Limits{}) {
		return b.limits.Backends
	}
	const documented = 512
	return plan.Limits{PerSet: documented, Total: documented}
}
