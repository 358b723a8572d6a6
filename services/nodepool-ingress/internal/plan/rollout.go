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
	holds := make([]hold, len(pools))
	pending, failed := 0, ""
	for i := range pools {
		p := &pools[i]
		if !p.Exists || !p.Current || p.Offline || p.Ready {
			continue
		}
		pending++
		if p.Failed && failed == "" {
			failed = p.Name
		}
	}
	outdated := func(p *stage) bool { return p.Exists && !p.Current }
	waits := ""
	for _, chosen := range []func(p *stage) bool{
		func(p *stage) bool { return !p.Offline && !p.Ready },
		func(p *stage) bool { return !p.Offline && p.Ready },
		func(p *stage) bool { return p.Offline },
	} {
		for i := range pools {
			p := &pools[i]
			if !outdated(p) || !chosen(p) {
				continue
			}
			switch {
			case strategy.Paused:
				holds[i] = hold{Reason: v1alpha1.ReasonPaused, Message: "updateStrategy.paused stops the roll-out"}
			case failed != "":
				holds[i] = hold{Reason: v1alpha1.ReasonStopped, Message: fmt.Sprintf("the roll-out has stopped, because pool %s failed", failed)}
			case p.Offline && (waits != "" || pending > 0), !p.Offline && pending >= int(strategy.MaxUnavailablePools):
				holds[i] = hold{Reason: v1alpha1.ReasonWaiting, Message: "the roll-out visits other pools first"}
				waits = p.Name
			case !p.Offline:
				pending++
			}
		}
	}
	return holds
}
