package actor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// maxSetWrites is the number of writes of backend sets for which a step of the layout waits: new and draining endpoints come first, but a
// long roll-out must not stop all changes of routes.
const maxSetWrites = 3

// WantedLayout is the wanted layout of a load balancer.
type WantedLayout struct {
	*lblayout.Wanted // nil: the load balancer is read, and its layout stays

	// Version changes with every part of the layout.
	Version string
}

// LayoutReport is the state of the layout of a load balancer. It must not be changed.
type LayoutReport struct {
	plan.Problem // of the whole load balancer

	LoadBalancer *ociapi.LoadBalancer // as it was read last
	Live         *lblayout.Live
	// Behind are the wanted objects that the load balancer does not have yet, with the reason and a message.
	Behind map[lblayout.Ref]plan.Problem
	// Gone are objects whose deletion is wanted, and that the load balancer does not have.
	Gone []lblayout.Ref

	wanted *WantedLayout // that it is about
}

// WantLayout replaces the wanted layout of a load balancer. It does nothing while this replica does not lead.
func (a *Actors) WantLayout(id string, w *WantedLayout) {
	a.tellActor(id, func(i *inbox) (changed bool) {
		before := i.layout
		if changed = before == nil || before.Version != w.Version || (before.Wanted == nil) != (w.Wanted == nil); changed {
			i.layout = w
		}
		return changed
	})
}

// DropLayout forgets the layout of a load balancer, and leaves it as it is.
func (a *Actors) DropLayout(id string) {
	a.dropFrom(id, func(i *inbox) { i.layout, i.report = nil, nil })
}

// LayoutReport returns the report of a layout. It returns nil until the load balancer was read. current reports whether it is about the
// newest WantedLayout.
func (a *Actors) LayoutReport(id string) (r *LayoutReport, current bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lbActor := a.actors[id]
	if lbActor == nil || lbActor.layout == nil || lbActor.report == nil {
		return nil, false
	}
	return lbActor.report, lbActor.report.wanted == lbActor.layout
}

// layoutWork is what an actor knows about the layout of its load balancer, and about the writes of it.
type layoutWork struct {
	desired   *WantedLayout
	live      *lblayout.Live // nil before the first read
	attempts  map[lblayout.Ref]*attempts
	setWrites int // writes of sets since the last step
}

// setDesired replaces the desired layout, and reports whether it is another one.
func (w *layoutWork) setDesired(desired *WantedLayout) bool {
	if w.desired == desired {
		return false
	}
	w.desired = desired
	for _, e := range w.attempts {
		e.retrySooner()
	}
	return true
}

// attemptsOf returns the attempts to write an object.
func (w *layoutWork) attemptsOf(r lblayout.Ref) *attempts {
	if w.attempts[r] == nil {
		w.attempts[r] = &attempts{}
	}
	return w.attempts[r]
}

// markDone remembers that a step has had its effect.
func (w *layoutWork) markDone(s *lblayout.Step) {
	w.setWrites = 0
	delete(w.attempts, s.Ref)
}

// hasLayout reports whether there is a layout to write.
func (w *layoutWork) hasLayout() bool {
	return w.desired != nil && w.desired.Wanted != nil && w.live != nil
}

// createsSet reports whether the layout has a backend set.
func (w *layoutWork) createsSet(set string) bool {
	return w.desired != nil && w.desired.Wanted != nil &&
		slices.ContainsFunc(w.desired.Sets, func(s lblayout.Set) bool { return s.Name == set })
}

// isSettled reports whether no step is left.
func (w *layoutWork) isSettled() bool {
	return !w.hasLayout() || len(lblayout.NextSteps(w.live, w.desired.Wanted)) == 0
}

// layoutIsDue reports whether a step has waited for enough writes of sets.
func (a *actor) layoutIsDue(now time.Time) bool {
	if a.layoutWork.setWrites < maxSetWrites {
		return false
	}
	ready, _ := a.readySteps(now)
	return len(ready) > 0
}

// readySteps returns the steps that may be tried now, and when another one may be.
func (a *actor) readySteps(now time.Time) (ready []lblayout.Step, next time.Time) {
	work := &a.layoutWork
	if !work.hasLayout() {
		return nil, next
	}
	for _, s := range lblayout.NextSteps(work.live, work.desired.Wanted) {
		if at := work.attemptsOf(s.Ref).retryAt; at.After(now) {
			next = earlierTime(next, at)
		} else if !a.waitsForBackends(&s) {
			ready = append(ready, s)
		}
	}
	return ready, next
}

