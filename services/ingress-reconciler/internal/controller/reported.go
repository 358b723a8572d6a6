package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// reported remembers the reason of each service's condition, for metrics and to tell of a change once.
type reported struct {
	mu   sync.Mutex
	last map[cache.ObjectName]string
}

// set takes the reason of a service, and reports whether it is another one.
func (r *reported) set(name cache.ObjectName, reason string, m meter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last[name]
	r.last[name] = reason
	m.Moved(before, reason)
	return before != reason
}

func (r *reported) forget(name cache.ObjectName, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], "")
	delete(r.last, name)
}
