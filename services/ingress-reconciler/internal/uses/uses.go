// Package uses knows which services look at an object, so that a change of it concerns them and no others.
package uses

import (
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Object is what services look at: a Gateway, an IngressClass, an InferencePool, or the Service of an endpoint picker.
type Object struct {
	Kind string
	Name cache.ObjectName
}

// The kinds.
const (
	Gateway       = "Gateway"
	IstioGateway  = "IstioGateway"
	InferencePool = "InferencePool"
	Service       = "Service"
	IngressClass  = "IngressClass" // any: which one is the default may change
)

// Index knows who uses what.
type Index struct {
	mu    sync.RWMutex
	by    map[cache.ObjectName][]Object
	users map[Object]map[cache.ObjectName]struct{}
}

// New returns an Index of nothing.
func New() *Index {
	x := &Index{}
	x.Clear()
	return x
}

// Clear drops what all services use.
func (x *Index) Clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.by, x.users = map[cache.ObjectName][]Object{}, map[Object]map[cache.ObjectName]struct{}{}
}

// Set replaces what a service uses, nil for nothing.
func (x *Index) Set(service cache.ObjectName, objects []Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.Equal(x.by[service], objects) {
		return
	}
	for _, o := range x.by[service] {
		if delete(x.users[o], service); len(x.users[o]) == 0 {
			delete(x.users, o)
		}
	}
	if delete(x.by, service); len(objects) == 0 {
		return
	}
	x.by[service] = slices.Clone(objects)
	for _, o := range objects {
		if x.users[o] == nil {
			x.users[o] = map[cache.ObjectName]struct{}{}
		}
		x.users[o][service] = struct{}{}
	}
}

// Users returns the services that use an object, in no order.
func (x *Index) Users(o Object) []cache.ObjectName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []cache.ObjectName
	for name := range x.users[o] {
		names = append(names, name)
	}
	return names
}