// waitsForBackends reports whether a routing policy would begin to send requests to a set that has less than half of its backends: a set
// that drained and is needed again, or one that was created when there was no room.
func (a *actor) waitsForBackends(step *lblayout.Step) bool {
	if step.Policy == nil {
		return false
	}
	used := map[string]bool{}
	for _, r := range a.layoutWork.live.Policies[step.Name].Rules {
		used[r.Set] = true
	}
	for _, r := range step.Policy.Rules {
		s := a.sets[r.Set]
		if used[r.Set] || s == nil || s.target == nil || s.live == nil || s.dirty.IsZero() {
			continue
		}
		if 2*len(activeOf(s.live.Backends)) < len(s.target.Active) {
			return true
		}
	}
	return false
}

// decideLayout returns the first step of the layout, or nil and when one may be tried.
func (a *actor) decideLayout(now, next time.Time) (*write, time.Time) {
	ready, at := a.readySteps(now)
	if len(ready) == 0 {
		return nil, earlierTime(next, at)
	}
	s := &ready[0]
	if s.Kind == lbrecord.BackendSet && s.Action == lblayout.Create {
		s.Backends = a.firstBackends(s.Name, now)
	}
	return &write{Write: a.current.NewStep(s), name: s.Name, attempts: a.layoutWork.attemptsOf(s.Ref), step: s}, time.Time{}
}

// firstBackends returns the backends of a set that is created, as far as there is room for all.
func (a *actor) firstBackends(name string, now time.Time) []plan.Backend {
	s := a.sets[name]
	if s == nil || s.desired.Watching || s.desired.Emptying {
		return nil
	}
	target := plan.Build(plan.Input{Endpoints: s.desired.Endpoints, Drain: s.desired.Drain, Marks: plan.Marks{}, Now: now})
	others := 0
	for _, size := range a.current.SetSizes() {
		others += size
	}
	plan.FitLimits([]plan.Demand{{Target: target, Maximum: s.desired.Maximum}}, s.desired.Limits, others)
	return target.WantedBackends(nil, s.desired.weightOf)
}

// publishLayout replaces the report of the layout, if it has changed.
func (a *actor) publishLayout() {
	if a.layoutWork.desired == nil || a.current == nil && !a.reads.problem.IsSet() {
		return
	}
	r := a.reportLayout()
	a.mu.Lock()
	if a.inbox.layout == nil {
		a.mu.Unlock()
		return
	}
	same := a.inbox.report != nil && a.inbox.report.isSameAs(r)
	a.inbox.report = r
	a.mu.Unlock()
	if !same {
		a.p.Changed(Key{LoadBalancer: a.id})
	}
}

func (r *LayoutReport) isSameAs(other *LayoutReport) bool {
	return r.LoadBalancer == other.LoadBalancer && r.Problem == other.Problem && r.wanted == other.wanted &&
		maps.Equal(r.Behind, other.Behind) && slices.Equal(r.Gone, other.Gone)
}

func (a *actor) reportLayout() *LayoutReport {
	work := &a.layoutWork
	r := &LayoutReport{LoadBalancer: a.current, Live: work.live, Behind: map[lblayout.Ref]plan.Problem{}, wanted: work.desired}
	r.Problem = cmp.Or(a.reads.problem, a.writes.problem)
	if !work.hasLayout() {
		return r
	}
	for _, s := range lblayout.FindBehind(work.live, work.desired.Wanted) {
		ref := s.Ref
		r.Behind[ref] = plan.NewProblem(v1alpha1.ReasonPending, "%s %s waits for the load balancer", ref.Kind, ref.Name)
		if e := work.attempts[ref]; e != nil && e.problem.IsSet() {
			r.Behind[ref] = e.problem
		}
	}
	if a.pending == nil && !a.workRequestsUnknown && !a.loadBalancerStale { // no write in progress can make one of them
		for _, ref := range work.desired.Delete {
			if !work.live.HasObject(ref) {
				r.Gone = append(r.Gone, ref)
			}
		}
	}
	return r
}
