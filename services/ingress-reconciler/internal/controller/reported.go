package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// reported remembers what metrics count of each service, and the problem of each service that cannot be read.
type reported struct {
	mu       sync.Mutex
	last     map[cache.ObjectName]string
	counts   map[cache.ObjectName]counts
	problems map[cache.ObjectName]string
}

// counts are figures of one service.
type counts struct{ held, conflicts int }

// count records how many objects of a service wait out the hold, and how many of its claims are refused.
func (r *reported) count(name cache.ObjectName, held, conflicts int, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setCounts(name, counts{held, conflicts}, m)
}

func (r *reported) setCounts(name cache.ObjectName, next counts, m meter) {
	before := r.counts[name]
	if change := next.held - before.held; change != 0 {
		m.Held(change)
	}
	if change := next.conflicts - before.conflicts; change != 0 {
		m.Conflicting(change)
	}
	if r.counts[name] = next; next == (counts{}) {
		delete(r.counts, name)
	}
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
	for name := range r.counts {
		r.setCounts(name, counts{}, m)
	}
	r.last, r.counts, r.problems = map[cache.ObjectName]string{}, map[cache.ObjectName]counts{}, map[cache.ObjectName]string{}
}

// forget drops what is known of a service that is gone.
func (r *reported) forget(name cache.ObjectName, m meter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Moved(r.last[name], "")
	r.setCounts(name, counts{}, m)
	delete(r.last, name)
	delete(r.problems, name)
}
