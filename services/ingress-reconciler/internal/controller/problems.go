package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// serviceStates stores a value for each service, from the start of a term.
type serviceStates[T any] struct {
	mu     sync.Mutex
	byName map[cache.ObjectName]T
}

// clearAll drops the values of all services.
func (s *serviceStates[T]) clearAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = map[cache.ObjectName]T{}
}

// forgetService drops the value of a service.
func (s *serviceStates[T]) forgetService(name cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

// problems stores the problem of each service that cannot be decoded.
type problems struct{ serviceStates[string] }

// setProblem records the problem of a service, and reports whether the problem is new.
func (p *problems) setProblem(name cache.ObjectName, problem string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isNew := p.byName[name] != problem
	p.byName[name] = problem
	return isNew
}
