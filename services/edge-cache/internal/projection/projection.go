// Package projection decides what the ingress controller sees: the endpoints of the pool, and the Secrets that its objects name.
//
// Each function returns the projection of a store. A projection is pure CPU work: it runs with the lock of its store.
package projection

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
)

// members returns the names of the nodes of the pool.
type members interface{ Members() map[string]struct{} }

// Adjuster changes an EndpointSlice of the pool before it is shown: it holds endpoints of a silent node, and replaces dead addresses. It must
// neither block nor do I/O.
type Adjuster interface {
	Adjust(key string, slice *discoveryv1.EndpointSlice) (changed bool)
	// TurnsUnready reports whether Adjust would show an endpoint unready that clients see ready.
	TurnsUnready(key string, slice *discoveryv1.EndpointSlice) bool
	// DeleteObject forgets a slice without endpoints of the pool.
	DeleteObject(key string)
}

// Observer counts endpoints.
type Observer interface{ Filtered(kept, dropped int) }

// Endpoints are the arguments of the projections of endpoints.
type Endpoints struct {
	Members   members
	Unlocated endpointfilter.Unlocated
	Adjuster  Adjuster // may be nil
	Observer  Observer
}

// Slices returns the projection of EndpointSlices.
func (e Endpoints) Slices(key string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.Slice(object, e.pool())
	if err != nil {
		return nil, nil, false, err
	}
	e.count(result)
	shown := result.Object
	switch {
	case e.Adjuster == nil:
	case result.Kept == 0:
		e.Adjuster.DeleteObject(key)
	default:
		if shown, err = e.adjust(key, shown); err != nil {
			return nil, nil, false, err
		}
	}
	return shown, result.Nodes, true, nil
}

// TurnsUnready reports whether Slices would show an endpoint unready that clients see ready. A malformed slice shows nothing.
func (e Endpoints) TurnsUnready(object []byte) bool {
	if e.Adjuster == nil {
		return false
	}
	result, err := endpointfilter.Slice(object, e.pool())
	if err != nil || result.Kept == 0 {
		return false
	}
	var slice discoveryv1.EndpointSlice
	if slice.Unmarshal(result.Object) != nil {
		return false
	}
	return e.Adjuster.TurnsUnready(slice.Namespace+"/"+slice.Name, &slice)
}

// pool returns the pool as it is now.
func (e Endpoints) pool() endpointfilter.Params {
	return endpointfilter.Params{Members: e.Members.Members(), Unlocated: e.Unlocated}
}

func (e Endpoints) count(r endpointfilter.Result) {
	if e.Observer != nil {
		e.Observer.Filtered(r.Kept, r.Dropped)
	}
}

// adjust decodes only what is left of a slice.
func (e Endpoints) adjust(key string, object []byte) ([]byte, error) {
	var slice discoveryv1.EndpointSlice
	if err := slice.Unmarshal(object); err != nil {
		return nil, fmt.Errorf("decode endpoint slice: %w", err)
	}
	if !e.Adjuster.Adjust(key, &slice) {
		return object, nil
	}
	adjusted, err := slice.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode endpoint slice: %w", err)
	}
	return adjusted, nil
}

// Legacy returns the projection of Endpoints.
func (e Endpoints) Legacy(_ string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.Endpoints(object, e.pool())
	if err != nil {
		return nil, nil, false, err
	}
	e.count(result)
	return result.Object, result.Nodes, true, nil
}

// Nodes returns the projection of Nodes for a pool that is not a label: only members are visible.
func Nodes(m members) store.Projection {
	return func(key string, object []byte) ([]byte, []uint32, bool, error) {
		_, member := m.Members()[key]
		return object, nil, member, nil
	}
}

// Named returns the projection of a kind of which only the objects are visible that others name.
func Named(r *references.References, kind allowlist.Filter) store.Projection {
	return func(key string, object []byte) ([]byte, []uint32, bool, error) {
		return object, nil, r.Wanted(references.Target{Kind: kind, Key: key}), nil
	}
}
