package actor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// set is a backend set as an actor knows it.
type set struct {
	name    string
	desired *Wanted
	// services are the Services of the newest desired state that names any. While it is empty, no backend counts as taken.
	services []string
	former   []string // those of earlier desired states, since the set was planned last
	marks    plan.Marks
	target   *plan.Target
	live     *ociapi.BackendSet // nil: it does not exist, or was not read
	// foreign are the backends of a watched set that are not endpoints.
	foreign []string
	wanted  []plan.Backend

	since   time.Time // of the first event that no write has covered
	covered time.Time // of the first event that the write in progress covers
	dirty   time.Time // since when the set waits for a write; zero: it has all that is wanted

	attempts

	// applied is what the last write made of the set, nil before the first. A difference without a new target is a change of others.
	applied  []plan.Backend
	inFlight []plan.Backend
	repairs  int // in a row
	repairAt time.Time

	early   int // draining backends that the last write with any removed before their time
	earlyAt time.Time

	health health
}

// attempts are the attempts to write an object.
type attempts struct {
	problem     plan.Problem
	tokenNumber int // of retry tokens
	refusals    int // in a row
	attemptedAt time.Time
	retryAt     time.Time // no write before
}

// recordFailure remembers that a write has failed.
func (a *attempts) recordFailure(text string, now time.Time, jitter float64) {
	a.tokenNumber++
	a.refusals++
	a.retryAt = now.Add(afterFailedWork.delayAfter(a.refusals, jitter))
	if text != "" {
		a.problem = plan.Problem{Reason: v1alpha1.ReasonWorkRequestFailed, Message: text}
	}
}

// retrySooner makes the next attempt sooner: something else is wanted.
func (a *attempts) retrySooner() {
	a.problem, a.refusals = plan.Problem{}, 0
	if earlier := a.attemptedAt.Add(minRetryDelay); a.retryAt.After(earlier) {
		a.retryAt = earlier
	}
}

// setDesired replaces the desired state, and reports whether it is another one.
func (s *set) setDesired(desired *Wanted, now time.Time) bool {
	if s.desired == desired {
		return false
	}
	if s.desired != nil && !s.desired.Claimed.Equal(desired.Claimed) {
		s.marks = nil // of another owner
	}
	s.desired = desired
	if len(desired.Services) > 0 && !slices.Equal(desired.Services, s.services) {
		s.former, s.services = append(s.former, s.services...), desired.Services
	}
	if s.since.IsZero() {
		s.since = desired.Since
	}
	s.retrySooner()
	s.health.setDesired(desired, now)
	return true
}

// markSent remembers a write that was accepted.
func (s *set) markSent(wanted []plan.Backend, now time.Time) {
	if s.isRepair() {
		s.repairs++
		s.repairAt = now.Add(betweenRepairs.delayAfter(s.repairs, 0.5)) // without jitter
	}
	s.inFlight, s.dirty = wanted, now // what changes during the write comes after the sets that wait already
	s.covered, s.since = s.since, time.Time{}
	if n := len(s.target.Early); n > 0 {
		s.early, s.earlyAt = n, now
	}
}

// markWritten remembers that the write has had its effect.
func (s *set) markWritten() {
	s.applied, s.inFlight = s.inFlight, nil
	s.covered, s.problem, s.refusals = time.Time{}, plan.Problem{}, 0
}

// markFailed remembers that the write has failed.
func (s *set) markFailed(text string, now time.Time, jitter float64) {
	s.inFlight, s.applied = nil, nil
	s.since, s.covered = earlierTime(s.covered, s.since), time.Time{}
	s.attempts.recordFailure(text, now, jitter)
}

// behindSince returns the time of the oldest change that the set does not have: an event, or the time when a difference was seen.
func (s *set) behindSince() time.Time {
	if first := earlierTime(s.covered, s.since); !first.IsZero() {
		return first
	}
	return s.dirty
}

// isRepair reports whether the last write had the same result that is wanted now.
func (s *set) isRepair() bool { return s.applied != nil && slices.Equal(s.applied, s.wanted) }

// decideWrite plans all sets and returns the first write, or nil and when the targets change.
func (a *actor) decideWrite(now time.Time) (*write, time.Time) {
	if a.current == nil {
		return nil, time.Time{}
	}
	next := a.planSets(now)
	var ready []*set
	settled := true
	for _, s := range a.sets {
		if s.dirty.IsZero() {
			continue
		}
		settled = false
		at := s.retryAt
		if s.isRepair() && s.repairAt.After(at) {
			at = s.repairAt
		}
		if at.After(now) {
			next = earlierTime(next, at)
			continue
		}
		ready = append(ready, s)
	}
	if settled && a.layoutWork.isSettled() {
		a.writes.reset() // nothing is left to write: the problem of an earlier write is over
	}
	if a.layoutIsDue(now) {
		return a.decideLayout(now, next)
	}
	if w := a.firstWrite(ready, now); w != nil {
		return w, time.Time{}
	}
	return a.decideLayout(now, next)
}

// firstWrite returns the write of the set that has waited longest, nil if none needs one.
func (a *actor) firstWrite(ready []*set, now time.Time) *write {
	slices.SortFunc(ready, func(x, y *set) int { return cmp.Or(x.dirty.Compare(y.dirty), cmp.Compare(x.name, y.name)) })
	for _, s := range ready {
		if !a.staysWithinLimit(s) || s.desired.Retired && a.current.IsUsed(s.name) {
			continue
		}
		w, err := a.current.NewWrite(s.live, s.wanted, s.desired.Health)
		switch {
		case err != nil:
			s.problem, s.retryAt = plan.Problem{Reason: v1alpha1.ReasonRequestRefused, Message: err.Error()}, now.Add(afterRefused.last)
		case w == nil:
			s.dirty = time.Time{}
		default:
			a.layoutWork.setWrites++
			return &write{Write: w, set: s, wanted: s.wanted, attempts: &s.attempts, name: s.name}
		}
	}
	return nil
}

