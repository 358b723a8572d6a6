package actor

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// set is a backend set as an actor knows it.
type set struct {
	name string
	wish *request
	// services are those of the newest wish that names any. Without one, no backend is taken.
	services []string
	former   []string // those of earlier wishes, since the set was planned last
	memory   plan.Marks
	target   *plan.Target
	live     *ociapi.BackendSet // nil: it does not exist, or was not read
	// foreign are the backends of a set that is only watched, except for those that are endpoints.
	foreign []string
	wanted  []plan.Backend

	since   time.Time // of the first event that no write has covered
	covered time.Time // of the first event that the write in progress covers
	dirty   time.Time // since when the set waits for a write; zero: it has all that is wanted

	effort

	// applied is what the last write made of the set, nil before the first. A difference without a new target is a change of others.
	applied  []plan.Backend
	inFlight []plan.Backend
	repairs  int // in a row
	repairAt time.Time

	early   int // draining backends that the last write with any removed before their time
	earlyAt time.Time

	health health
}

// effort is what an actor remembers about the writes of an object.
type effort struct {
	problem     *problem
	attempt     int // of retry tokens
	refusals    int // in a row
	attemptedAt time.Time
	retryAt     time.Time // no write before
}

// failed remembers that a write has failed.
func (e *effort) failed(text string, now time.Time, jitter float64) {
	e.attempt++
	e.refusals++
	e.retryAt = now.Add(afterFailedWork.delay(e.refusals, jitter))
	if text != "" {
		e.problem = &problem{reason: reasonWorkFailed, message: text}
	}
}

// renew makes the next attempt sooner: something else is wanted.
func (e *effort) renew() {
	e.problem, e.refusals = nil, 0
	if earlier := e.attemptedAt.Add(respite); e.retryAt.After(earlier) {
		e.retryAt = earlier
	}
}

func newSet(name string) *set { return &set{name: name} }

// want replaces the wish, and reports whether it is another one.
func (s *set) want(wish *request, now time.Time) bool {
	if s.wish == wish {
		return false
	}
	if s.wish != nil && !s.wish.Claimed.Equal(wish.Claimed) {
		s.memory = nil // of another owner
	}
	s.wish = wish
	if len(wish.Services) > 0 && !slices.Equal(wish.Services, s.services) {
		s.former, s.services = append(s.former, s.services...), wish.Services
	}
	if s.since.IsZero() {
		s.since = wish.Since
	}
	s.renew()
	s.health.want(wish, now)
	return true
}

// sent remembers a write that was accepted.
func (s *set) sent(wanted []plan.Backend, now time.Time) {
	if s.isRepair() {
		s.repairs++
		s.repairAt = now.Add(betweenRepairs.delay(s.repairs, 0.5)) //nolint:mnd // without jitter
	}
	s.inFlight, s.dirty = wanted, now // what changes during the write comes after the sets that wait already
	s.covered, s.since = s.since, time.Time{}
	if n := len(s.target.Early); n > 0 {
		s.early, s.earlyAt = n, now
	}
}

// written remembers that the write has had its effect.
func (s *set) written() {
	s.applied, s.inFlight = s.inFlight, nil
	s.covered, s.problem, s.refusals = time.Time{}, nil, 0
}

// failed remembers that the write has failed.
func (s *set) failed(text string, now time.Time, jitter float64) {
	s.inFlight, s.applied = nil, nil
	s.since, s.covered = earliest(s.covered, s.since), time.Time{}
	s.effort.failed(text, now, jitter)
}

// behind returns the time of the oldest change that the set does not have: an event, or the time when a difference was seen.
func (s *set) behind() time.Time {
	if first := earliest(s.covered, s.since); !first.IsZero() {
		return first
	}
	return s.dirty
}

// isRepair reports whether the last write had the same result that is wanted now.
func (s *set) isRepair() bool { return s.applied != nil && slices.Equal(s.applied, s.wanted) }

// decide plans all sets and returns the first write, or nil and when the targets change.
func (a *actor) decide(now time.Time) (*write, time.Time) {
	if a.current == nil {
		return nil, time.Time{}
	}
	next := a.plan(now)
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
			next = earliest(next, at)
			continue
		}
		ready = append(ready, s)
	}
	if settled && a.frame.settled() {
		a.writes.end() // nothing is left to write: the problem of an earlier write is over
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
		if !a.fits(s) || s.wish.Retired && a.current.Used(s.name) {
			continue
		}
		w, err := a.current.NewWrite(s.live, s.wanted, s.wish.Health)
		switch {
		case err != nil:
			s.problem, s.retryAt = &problem{reason: reasonRefused, message: err.Error()}, now.Add(afterRefused.last)
		case w == nil:
			s.dirty = time.Time{}
		default:
			a.frame.passed++
			return &write{Write: w, set: s, wanted: s.wanted, effort: &s.effort, name: s.name}
		}
	}
	return nil
}

