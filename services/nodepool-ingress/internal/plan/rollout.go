package plan

import (
	"fmt"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// stage is the stage of a pool in a roll-out.
type stage struct {
	Name    string
	Exists  bool // it has a Deployment
	Current bool // the last apply was of the wanted revision
	Ready   bool
	Failed  bool
	Offline bool // it has no ready node
}

// outdated reports whether the pool waits for the roll-out.
func (s *stage) outdated() bool { return s.Exists && !s.Current }

// starting reports whether the pool has changed, and is not ready yet.
func (s *stage) starting() bool { return s.Exists && s.Current && !s.Offline && !s.Ready }

// hold is the reason for which a pool does not change now. It is zero for a pool that does.
type hold struct{ Reason, Message string }

// rollOut decides which pools change now. pools are in the order of the specification.
//
//	a pool                                                   changes
//	without a Deployment                                     now: it serves nothing yet, and may wait for what others give up
//	that has the wanted revision                             now: the change repairs or scales it
//	with another revision, while a pool failed with the      never: the roll-out has stopped
//	wanted one
//	that has another revision and is not ready               while fewer than max pools with the wanted revision are not ready
//	that has another revision and is ready                   after those, in the same way
//	that has another revision and no ready node              after all others
//
// A pool without a ready node neither counts as failed nor takes the place of another one: sites are offline for days.
func rollOut(pools []stage, strategy v1alpha1.UpdateStrategy) []hold {
	r := roll{strategy: strategy}
	for i := range pools {
		if p := &pools[i]; p.starting() {
			r.pending++
			if p.Failed && r.failed == nil {
				r.failed = p
			}
		}
	}
	holds := make([]hold, len(pools))
	for _, turn := range []func(p *stage) bool{
		func(p *stage) bool { return !p.Offline && !p.Ready },
		func(p *stage) bool { return !p.Offline && p.Ready },
		func(p *stage) bool { return p.Offline },
	} {
		for i := range pools {
			if p := &pools[i]; p.outdated() && turn(p) {
				holds[i] = r.next(p)
			}
		}
	}
	return holds
}

// roll is a roll-out.
type roll struct {
	strategy v1alpha1.UpdateStrategy
	pending  int    // pools with the wanted revision that are not ready
	failed   *stage // one of them that failed
	waits    bool   // a pool waits for its turn
}

// next decides on the pool whose turn it is.
func (r *roll) next(p *stage) hold {
	full := r.pending >= int(r.strategy.MaxUnavailablePools)
	if p.Offline {
		full = r.waits || r.pending > 0
	}
	switch {
	case r.strategy.Paused:
		return hold{Reason: v1alpha1.ReasonPaused, Message: "updateStrategy.paused stops the roll-out"}
	case r.failed != nil:
		return hold{Reason: v1alpha1.ReasonStopped, Message: fmt.Sprintf("the roll-out has stopped, because pool %s failed", r.failed.Name)}
	case full:
		r.waits = true
		return hold{Reason: v1alpha1.ReasonWaiting, Message: "the roll-out visits other pools first"}
	case !p.Offline:
		r.pending++
	}
	return hold{}
}
