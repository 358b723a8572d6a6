package controller

import (
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// runtimeGracePeriod is how long a component that the specification stopped naming counts as removed in OME 1.3, where its serving runtime
// may declare it, too. Nothing in the cluster shows whether OME has processed the specification. With 70 services OME 1.2 was up to
// 40 s behind; 10 min are in proportion to 1 000 services.
const runtimeGracePeriod = 10 * time.Minute

// removedComponents tracks components that were removed from specifications. OME deletes their Services seconds or minutes later, and a
// data plane answers 500 for a route without its Service, so the route has to change first and must not change back. In OME 1.2 a runtime
// adds no components, so a removed component never counts again. A new leader does not have this state: if existing routes bypass a router,
// the previous leader may have changed them, so the router counts as removed from the start.
type removedComponents struct {
	// time of the removal by component; zero while the specification names the component
	serviceStates[map[isvc.Role]time.Time]
}

// bypassedRoles returns the router if the existing routes of a service lead to another component, although the router has a Service.
func bypassedRoles(in *plan.Input) []isvc.Role {
	live := in.Live[plan.Entry]
	if len(live) == 0 || slices.Contains(live, isvc.Router) {
		return nil
	}
	if _, err := backend.FindService(in.Services, in.Service, isvc.Router); err != nil {
		return nil
	}
	return []isvc.Role{isvc.Router}
}

// updateService updates the state from a specification. It returns the removed components, and the time until the first of them no longer
// counts as removed, 0 if none of them ever does. The components in bypassed count as removed when the service is new to this replica.
func (l *removedComponents) updateService(s *isvc.Service, bypassed []isvc.Role, now time.Time,
) (roles map[isvc.Role]bool, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	known := l.byName[name]
	if known == nil {
		known = map[isvc.Role]time.Time{}
		for _, r := range bypassed {
			known[r] = now
		}
		l.byName[name] = known
	}
	for _, r := range isvc.Roles {
		isRemoved, rest := countRemoved(known, s, r, now)
		if isRemoved && roles == nil {
			roles = map[isvc.Role]bool{}
		}
		if isRemoved {
			roles[r] = true
		}
		if rest > 0 && (next == 0 || rest < next) {
			next = rest
		}
	}
	return roles, next
}

// countRemoved updates the time of the removal of a component. It reports whether the component counts as removed, and for how long in
// OME 1.3.
func countRemoved(known map[isvc.Role]time.Time, s *isvc.Service, r isvc.Role, now time.Time) (isRemoved bool, rest time.Duration) {
	since, found := known[r]
	switch {
	case s.Components[r] != nil:
		known[r] = time.Time{}
		return false, 0
	case !found:
		return false, 0
	case since.IsZero():
		since = now
		known[r] = since
	}
	if !s.RuntimeComponents {
		return true, 0
	}
	if rest = runtimeGracePeriod - now.Sub(since); rest <= 0 {
		delete(known, r)
		return false, 0
	}
	return true, rest
}
