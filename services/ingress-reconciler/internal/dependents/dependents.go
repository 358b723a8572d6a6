// Package dependents indexes which InferenceServices depend on an object, so that a change to the object enqueues only those services.
package dependents

import (
	"slices"

	"k8s.io/client-go/tools/cache"
)

// Object identifies an object that services depend on: a Gateway, an Istio Gateway, an IngressClass, an InferencePool, the
// Service of an endpoint picker, a Service with the name of a component, or the routes of others for a host.
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

// Index maps objects to the services that use them.
type Index struct{ services cache.Indexer }

// service has the objects that a service uses.
type service struct {
	name    cache.ObjectName
	objects []Object
}

const byObject = "object"

// New returns an empty Index.
func New() *Index {
	return &Index{services: cache.NewIndexer(
		func(obj any) (string, error) { return serviceOf(obj).name.String(), nil },
		cache.Indexers{byObject: func(obj any) (keys []string, err error) {
			for _, o := range serviceOf(obj).objects {
				keys = append(keys, o.key())
			}
			return keys, nil
		}},
	)}
}

func serviceOf(obj any) *service { return obj.(*service) } //nolint:forcetypeassert // the indexer has nothing else

func (o Object) key() string { return o.Kind + " " + o.Name.String() }

// Clear removes all services.
func (x *Index) Clear() { _ = x.services.Replace(nil, "") } // an indexer fails if its functions fail

// SetDependencies replaces the objects that a service uses, and reports whether it has added any. With nil it removes the service.
func (x *Index) SetDependencies(name cache.ObjectName, objects []Object) (added bool) {
	s := &service{name: name, objects: slices.Clone(objects)}
	if len(objects) == 0 {
		_ = x.services.Delete(s)
		return false
	}
	old, found, _ := x.services.Get(s)
	added = !found || slices.ContainsFunc(objects, func(o Object) bool { return !slices.Contains(serviceOf(old).objects, o) })
	_ = x.services.Update(s)
	return added
}

// DependentsOf returns the services that use an object, in any order.
func (x *Index) DependentsOf(o Object) []cache.ObjectName {
	found, _ := x.services.ByIndex(byObject, o.key())
	var names []cache.ObjectName
	for _, obj := range found {
		names = append(names, serviceOf(obj).name)
	}
	return names
}