// planSets computes the targets of all sets, and returns when they change without an event.
func (a *actor) planSets(now time.Time) time.Time {
	sizes := a.current.SetSizes()
	others := 0
	for name, size := range sizes {
		if s := a.sets[name]; s == nil || s.desired.Watching {
			others += size
		}
	}
	var demands []plan.Demand
	var planned []*set
	var limits plan.Limits
	for _, name := range slices.Sorted(maps.Keys(a.sets)) {
		s := a.sets[name]
		if !a.locateSet(s, sizes) {
			continue
		}
		live := s.live
		if s.desired.Watching {
			s.noteForeignBackends()
			continue
		}
		s.target = plan.Build(plan.Input{
			Endpoints: s.desired.Endpoints, Current: live.Backends, Drain: s.desired.Drain, Emptying: s.desired.Emptying,
			Occupants: a.findOccupants(s), Former: s.former,
			Claimed: s.desired.Claimed, Marks: s.marks, Now: now,
		})
		s.marks, s.former = s.target.Marks, nil
		limits = s.desired.Limits
		demands, planned = append(demands, plan.Demand{Target: s.target, Maximum: s.desired.Maximum}), append(planned, s)
	}
	plan.FitLimits(demands, limits, others)
	var next time.Time
	for _, s := range planned {
		next = earlierTime(next, s.target.Next)
		s.wanted = s.target.WantedBackends(s.live.Backends, s.desired.weightOf)
		s.compareWithTarget(now)
		if a.current.IsUsed(s.name) {
			s.health.restartWhenUsed(now)
		}
	}
	return next
}

// findOccupants returns the ready endpoints of other Services at the addresses of the backends.
func (a *actor) findOccupants(s *set) map[netip.AddrPort][]plan.Occupant {
	if len(s.services) == 0 {
		return nil
	}
	occupants := map[netip.AddrPort][]plan.Occupant{}
	for _, b := range s.live.Backends {
		if o := a.p.Occupants(b.Address, s.services); len(o) > 0 {
			occupants[b.Address] = o
		}
	}
	return occupants
}

// locateSet finds a set in the load balancer as it was read, and reports whether it is there.
func (a *actor) locateSet(s *set, sizes map[string]int) bool {
	live, err := a.current.BackendSet(s.name)
	switch s.live = live; {
	case err != nil:
		s.markUnreadable(v1alpha1.ReasonLoadBalancerUnavailable, err)
	case live == nil && a.layoutWork.createsSet(s.name):
		s.markUnreadable(v1alpha1.ReasonPending, errCreating)
	case live == nil:
		s.markUnreadable(v1alpha1.ReasonBackendSetNotFound, errNoSet(sizes))
	case s.problem.Reason == v1alpha1.ReasonBackendSetNotFound || s.problem.Message == errCreating.Error():
		s.problem = plan.Problem{}
	}
	return s.live != nil
}

// markUnreadable notes why the set cannot be written.
func (s *set) markUnreadable(reason string, err error) {
	s.problem = plan.Problem{Reason: reason, Message: err.Error()}
	s.live, s.target, s.wanted, s.dirty = nil, nil, nil, time.Time{}
}

// noteForeignBackends notes the backends of others.
func (s *set) noteForeignBackends() {
	s.target, s.wanted, s.dirty, s.foreign = nil, nil, time.Time{}, nil
	own := map[netip.AddrPort]bool{}
	for _, e := range s.desired.Endpoints {
		own[e.Address] = true
	}
	for _, b := range s.live.Backends {
		if !own[b.Address] {
			s.foreign = append(s.foreign, b.Address.String())
		}
	}
}

// compareWithTarget notes whether the set differs from its target.
func (s *set) compareWithTarget(now time.Time) {
	changes := plan.Diff(s.live.Backends, s.wanted)
	same := changes.Len() == 0 && (s.desired.Health == nil || s.desired.Health.IsEqual(s.live.HealthChecker))
	switch {
	case !same && s.dirty.IsZero():
		s.dirty = now
	case same:
		s.dirty, s.since, s.problem, s.refusals = time.Time{}, time.Time{}, plan.Problem{}, 0
		if s.applied == nil {
			s.applied = s.wanted
		}
		if s.repairs > 0 && now.Sub(s.repairAt) > betweenRepairs.last {
			s.repairs = 0
		}
	}
	s.health.trackActive(s, now)
}

// errCreating is the problem of a set that the layout creates.
var errCreating = errors.New("the backend set is being created")

// errNoSet names the sets of a load balancer.
func errNoSet(sizes map[string]int) error {
	if len(sizes) == 0 {
		return errors.New("the load balancer has no backend sets; create the set, with Terraform for example")
	}
	return fmt.Errorf("the load balancer has no backend set of this name; it has %s", formatList(slices.Sorted(maps.Keys(sizes))))
}

// staysWithinLimit reports whether a write of the set keeps the load balancer within its limit: another set may have to shrink first.
func (a *actor) staysWithinLimit(s *set) bool {
	total := len(s.wanted)
	for name, size := range a.current.SetSizes() {
		if name != s.name {
			total += size
		}
	}
	return total <= s.desired.Limits.Total || len(s.wanted) <= len(s.live.Backends)
}

// activeOf returns the addresses that get new requests.
func activeOf(backends []plan.Backend) map[netip.AddrPort]bool {
	active := map[netip.AddrPort]bool{}
	for _, b := range backends {
		if !b.Drain && !b.Offline {
			active[b.Address] = true
		}
	}
	return active
}
