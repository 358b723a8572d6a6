package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// reported remembers the reason of each service's condition, for metrics.
type reported struct {
	mu   sync.Mutex
	last map[cache.ObjectName]string
}

// set takes the reason of a service.
func (r *reported) set(name cache.ObjectName, reason string, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], reason)
	r.last[name] = reason
}

// clear drops the reasons of all services.
func (r *reported) clear(m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.last {
		m.Moved(reason, "")
	}
	r.last = map[cache.ObjectName]string{}
}

func (r *reported) forget(name cache.ObjectName, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], "")
	delete(r.last, name)
}
