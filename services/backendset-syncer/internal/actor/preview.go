package actor

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Preview is what an actor would do to a backend set now.
type Preview struct {
	Changes   plan.Changes
	Operation string // of the first request; empty: the set needs no write
	Next      time.Time
	Problem   string // why the set cannot be written, or is not complete
	Missing   bool   // the set cannot be read
}

// PreviewAll returns what an actor that has just begun would do to the backend sets of a load balancer.
func PreviewAll(lb *ociapi.LoadBalancer, wanted map[string]*Wanted, occupants Occupants, now time.Time) map[string]Preview {
	a := newActor(&Params{Log: zap.NewNop(), Clock: clock.RealClock{}, Occupants: occupants}, new(sync.Mutex), lb.ID)
	a.current = lb
	for name, w := range wanted {
		a.sets[name] = &set{name: name}
		a.sets[name].setDesired(w, now)
	}
	a.planSets(now)
	for _, s := range a.sets {
		if s.live != nil && s.desired.Watching && len(s.foreign) == 0 { // its binding would take it
			claimed := *s.desired
			claimed.Watching = false
			s.desired = &claimed
		}
	}
	a.planSets(now)
	previews := make(map[string]Preview, len(wanted))
	for name, s := range a.sets {
		previews[name] = a.previewSet(s)
	}
	return previews
}

func (a *actor) previewSet(s *set) Preview {
	if s.live == nil {
		return Preview{Problem: s.problem.Message, Missing: true}
	}
	if s.desired.Watching {
		return Preview{Problem: a.buildReport(s).Message, Missing: true}
	}
	p := Preview{Changes: plan.Diff(s.live.Backends, s.wanted), Next: s.target.Next}
	if r := a.buildReport(s); r.Excess > 0 {
		p.Problem = r.Message
	}
	switch w, err := a.current.NewWrite(s.live, s.wanted, s.desired.Health); {
	case err != nil:
		p.Problem = err.Error()
	case w != nil:
		p.Operation = w.Operation()
	}
	return p
}
