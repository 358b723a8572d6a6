package app

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/store"
)

// nodeChanges collects nodes whose slices must be shown again. A change of a Node arrives with the lock of its store, which must not wait for that of another one.
type nodeChanges struct {
	mu     sync.Mutex
	names  map[string]struct{}
	signal chan struct{}
}

func newNodeChanges() *nodeChanges {
	return &nodeChanges{names: map[string]struct{}{}, signal: make(chan struct{}, 1)}
}

func (n *nodeChanges) addNode(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = struct{}{}
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

func (n *nodeChanges) drainNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := slices.Sorted(maps.Keys(n.names))
	clear(n.names)
	return names
}

// adjustNodes tells the adjuster the state of Nodes of the pool.
func (c *caches) adjustNodes(changed map[string][]byte) {
	for name, object := range changed {
		if object == nil {
			c.adjuster.DeleteNode(name)
			continue
		}
		node, err := decodeNode(object)
		if err != nil {
			c.log.Warn("Ignored a malformed Node", zap.String("node", name), zap.Error(err))
			continue
		}
		if c.adjuster.UpdateNode(node) {
			c.nodes.addNode(name)
		}
	}
}

func decodeNode(object []byte) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, node.Unmarshal(object)
}

// runAdjuster shows slices again that holds or live addresses change, until ctx ends.
func (c *caches) runAdjuster(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { c.adjuster.Run(ctx, c) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.nodes.signal:
				for _, name := range c.nodes.drainNames() {
					c.ReprojectNode(name)
				}
			}
		}
	})
	all.Wait()
}

// ReprojectSlices implements liveaddress.Reprojector.
func (c *caches) ReprojectSlices(keys ...string) {
	c.forEachStore(allowlist.EndpointSlices, func(s *store.Store) {
		if _, err := s.ReprojectKeys(keys...); err != nil {
			c.log.Error("Could not adjust endpoint slices", zap.Error(err))
		}
	})
}

// ReprojectNode implements liveaddress.Reprojector.
func (c *caches) ReprojectNode(name string) {
	c.forEachStore(allowlist.EndpointSlices, func(s *store.Store) {
		if _, err := s.ReprojectNodes(endpointfilter.HashNode(name)); err != nil {
			c.log.Error("Could not adjust endpoint slices", zap.String("node", name), zap.Error(err))
		}
	})
}
