// Package dependents indexes which InferenceServices depend on an object, so that a change to the object enqueues only those services.
package dependents

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Object identifies an object that services depend on: a Gateway, an Istio Gateway, an IngressClass, an InferencePool, the
// Service of an endpoint picker, or the routes of others for a host.
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
	IngressClass  = "IngressClass" // without a name: the default class may change
	Secret        = "Secret"       // of TLS, requested by the oldest Ingress
	Host          = "Host"         // routes of others for a host
)

// Index maps services to the objects that they use, and objects to the services that use them.
type Index struct {
	mu           sync.RWMutex
	dependencies map[cache.ObjectName][]Object
	dependents   map[Object]map[cache.ObjectName]struct{}
}

// New returns an empty Index.
func New() *Index {
	x := &Index{}
	x.Clear()
	return x
}

// Clear removes all services.
func (x *Index) Clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dependencies, x.dependents = map[cache.ObjectName][]Object{}, map[Object]map[cache.ObjectName]struct{}{}
}

// SetDependencies replaces the objects that a service uses. With nil it removes the service.
func (x *Index) SetDependencies(service cache.ObjectName, objects []Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.Equal(x.dependencies[service], objects) {
		return
	}
	for _, o := range x.dependencies[service] {
		if delete(x.dependents[o], service); len(x.dependents[o]) == 0 {
			delete(x.dependents, o)
		}
	}
	if delete(x.dependencies, service); len(objects) == 0 {
		return
	}
	x.dependencies[service] = slices.Clone(objects)
	for _, o := range objects {
		if x.dependents[o] == nil {
			x.dependents[o] = map[cache.ObjectName]struct{}{}
		}
		x.dependents[o][service] = struct{}{}
	}
}

// DependentsOf returns the services that use an object, in any order.
func (x *Index) DependentsOf(o Object) []cache.ObjectName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Collect(maps.Keys(x.dependents[o]))
}
