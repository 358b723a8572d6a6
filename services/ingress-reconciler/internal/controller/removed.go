package controller

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// removedFor is how long a component is taken to be removed that the specification does not name any more. One that is still
// there then is the runtime's.
const removedFor = 5 * time.Second

// removed remembers which components specifications have ceased to name. OME deletes their Services within milliseconds, and
// a data plane answers 500 for a route whose Service is gone: the route has to change before. A new leader does not know, and
// goes by what is there.
type removed struct {
	mu       sync.Mutex
	services map[cache.ObjectName]map[isvc.Role]time.Time // by component: until when it is removed; zero while it is named
}

// observe takes what a specification names, and returns the components that are removed and how long the first of them is.
func (l *removed) observe(s *isvc.Service, now time.Time) (roles map[isvc.Role]bool, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := cache.ObjectName{Namespace: s.Namespace, Name: s.Name}
	known := l.services[name]
	if known == nil {
		known = map[isvc.Role]time.Time{}
		l.services[name] = known
	}
	for _, r := range isvc.Roles {
		until, was := known[r]
		switch {
		case s.Components[r] != nil:
			known[r] = time.Time{}
			continue
		case !was:
			continue
		case until.IsZero():
			until = now.Add(removedFor)
			known[r] = until
		}
		rest := until.Sub(now)
		if rest <= 0 {
			delete(known, r)
			continue
		}
		if roles == nil {
			roles = map[isvc.Role]bool{}
		}
		roles[r] = true
		if next == 0 || rest < next {
			next = rest
		}
	}
	return roles, next
}

// clear drops what is known of all services.
func (l *removed) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.services = map[cache.ObjectName]map[isvc.Role]time.Time{}
}

// forget drops what is known of a service that is gone.
func (l *removed) forget(name cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.services, name)
}
