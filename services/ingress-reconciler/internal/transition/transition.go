// Package transition decides when objects that are wanted no more go: after those that take their place work.
//
//	an object that is not wanted any more, of a slot          what becomes of it
//	whose state is not known now                              it stays; so do objects of no known slot
//	of a service that is not to be exposed                    it goes; if OME takes over, after the hold
//	that has no way in any more                               it goes
//	whose host and path another service has                   it goes: it would take the other's requests
//	whose new objects are not all accepted, or refused        it stays
//	whose new objects are accepted                            it is marked with the time, and goes after the hold
//
// The hold is for clients that know the old way in, as by DNS. The mark is an annotation of the old object, so that the time
// outlives a restart and a change of leaders. One that lies ahead, by another replica's clock or somebody's hand, is set anew:
// else the object could stay for ever.
package transition

import (
	"slices"
	"time"

	gateway "fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// Wanted is an object that is to be there.
type Wanted struct {
	Slot    plan.Slot
	Verdict gateway.Acceptance
}

// Old is an object that is there and not wanted.
type Old struct {
	Slot       plan.Slot
	Superseded time.Time // when others had taken its place; zero: not known to
	Taken      bool      // another service has its host and path
}

// Input is what the decision follows from.
type Input struct {
	Now      time.Time
	Hold     time.Duration
	Keep     []plan.Slot
	Withheld bool // nothing is to be exposed
	Handed   bool // by us: somebody else takes over
	Wanted   []Wanted
	Old      []Old
}

// Fate is what becomes of an old object.
type Fate int

// The fates.
const (
	Stays  Fate = iota
	Marked      // it stays, and gets the time
	Goes
)

// Decide returns the fate of each old object, in their order, and how long until the next one goes: 0 if none is waiting for
// the time alone.
func Decide(in Input) (fates []Fate, next time.Duration) {
	for _, o := range in.Old {
		fate, wait := in.fate(o)
		fates = append(fates, fate)
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return fates, next
}

func (in *Input) fate(o Old) (fate Fate, wait time.Duration) {
	switch {
	case o.Taken:
		return Goes, 0
	case in.kept(o.Slot):
		return Stays, 0
	}
	replaced, accepted := in.replaced(o.Slot)
	switch {
	case in.Withheld && !in.Handed, !in.Withheld && !replaced:
		return Goes, 0
	case !in.Withheld && !accepted:
		return Stays, 0
	case in.Hold <= 0:
		return Goes, 0
	case o.Superseded.IsZero(), o.Superseded.After(in.Now):
		return Marked, in.Hold
	}
	if wait = in.Hold - in.Now.Sub(o.Superseded); wait > 0 {
		return Stays, wait
	}
	return Goes, 0
}

// kept reports whether objects of a slot stay as they are. What has lost the label with its slot may be of any.
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
