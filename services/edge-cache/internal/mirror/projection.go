package mirror

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
)

// Projections decide what the ingress controller sees: the endpoints of the pool, and the Secrets that its objects name. A projection is
// pure CPU work: it runs with the lock of its store.

// projectSlice returns the projection of EndpointSlices.
func (m *Mirror) projectSlice(key string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.FilterSlice(object, m.filterParams())
	if err != nil {
		return nil, nil, false, err
	}
	m.params.Metrics.AddFilteredEndpoints(result.Kept, result.Dropped)
	shown := result.Object
	if result.Kept == 0 {
		m.params.Adjuster.DeleteObject(key)
	} else if shown, err = m.adjustSlice(key, shown); err != nil {
		return nil, nil, false, err
	}
	return shown, result.Nodes, true, nil
}

// turnsUnready reports whether projectSlice would show an endpoint unready that clients see ready. A malformed slice shows nothing.
func (m *Mirror) turnsUnready(object []byte) bool {
	result, err := endpointfilter.FilterSlice(object, m.filterParams())
	if err != nil || result.Kept == 0 {
		return false
	}
	var slice discoveryv1.EndpointSlice
	if slice.Unmarshal(result.Object) != nil {
		return false
	}
	return m.params.Adjuster.TurnsUnready(slice.Namespace+"/"+slice.Name, &slice)
}

// filterParams returns the pool as it is now.
func (m *Mirror) filterParams() endpointfilter.Params {
	return endpointfilter.Params{Members: m.params.Pool.Members(), Unlocated: endpointfilter.Unlocated(m.params.PoolConfig.Unlocated)}
}

// adjustSlice decodes only what is left of a slice.
func (m *Mirror) adjustSlice(key string, object []byte) ([]byte, error) {
	var slice discoveryv1.EndpointSlice
	if err := slice.Unmarshal(object); err != nil {
		return nil, fmt.Errorf("decode endpoint slice: %w", err)
	}
	if !m.params.Adjuster.AdjustSlice(key, &slice) {
		return object, nil
	}
	adjusted, err := slice.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode endpoint slice: %w", err)
	}
	return adjusted, nil
}

// projectEndpoints returns the projection of Endpoints.
func (m *Mirror) projectEndpoints(_ string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.FilterEndpoints(object, m.filterParams())
	if err != nil {
		return nil, nil, false, err
	}
	m.params.Metrics.AddFilteredEndpoints(result.Kept, result.Dropped)
	return result.Object, result.Nodes, true, nil
}

// projectNode returns the projection of Nodes for a pool that is not a label: only members are visible.
func (m *Mirror) projectNode(key string, object []byte) ([]byte, []uint32, bool, error) {
	return object, nil, m.params.Pool.Members().Has(key), nil
}

// projectReferenced returns the projection of a kind of which only the objects are visible that others name.
func (m *Mirror) projectReferenced(kind allowlist.Filter) store.Projection {
	return func(key string, object []byte) ([]byte, []uint32, bool, error) {
		return object, nil, m.params.References.IsWanted(references.Target{Kind: kind, Key: key}), nil
	}
}
