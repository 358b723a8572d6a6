package actor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.dev/services/backendset-syncer/internal/layout"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/record"
)

// passLimit is the number of writes of backend sets that a step of the layout lets pass: new endpoints and draining ones come first, but
// a long roll-out must not stop all changes of routes. With half of it, new pods wait behind more work requests; with double, a route
// waits for twice as many.
const passLimit = 3

// WantedLayout is the wanted layout of a load balancer.
type WantedLayout struct {
	*layout.Wanted // nil: the load balancer is read, and its layout stays

	// Version changes with every part of the layout.
	Version string
}

// layoutRequest is the newest wish of a layout.
type layoutRequest struct {
	*WantedLayout

	number int
}

// LayoutReport is the state of the layout of a load balancer. It must not be changed.
type LayoutReport struct {
	LoadBalancer *ociapi.LoadBalancer // as it was read last
	Live         *layout.Live
	// Behind are the wanted objects that the load balancer does not have yet, with the reason and a message.
	Behind map[layout.Ref]State
	// Reason and Message are the problem of the whole load balancer; empty: none.
	Reason, Message string
	// Gone are objects whose deletion is wanted, and that the load balancer does not have.
	Gone []layout.Ref

	number int // of the wish
}

// State is why an object is not as it is wanted.
type State struct{ Reason, Message string }

// WantLayout replaces the wanted layout of a load balancer. It does nothing while this replica does not lead.
func (a *Actors) WantLayout(id string, w *WantedLayout) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.term != nil {
		a.of(id).wantLayout(w)
	}
}

// DropLayout forgets the layout of a load balancer, and leaves it as it is.
func (a *Actors) DropLayout(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of := a.actors[id]; of != nil {
		a.end(id, of, of.dropLayout())
	}
}

// Layout returns the report of a layout. It returns nil until the load balancer was read. current reports whether it is about the
// newest wish.
func (a *Actors) Layout(id string) (r *LayoutReport, current bool) {
	a.mu.Lock()
	of := a.actors[id]
	a.mu.Unlock()
	if of == nil {
		return nil, false
	}
	return of.layoutReport()
}

func (i *inbox) wantLayout(w *WantedLayout) {
	i.mu.Lock()
	defer i.mu.Unlock()
	number := 1
	if i.layout != nil {
		if i.layout.Version == w.Version && (i.layout.Wanted == nil) == (w.Wanted == nil) {
			return
		}
		number = i.layout.number + 1
	}
	i.layout = &layoutRequest{WantedLayout: w, number: number}
	i.signal()
}

func (i *inbox) dropLayout() (idle bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.layout, i.report = nil, nil
	i.signal()
	return len(i.sets) == 0
}

func (i *inbox) layoutReport() (r *LayoutReport, current bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.layout == nil || i.report == nil {
		return nil, false
	}
	return i.report, i.report.number == i.layout.number
}

// frame is the layout of a load balancer as its actor knows it.
type frame struct {
	wish    *layoutRequest
	live    *layout.Live // nil before the first read
	efforts map[layout.Ref]*effort
	passed  int // writes of sets since the last step
}

// want replaces the wish, and reports whether it is another one.
func (f *frame) want(wish *layoutRequest) bool {
	if f.wish == wish {
		return false
	}
	f.wish = wish
	for _, e := range f.efforts {
		e.renew()
	}
	return true
}

// effort returns what is remembered about the writes of an object.
func (f *frame) effort(r layout.Ref) *effort {
	if f.efforts[r] == nil {
		f.efforts[r] = &effort{}
	}
	return f.efforts[r]
}

// done remembers that a step has had its effect.
func (f *frame) done(s *layout.Step) {
	f.passed = 0
	delete(f.efforts, s.Ref)
}

// active reports whether there is a layout to write.
func (f *frame) active() bool { return f.wish != nil && f.wish.Wanted != nil && f.live != nil }

// creates reports whether the layout has a backend set.
func (f *frame) creates(set string) bool {
	if f.wish == nil || f.wish.Wanted == nil {
		return false
	}
	for _, s := range f.wish.Sets {
		if s.Name == set {
			return true
		}
	}
	return false
}

// settled reports whether no step is left.
func (f *frame) settled() bool { return !f.active() || len(layout.Next(f.live, f.wish.Wanted)) == 0 }

