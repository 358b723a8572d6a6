// Package endpointfilter removes the endpoints outside a node pool from encoded EndpointSlices and Endpoints.
//
// Input is the protobuf encoding of an object and the members of the pool. Output is the encoding of the same object with the endpoints of
// the pool, and the nodes that its endpoints name. An object without a remaining endpoint stays an object: a controller must see that its
// last endpoint left. The package never changes its input, and copies every other field as it is: conditions, hints, ports, unknown fields.
package endpointfilter

import (
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/pkg/protoscan"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// Fields of the messages.
const (
	sliceEndpoints   = 2<<3 | protoscan.Bytes
	endpointNodeName = 6<<3 | protoscan.Bytes
	subsets          = 2<<3 | protoscan.Bytes
	subsetAddresses  = 1<<3 | protoscan.Bytes
	subsetNotReady   = 2<<3 | protoscan.Bytes
	addressNodeName  = 4<<3 | protoscan.Bytes
)

const (
	serviceNameLabel   = "kubernetes.io/service-name"
	apiServerService   = "kubernetes"
	apiServerHomeSpace = "default"
)

// Unlocated is what happens to endpoints without a node name: endpoints outside the cluster, and slices made by hand.
type Unlocated string

const (
	KeepUnlocated Unlocated = "keep"
	DropUnlocated Unlocated = "drop"
)

// Params describes the pool.
type Params struct {
	Members   sets.Set[string] // names of nodes
	Unlocated Unlocated
}

// Result is an object as the pool sees it.
type Result struct {
	Object        []byte
	Nodes         []uint32 // sorted hashes of all nodes that endpoints name, inside and outside the pool
	Kept, Dropped int
}

// HashNode returns the hash of a node name in Result.Nodes. Two nodes with the same hash cost a superfluous filter run, no error.
func HashNode(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

// FilterSlice filters an EndpointSlice.
func FilterSlice(object []byte, p Params) (Result, error) {
	meta, err := wire.ParseMeta(wire.Protobuf, object)
	if err != nil {
		return Result{}, err
	}
	// Every pool reaches the API server, or knows that it does not.
	isAPIServer := meta.Namespace == apiServerHomeSpace && meta.Labels[serviceNameLabel] == apiServerService
	f := filter{params: p, nodeField: endpointNodeName, acceptAll: isAPIServer}
	f.Object, _, err = f.copyAccepted(object, sliceEndpoints)
	return f.completeResult(), err
}

// FilterEndpoints filters an Endpoints object. A subset without an address is removed: the API does not allow one.
func FilterEndpoints(object []byte, p Params) (Result, error) {
	meta, err := wire.ParseMeta(wire.Protobuf, object)
	if err != nil {
		return Result{}, err
	}
	f := filter{params: p, nodeField: addressNodeName, acceptAll: meta.Namespace == apiServerHomeSpace && meta.Name == apiServerService}
	f.Object = make([]byte, 0, min(len(object), 1024))
	fields := protoscan.Scan(object)
	for fields.Next() {
		if fields.Tag != subsets {
			f.Object = append(f.Object, fields.Encoding()...)
			continue
		}
		subset, addresses, err := f.copyAccepted(fields.Bytes, subsetAddresses, subsetNotReady)
		if err != nil {
			return Result{}, err
		}
		if addresses > 0 {
			f.Object = wire.AppendField(f.Object, subsets, subset)
		}
	}
	return f.completeResult(), fields.Err()
}

type filter struct {
	Result

	params    Params
	nodeField protoscan.Tag
	acceptAll bool
}

func (f *filter) completeResult() Result {
	slices.Sort(f.Nodes)
	f.Object, f.Nodes = slices.Clip(f.Object), slices.Clip(slices.Compact(f.Nodes))
	return f.Result
}

// copyAccepted copies a message without the endpoints outside the pool, and counts those that are left. Endpoints are the fields with one
// of the tags.
func (f *filter) copyAccepted(message []byte, tags ...protoscan.Tag) (out []byte, endpoints int, err error) {
	out = make([]byte, 0, min(len(message), 1024))
	fields := protoscan.Scan(message)
	for fields.Next() {
		if slices.Contains(tags, fields.Tag) {
			if accepted, err := f.acceptEndpoint(fields.Bytes); err != nil {
				return nil, 0, err
			} else if !accepted {
				continue
			}
			endpoints++
		}
		out = append(out, fields.Encoding()...)
	}
	return out, endpoints, fields.Err()
}

// acceptEndpoint decides on one endpoint.
func (f *filter) acceptEndpoint(endpoint []byte) (bool, error) {
	var node []byte
	fields := protoscan.Scan(endpoint)
	for fields.Next() {
		if fields.Tag == f.nodeField {
			node = fields.Bytes
		}
	}
	if fields.Err() != nil {
		return false, fields.Err()
	}
	accepted := f.params.Unlocated != DropUnlocated
	if len(node) > 0 {
		f.Nodes = append(f.Nodes, HashNode(string(node)))
		accepted = f.params.Members.Has(string(node))
	}
	accepted = accepted || f.acceptAll
	if accepted {
		f.Kept++
	} else {
		f.Dropped++
	}
	return accepted, nil
}
