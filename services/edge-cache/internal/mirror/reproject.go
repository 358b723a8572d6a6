package mirror

import (
	"encoding/json"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
)

// updateNodes tells the adjuster the state of changed Nodes.
func (m *Mirror) updateNodes(changed map[string][]byte) {
	for name, object := range changed {
		if object == nil {
			m.params.Adjuster.DeleteNode(name)
			continue
		}
		node := &corev1.Node{}
		if err := node.Unmarshal(object); err != nil {
			m.log.Warn("Ignored a malformed Node", zap.String("node", name), zap.Error(err))
			continue
		}
		if m.params.Adjuster.UpdateNode(node) {
			m.nodes.AddNodes(name)
		}
	}
}

// ReprojectSlices implements liveaddress.Reprojector.
func (m *Mirror) ReprojectSlices(keys ...string) {
	m.reproject(allowlist.EndpointSlices, func(s *store.Store) (int, error) { return s.ReprojectKeys(keys...) })
}

// ReprojectNode implements liveaddress.Reprojector.
func (m *Mirror) ReprojectNode(name string) {
	m.reproject(allowlist.EndpointSlices, func(s *store.Store) (int, error) { return s.ReprojectNodes(endpointfilter.HashNode(name)) })
}

// showNodes shows the slices with endpoints on some nodes again.
func (m *Mirror) showNodes(names []string) {
	for _, name := range names {
		m.ReprojectNode(name)
	}
}

// onNodesChange takes changes of the Nodes with the label of the pool.
func (m *Mirror) onNodesChange(changed map[string][]byte) {
	membership := make(map[string]bool, len(changed))
	for node, object := range changed {
		membership[node] = object != nil
	}
	m.updateNodes(changed)
	m.params.Pool.UpdateMembership(membership)
}

// onNodePoolChange reads the members from the status of the NodePool.
func (m *Mirror) onNodePoolChange(changed map[string][]byte) {
	for name, object := range changed {
		if object == nil {
			m.params.Pool.ReplaceMembers(nil)
			continue
		}
		var nodePool struct {
			Status struct {
				Nodes []string `json:"nodes"`
			} `json:"status"`
		}
		if err := json.Unmarshal(object, &nodePool); err != nil {
			m.log.Warn("Ignored a malformed NodePool", zap.String("nodePool", name), zap.Error(err))
			continue
		}
		m.params.Pool.ReplaceMembers(nodePool.Status.Nodes)
	}
}

// onReferencesChange shows what objects of a resource name now, and hides what no object names anymore.
func (m *Mirror) onReferencesChange(r allowlist.Resource, changed map[string][]byte) {
	for _, target := range m.params.References.UpdateObjects(r, changed) {
		m.reproject(target.Kind, func(s *store.Store) (int, error) { return s.ReprojectKeys(target.Key) })
		if m.params.References.IsWanted(target) {
			m.enqueueFetch(target)
		}
	}
}

// reproject projects objects of the stores with a filter again.
func (m *Mirror) reproject(f allowlist.Filter, project func(s *store.Store) (affected int, err error)) {
	for _, c := range m.collections {
		if c.resource.Filter != f {
			continue
		}
		affected, err := project(c.store)
		if err != nil {
			m.log.Error("Could not project objects again", zap.String("store", c.store.ID()), zap.Error(err))
		}
		m.log.Debug("Projected objects again", zap.String("store", c.store.ID()), zap.Int("objects", affected))
	}
}

// reprojectNodes shows what the change of some nodes affects.
func (m *Mirror) reprojectNodes(nodes []string) {
	hashes := make([]uint32, len(nodes))
	for i, n := range nodes {
		hashes[i] = endpointfilter.HashNode(n)
	}
	for _, f := range []allowlist.Filter{allowlist.EndpointSlices, allowlist.Endpoints} {
		m.reproject(f, func(s *store.Store) (int, error) { return s.ReprojectNodes(hashes...) })
	}
	if m.params.PoolConfig.Membership != config.NodePool {
		return // the API server sends the Nodes of the pool only
	}
	m.reproject(allowlist.Nodes, func(s *store.Store) (int, error) { return s.ReprojectKeys(nodes...) })
	for _, node := range nodes { // the store has forgotten those that were not in the pool
		if m.params.Pool.Members().Has(node) {
			m.enqueueFetch(references.Target{Kind: allowlist.Nodes, Key: node})
		}
	}
}
