// Package uses indexes which InferenceServices depend on an object, so that a change to the object enqueues only those services.
package uses

import (
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
	mu    sync.RWMutex
	by    map[cache.ObjectName][]Object
	users map[Object]map[cache.ObjectName]struct{}
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
	x.by, x.users = map[cache.ObjectName][]Object{}, map[Object]map[cache.ObjectName]struct{}{}
}

// Set replaces the objects that a service uses. With nil it removes the service.
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

// Users returns the services that use an object, in any order.
func (x *Index) Users(o Object) []cache.ObjectName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []cache.ObjectName
	for name := range x.users[o] {
		names = append(names, name)
	}
	return names
}
