package plan

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// isOutdated reports whether the pool waits for the roll-out.
func (p *Pool) isOutdated() bool { return p.Before.Exists && !p.IsCurrent() }

// isStarting reports whether the pool has changed, and is not ready yet.
func (p *Pool) isStarting() bool { return p.IsCurrent() && !p.IsOffline() && !p.Before.Ready }

// maxNames is the number of pools that the message of another pool names.
const maxNames = 3

// deferral explains why a pool does not change now. It is zero for a pool that does.
type deferral struct{ Reason, Message string }

// scheduleRollout sets the deferrals of the pools that do not change now. pools are in the order of the specification.
//
//	a pool                                                   changes
//	without a Deployment                                     now: it serves nothing yet, and may need names or ports of other pools
//	that has the wanted revision                             now: the change repairs or scales it
//	with another revision, while a pool failed with the      never: the roll-out has stopped
//	wanted one
//	that has another revision and is not ready               while fewer than max pools with the wanted revision are not ready
//	that has another revision and is ready                   after those, in the same way
//	that has another revision and no ready node              after all others
//
// A pool without a ready node counts neither as failed nor as unavailable: sites are offline for days.
func scheduleRollout(pools []*Pool, strategy v1alpha1.UpdateStrategy) {
	r := rollout{strategy: strategy}
	for _, p := range pools {
		if p.isStarting() {
			r.pending++
			r.unready = append(r.unready, p.Name)
			if p.Before.Failed && r.failed == nil {
				r.failed = p
			}
		}
	}
	for _, turn := range []func(p *Pool) bool{
		func(p *Pool) bool { return !p.IsOffline() && !p.Before.Ready },
		func(p *Pool) bool { return !p.IsOffline() && p.Before.Ready },
		func(p *Pool) bool { return p.IsOffline() },
	} {
		for _, p := range pools {
			if p.isOutdated() && turn(p) {
				p.Deferral = r.decidePool(p)
			}
		}
	}
}

// rollout is a roll-out.
type rollout struct {
	strategy v1alpha1.UpdateStrategy
	pending  int      // pools with the wanted revision that are not ready
	unready  []string // those of them that had it before
	next     []string // those of them that get it now
	failed   *Pool    // one of the pending pools that failed
	waiting  []string // pools that wait for their turn
}

// decidePool decides whether the next pool changes now.
func (r *rollout) decidePool(p *Pool) deferral {
	full := r.pending >= int(r.strategy.MaxUnavailablePools)
	if p.IsOffline() {
		full = len(r.waiting) > 0 || r.pending > 0
	}
	switch {
	case r.strategy.Paused:
		return deferral{Reason: v1alpha1.ReasonPaused, Message: "updateStrategy.paused stops the roll-out"}
	case r.failed != nil:
		return deferral{
			Reason: v1alpha1.ReasonStopped,
			Message: fmt.Sprintf("the roll-out has stopped, because pool %s failed: correct the specification, or repair that pool",
				r.failed.Name),
		}
	case full:
		d := deferral{Reason: v1alpha1.ReasonWaiting, Message: r.waitMessage()}
		r.waiting = append(r.waiting, p.Name)
		return d
	case !p.IsOffline():
		r.pending++
		r.next = append(r.next, p.Name)
	}
	return deferral{}
}

// StopRollout stops the roll-out before the pool, because another one could not be written.
func (p *Pool) StopRollout(other string) {
	p.Deferral = deferral{
		Reason:  v1alpha1.ReasonStopped,
		Message: fmt.Sprintf("the roll-out has stopped, because pool %s could not be written: its condition Programmed tells why", other),
	}
}

// waitMessage says which pools a roll-out waits for. A pool with the wanted revision that is not ready blocks it until a user acts.
func (r *rollout) waitMessage() string {
	switch len(r.unready) {
	case 0:
		return "the roll-out visits other pools first: " + JoinNames(append(slices.Clone(r.next), r.waiting...), maxNames)
	case 1:
		return fmt.Sprintf("the roll-out waits until pool %s is ready: repair it, set its replicas to 0, or raise "+
			"updateStrategy.maxUnavailablePools above %d",
			r.unready[0], r.strategy.MaxUnavailablePools)
	}
	return fmt.Sprintf("the roll-out waits until one of pools %s is ready: repair it, set its replicas to 0, or raise "+
		"updateStrategy.maxUnavailablePools above %d",
		JoinNames(r.unready, maxNames), r.strategy.MaxUnavailablePools)
}

// JoinNames returns names for a message, most of them at the utmost, and the number of those that it leaves out.
func JoinNames(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
