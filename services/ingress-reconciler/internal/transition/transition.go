// Package transition decides when to delete objects that are no longer in the plan: after their replacements work.
//
//	an old object of a slot                                     action
//	whose wanted state is unknown                               keep; so are objects without a known slot
//	of a service that must not be exposed                       delete
//	of a service that OME must expose instead                   keep until an accepted route of OME serves the host, then as below
//	without new objects                                         delete
//	whose host and path belong to another service               delete: it would receive requests for the other service
//	whose new objects are not all accepted                      keep
//	whose new objects are all accepted                          record the time, delete after the hold
//
// The hold is for clients that have already resolved the old host. The time is in an annotation, so it survives restarts and leader
// changes. A time in the future, written by a user or by a replica with a different clock, is replaced: otherwise the object could
// stay forever.
package transition

import (
	"slices"
	"time"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Wanted is an object of the plan.
type Wanted struct {
	Slot    plan.Slot
	Verdict gatewayapi.Acceptance
}

// Old is an object in the cluster that is not in the plan.
type Old struct {
	Slot       plan.Slot
	Superseded time.Time // when new objects replaced it; zero: not yet
	Lost       bool      // its host and path belong to another service
	Served     bool      // an accepted route of OME serves its host and path; used only with HandedToOME
}

// Input is the input of Decide.
type Input struct {
	Now          time.Time
	HoldDuration time.Duration
	FrozenSlots  []plan.Slot
	Disabled     bool // the service must not be exposed
	HandedToOME  bool // OME must expose the service; set only with Disabled
	Wanted       []Wanted
	Old          []Old
}

// Action is the action for an old object.
type Action int

// The actions.
const (
	Retain Action = iota
	Mark          // keep it, and record the time in its annotation
	Delete
)

// Decide returns the action for each old object, in the order of the input, and the time until the next deletion: 0 if no object
// waits for the end of the hold.
func Decide(in Input) (actions []Action, next time.Duration) {
	for _, o := range in.Old {
		action, wait := in.decideAction(o)
		actions = append(actions, action)
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return actions, next
}

func (in *Input) decideAction(o Old) (action Action, wait time.Duration) {
	switch {
	case o.Lost:
		return Delete, 0
	case in.isFrozen(o.Slot):
		return Retain, 0
	}
	replaced, accepted := in.slotState(o.Slot)
	switch {
	case in.Disabled && !in.HandedToOME, !in.Disabled && !replaced:
		return Delete, 0
	case in.Disabled && !o.Served, !in.Disabled && !accepted:
		return Retain, 0
	case in.HoldDuration <= 0:
		return Delete, 0
	case o.Superseded.IsZero(), o.Superseded.After(in.Now):
		return Mark, in.HoldDuration
	}
	if wait = in.HoldDuration - in.Now.Sub(o.Superseded); wait > 0 {
		return Retain, wait
	}
	return Delete, 0
}

// isFrozen reports whether objects of a slot stay as they are. An object without its slot label could belong to any slot.
func (in *Input) isFrozen(slot plan.Slot) bool {
	return slices.Contains(in.FrozenSlots, slot) || len(in.FrozenSlots) > 0 && !slices.Contains(plan.Slots, slot)
}

// slotState reports whether a slot has new objects, and whether all of them are accepted.
func (in *Input) slotState(slot plan.Slot) (replaced, accepted bool) {
	accepted = true
	for _, w := range in.Wanted {
		if w.Slot == slot {
			replaced, accepted = true, accepted && w.Verdict == gatewayapi.Accepted
		}
	}
	return replaced, accepted
}
