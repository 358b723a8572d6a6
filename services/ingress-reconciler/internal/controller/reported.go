package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// reported remembers the reason of each service's condition, for metrics, and the problem of each service that cannot be read.
type reported struct {
	mu       sync.Mutex
	last     map[cache.ObjectName]string
	problems map[cache.ObjectName]string
}

// set records the reason of a service that can be read.
func (r *reported) set(name cache.ObjectName, reason string, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], reason)
	r.last[name] = reason
	delete(r.problems, name)
}

// unreadable records why a service cannot be read, and reports whether the problem is new.
func (r *reported) unreadable(name cache.ObjectName, problem string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew := r.problems[name] != problem
	r.problems[name] = problem
	return isNew
}

// clear drops what is known of all services.
func (r *reported) clear(m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.last {
		m.Moved(reason, "")
	}
	r.last, r.problems = map[cache.ObjectName]string{}, map[cache.ObjectName]string{}
}

// forget drops what is known of a service that is gone.
func (r *reported) forget(name cache.ObjectName, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], "")
	delete(r.last, name)
	delete(r.problems, name)
}