// layoutIsDue reports whether a step has waited for enough writes of sets.
func (a *actor) layoutIsDue(now time.Time) bool {
	f := &a.frame
	return f.passed >= passLimit && f.active() && len(a.readySteps(now)) > 0
}

// readySteps returns the steps that may be tried now.
func (a *actor) readySteps(now time.Time) []layout.Step {
	f := &a.frame
	var ready []layout.Step
	for _, s := range layout.Next(f.live, f.wish.Wanted) {
		if e := f.efforts[s.Ref]; (e == nil || !e.retryAt.After(now)) && !a.waitsForBackends(&s) {
			ready = append(ready, s)
		}
	}
	return ready
}

// waitsForBackends reports whether a routing policy would send requests to a set, to which it sends none so far, before the set has half of
// its backends: a set that drained, and is needed again, or one that was created when there was no room.
func (a *actor) waitsForBackends(step *layout.Step) bool {
	if step.Policy == nil {
		return false
	}
	used := map[string]bool{}
	for _, r := range a.frame.live.Policies[step.Name].Rules {
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
	f := &a.frame
	if !f.active() {
		return nil, next
	}
	ready := a.readySteps(now)
	if len(ready) == 0 {
		for _, s := range layout.Next(f.live, f.wish.Wanted) {
			if at := f.effort(s.Ref).retryAt; at.After(now) {
				next = earliest(next, at)
			}
		}
		return nil, next
	}
	s := &ready[0]
	if s.Kind == record.BackendSet && s.Action == layout.Create {
		s.Backends = a.firstBackends(s.Name, now)
	}
	return &write{Write: a.current.NewStep(s), name: s.Name, effort: f.effort(s.Ref), step: s}, time.Time{}
}

// firstBackends returns the backends of a set that is created, as far as there is room for all.
func (a *actor) firstBackends(name string, now time.Time) []plan.Backend {
	s := a.sets[name]
	if s == nil || s.wish.Watching || s.wish.Emptying {
		return nil
	}
	target := plan.Build(plan.Input{Endpoints: s.wish.Endpoints, Drain: s.wish.Drain, Marks: plan.Marks{}, Now: now})
	others := 0
	for _, size := range a.current.Sets() {
		others += size
	}
	plan.FitLimits([]plan.Demand{{Target: target, Maximum: s.wish.Maximum}}, s.wish.Limits, others)
	return target.WantedBackends(nil, s.wish.weightOf)
}

// publishLayout replaces the report of the layout, if it has changed.
func (a *actor) publishLayout() {
	if a.frame.wish == nil || a.current == nil && a.reads.problem == nil {
		return
	}
	r := a.reportLayout()
	a.mu.Lock()
	if a.inbox.layout == nil {
		a.mu.Unlock()
		return
	}
	same := a.inbox.report != nil && a.inbox.report.same(r)
	a.inbox.report = r
	a.mu.Unlock()
	if !same {
		a.p.Changed(Key{LoadBalancer: a.id})
	}
}

func (r *LayoutReport) same(other *LayoutReport) bool {
	return r.LoadBalancer == other.LoadBalancer && r.Reason == other.Reason && r.Message == other.Message && r.number == other.number &&
		maps.Equal(r.Behind, other.Behind) && slices.Equal(r.Gone, other.Gone)
}

func (a *actor) reportLayout() *LayoutReport {
	f := &a.frame
	r := &LayoutReport{LoadBalancer: a.current, Live: f.live, Behind: map[layout.Ref]State{}, number: f.wish.number}
	for _, p := range []*problem{a.writes.problem, a.reads.problem} {
		if p != nil {
			r.Reason, r.Message = p.reason, p.message
		}
	}
	if !f.active() {
		return r
	}
	for ref := range layout.Behind(f.live, f.wish.Wanted) {
		state := State{Reason: reasonPending, Message: fmt.Sprintf("%s %s waits for the load balancer", ref.Kind, ref.Name)}
		if e := f.efforts[ref]; e != nil && e.problem != nil {
			state = State{Reason: e.problem.reason, Message: e.problem.message}
		}
		r.Behind[ref] = state
	}
	if a.pending == nil && !a.unlisted && !a.unread { // no write in progress can make one of them
		for _, ref := range f.wish.Delete {
			if !f.live.Has(ref) {
				r.Gone = append(r.Gone, ref)
			}
		}
	}
	return r
}
