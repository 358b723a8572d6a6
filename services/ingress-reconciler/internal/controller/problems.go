package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// problems stores the problem of each service that cannot be decoded.
type problems struct {
	mu     sync.Mutex
	byName map[cache.ObjectName]string
}

// setProblem records the problem of a service, and reports whether the problem is new.
func (p *problems) setProblem(name cache.ObjectName, problem string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isNew := p.byName[name] != problem
	p.byName[name] = problem
	return isNew
}

// clearAll drops the problems of all services.
func (p *problems) clearAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName = map[cache.ObjectName]string{}
}

// forgetService drops the problem of a service that was deleted or can be decoded again.
func (p *problems) forgetService(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byName, name)
}
