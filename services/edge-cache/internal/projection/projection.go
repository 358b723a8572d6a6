// Package projection decides what the ingress controller sees: the endpoints of the pool, and the Secrets that its objects name.
//
// Each function returns the projection of a store. A projection is pure CPU work: it runs with the lock of its store.
package projection

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
)

// members returns the names of the nodes of the pool.
type members interface{ Members() sets.Set[string] }

// Adjuster changes an EndpointSlice of the pool before it is shown: it holds endpoints of a silent node, and replaces dead addresses. It
// must neither block nor do I/O.
type Adjuster interface {
	AdjustSlice(key string, slice *discoveryv1.EndpointSlice) (changed bool)
	// TurnsUnready reports whether AdjustSlice would show an endpoint unready that clients see ready.
	TurnsUnready(key string, slice *discoveryv1.EndpointSlice) bool
	// DeleteObject forgets a slice without endpoints of the pool.
	DeleteObject(key string)
}

// EndpointProjection are the arguments of the projections of endpoints.
type EndpointProjection struct {
	Members   members
	Unlocated endpointfilter.Unlocated
	Adjuster  Adjuster
	Metrics   *metrics.Metrics
}

// ProjectSlice returns the projection of EndpointSlices.
func (e EndpointProjection) ProjectSlice(key string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.FilterSlice(object, e.filterParams())
	if err != nil {
		return nil, nil, false, err
	}
	e.Metrics.AddFilteredEndpoints(result.Kept, result.Dropped)
	shown := result.Object
	if result.Kept == 0 {
		e.Adjuster.DeleteObject(key)
	} else if shown, err = e.adjustSlice(key, shown); err != nil {
		return nil, nil, false, err
	}
	return shown, result.Nodes, true, nil
}

// TurnsUnready reports whether ProjectSlice would show an endpoint unready that clients see ready. A malformed slice shows nothing.
func (e EndpointProjection) TurnsUnready(object []byte) bool {
	result, err := endpointfilter.FilterSlice(object, e.filterParams())
	if err != nil || result.Kept == 0 {
		return false
	}
	var slice discoveryv1.EndpointSlice
	if slice.Unmarshal(result.Object) != nil {
		return false
	}
	return e.Adjuster.TurnsUnready(slice.Namespace+"/"+slice.Name, &slice)
}

// filterParams returns the pool as it is now.
func (e EndpointProjection) filterParams() endpointfilter.Params {
	return endpointfilter.Params{Members: e.Members.Members(), Unlocated: e.Unlocated}
}

// adjustSlice decodes only what is left of a slice.
func (e EndpointProjection) adjustSlice(key string, object []byte) ([]byte, error) {
	var slice discoveryv1.EndpointSlice
	if err := slice.Unmarshal(object); err != nil {
		return nil, fmt.Errorf("decode endpoint slice: %w", err)
	}
	if !e.Adjuster.AdjustSlice(key, &slice) {
		return object, nil
	}
	adjusted, err := slice.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode endpoint slice: %w", err)
	}
	return adjusted, nil
}

// ProjectEndpoints returns the projection of Endpoints.
func (e EndpointProjection) ProjectEndpoints(_ string, object []byte) ([]byte, []uint32, bool, error) {
	result, err := endpointfilter.FilterEndpoints(object, e.filterParams())
	if err != nil {
		return nil, nil, false, err
	}
	e.Metrics.AddFilteredEndpoints(result.Kept, result.Dropped)
	return result.Object, result.Nodes, true, nil
}

// MemberNodes returns the projection of Nodes for a pool that is not a label: only members are visible.
func MemberNodes(m members) store.Projection {
	return func(key string, object []byte) ([]byte, []uint32, bool, error) {
		return object, nil, m.Members().Has(key), nil
	}
}

// ReferencedObjects returns the projection of a kind of which only the objects are visible that others name.
func ReferencedObjects(r *references.Index, kind allowlist.Filter) store.Projection {
	return func(key string, object []byte) ([]byte, []uint32, bool, error) {
		return object, nil, r.IsWanted(references.Target{Kind: kind, Key: key}), nil
	}
}