// plan computes the targets of all sets, and returns when they change without an event.
func (a *actor) plan(now time.Time) time.Time {
	sizes := a.current.Sets()
	others := 0
	for name, size := range sizes {
		if s := a.sets[name]; s == nil || s.wish.Watching {
			others += size
		}
	}
	var demands []plan.Demand
	var planned []*set
	var limits plan.Limits
	for _, name := range byName(a.sets) {
		s := a.sets[name]
		if !a.locate(s, sizes) {
			continue
		}
		live := s.live
		if s.wish.Watching {
			s.watch()
			continue
		}
		s.target = plan.Build(plan.Input{
			Endpoints: s.wish.Endpoints, Current: live.Backends, Drain: s.wish.Drain, Emptying: s.wish.Emptying, Occupants: a.occupants(s), Former: s.former,
			Claimed: s.wish.Claimed, Marks: s.memory, Now: now,
		})
		s.memory, s.former = s.target.Marks, nil
		limits = s.wish.Limits
		demands, planned = append(demands, plan.Demand{Target: s.target, Maximum: s.wish.Maximum}), append(planned, s)
	}
	plan.FitLimits(demands, limits, others)
	var next time.Time
	for _, s := range planned {
		next = earliest(next, s.target.Next)
		s.wanted = s.target.WantedBackends(s.live.Backends, s.wish.weightOf)
		s.compare(now)
		if a.current.Used(s.name) {
			s.health.reached(now)
		}
	}
	return next
}

// occupants returns the ready endpoints of other Services at the addresses of the backends.
func (a *actor) occupants(s *set) map[netip.AddrPort][]plan.Occupant {
	if len(s.services) == 0 {
		return nil
	}
	all := map[netip.AddrPort][]plan.Occupant{}
	for _, b := range s.live.Backends {
		if o := a.p.Occupants(b.Address, s.services); len(o) > 0 {
			all[b.Address] = o
		}
	}
	return all
}

// locate finds a set in the load balancer as it was read, and reports whether it is there.
func (a *actor) locate(s *set, sizes map[string]int) bool {
	live, err := a.current.Set(s.name)
	switch s.live = live; {
	case err != nil:
		s.unreadable(reasonUnavailable, err)
	case live == nil && a.frame.creates(s.name):
		s.unreadable(reasonPending, errCreating)
	case live == nil:
		s.unreadable(reasonNoSet, errNoSet(sizes))
	case s.problem != nil && (s.problem.reason == reasonNoSet || s.problem.message == errCreating.Error()):
		s.problem = nil
	}
	return s.live != nil
}

// unreadable notes why the set cannot be written.
func (s *set) unreadable(reason string, err error) {
	s.problem = &problem{reason: reason, message: err.Error()}
	s.live, s.target, s.wanted, s.dirty = nil, nil, nil, time.Time{}
}

// watch notes the backends of others.
func (s *set) watch() {
	s.target, s.wanted, s.dirty, s.foreign = nil, nil, time.Time{}, nil
	own := map[netip.AddrPort]bool{}
	for _, e := range s.wish.Endpoints {
		own[e.Address] = true
	}
	for _, b := range s.live.Backends {
		if !own[b.Address] {
			s.foreign = append(s.foreign, b.Address.String())
		}
	}
}

// compare notes whether the set differs from its target.
func (s *set) compare(now time.Time) {
	changes := plan.Diff(s.live.Backends, s.wanted)
	same := changes.Len() == 0 && (s.wish.Health == nil || s.wish.Health.Equal(s.live.HealthChecker))
	switch {
	case !same && s.dirty.IsZero():
		s.dirty = now
	case same:
		s.dirty, s.since, s.problem, s.refusals = time.Time{}, time.Time{}, nil, 0
		if s.applied == nil {
			s.applied = s.wanted
		}
		if s.repairs > 0 && now.Sub(s.repairAt) > betweenRepairs.last {
			s.repairs = 0
		}
	}
	s.health.follow(s, now)
}

// errCreating is the problem of a set that the layout creates.
var errCreating = errors.New("the backend set is being created")

// errNoSet names the sets of a load balancer.
func errNoSet(sizes map[string]int) error {
	if len(sizes) == 0 {
		return errors.New("the load balancer has no backend sets; create the set, with Terraform for example")
	}
	return fmt.Errorf("the load balancer has no backend set of this name; it has %s", list(byName(sizes)))
}

// fits reports whether a write of the set keeps the load balancer within its limit: another set may have to shrink first.
func (a *actor) fits(s *set) bool {
	total := len(s.wanted)
	for name, size := range a.current.Sets() {
		if name != s.name {
			total += size
		}
	}
	return total <= s.wish.Limits.Total || len(s.wanted) <= len(s.live.Backends)
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
