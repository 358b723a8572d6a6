package app

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/controller"
)

// queue passes names on to the controller of this term of leading. While another replica leads there is none, and nothing is
// missed: a term begins with all services.
type queue struct {
	current atomic.Pointer[controller.Controller]
}

// Enqueue has a service reconciled, if this replica leads.
func (q *queue) Enqueue(name cache.ObjectName) {
	if c := q.current.Load(); c != nil {
		c.Enqueue(name)
	}
}
