package nodepool

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/pkg/wake"
)

// Changes collects the names of changed nodes for Run.
type Changes struct {
	delay  time.Duration // for which changes are collected
	signal wake.Signal

	mu    sync.Mutex
	names sets.Set[string]
}

// NewChanges returns a collection without names.
func NewChanges(delay time.Duration) *Changes {
	return &Changes{delay: delay, signal: wake.NewSignal(), names: sets.New[string]()}
}

// AddNodes adds nodes. It never blocks.
func (c *Changes) AddNodes(names ...string) {
	if len(names) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.Insert(names...)
	c.signal.Send()
}

// Run calls handle with the nodes that were added, sorted, until ctx ends.
func (c *Changes) Run(ctx context.Context, handle func(nodes []string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.signal:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.delay):
		}
		c.mu.Lock()
		nodes := sets.List(c.names)
		clear(c.names)
		c.mu.Unlock()
		handle(nodes)
	}
}
