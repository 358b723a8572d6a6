package run

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/controller"
)

// Queue passes names to the controller of the current term. Between terms it drops them: a term begins with all objects.
type Queue struct {
	current atomic.Pointer[controller.Controller]
}

// Enqueue requests a reconcile of an object, if this replica leads.
func (q *Queue) Enqueue(name cache.ObjectName) {
	if c := q.current.Load(); c != nil {
		c.Enqueue(name)
	}
}

// Leads reports whether this replica leads.
func (q *Queue) Leads() bool { return q.current.Load() != nil }

// Lead runs a controller for one term. begin is called when Enqueue already reaches the controller, before the first
// reconcile: it should discard the state of earlier terms, and enqueue all objects.
func (q *Queue) Lead(ctx, lease context.Context, c *controller.Controller, begin func()) {
	q.current.Store(c)
	defer q.current.Store(nil)
	begin()
	c.Run(ctx, lease)
}
