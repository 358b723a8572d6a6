// Package transition decides when objects that are no longer wanted are deleted: after the objects that replace them work.
//
//	an old object of a slot                                     action
//	whose wanted state is unknown                               keep; so are objects without a known slot
//	of a service that must not be exposed                       delete; when OME takes over, after the hold
//	without new objects                                         delete
//	whose host and path belong to another service               delete: it would take requests of the other service
//	whose new objects are not all accepted, or refused          keep
//	whose new objects are accepted                              mark with the time, delete after the hold
//
// The hold is for clients that resolved the old host before. The mark is an annotation, so the time survives a restart and a
// change of leaders. A time in the future, from another replica's clock or a user, is replaced: the object could stay forever.
package transition

import (
	"slices"
	"time"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Wanted is an object of the plan.
type Wanted struct {
	Slot    plan.Slot
	Verdict gateway.Acceptance
}

// Old is an object in the cluster that is not in the plan.
type Old struct {
	Slot       plan.Slot
	Superseded time.Time // when new objects replaced it; zero: not yet
	Lost       bool      // its host and path belong to another service
	Exclusive  bool      // while it exists, OME cannot create its own object for the host
}

// Input is what the decision depends on.
type Input struct {
	Now      time.Time
	Hold     time.Duration
	Keep     []plan.Slot
	Disabled bool // the service must not be exposed
	Handed   bool // because OME exposes it
	Wanted   []Wanted
	Old      []Old
}

// Action is what happens to an old object.
type Action int

// The actions.
const (
	Keep Action = iota
	Mark        // keep it, and record the time in its annotation
	Delete
)

// Decide returns the action for each old object, in their order, and the time until the next one is deleted: 0 if no object waits
// for the time alone.
func Decide(in Input) (actions []Action, next time.Duration) {
	for _, o := range in.Old {
		action, wait := in.action(o)
		actions = append(actions, action)
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return actions, next
}

func (in *Input) action(o Old) (action Action, wait time.Duration) {
	switch {
	case o.Lost:
		return Delete, 0
	case in.kept(o.Slot):
		return Keep, 0
	}
	replaced, accepted := in.replaced(o.Slot)
	switch {
	case in.Disabled && (!in.Handed || o.Exclusive), !in.Disabled && !replaced:
		return Delete, 0
	case !in.Disabled && !accepted:
		return Keep, 0
	case in.Hold <= 0:
		return Delete, 0
	case o.Superseded.IsZero(), o.Superseded.After(in.Now):
		return Mark, in.Hold
	}
	if wait = in.Hold - in.Now.Sub(o.Superseded); wait > 0 {
		return Keep, wait
	}
	return Delete, 0
}

// kept reports whether objects of a slot stay as they are. An object without its slot label could belong to any slot.
func (in *Input) kept(slot plan.Slot) bool {
	return slices.Contains(in.Keep, slot) || len(in.Keep) > 0 && !slices.Contains(plan.Slots, slot)
}

// replaced reports whether a slot has new objects, and whether all of them are accepted.
func (in *Input) replaced(slot plan.Slot) (replaced, accepted bool) {
	accepted = true
	for _, w := range in.Wanted {
		if w.Slot == slot {
			replaced, accepted = true, accepted && w.Verdict == gateway.Accepted
		}
	}
	return replaced, accepted
}
