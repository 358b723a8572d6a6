package bindings

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// AddHandlers registers event handlers that enqueue the bindings that a changed object affects:
//
//	a BackendSetBinding            all bindings of its backend set: another one may own it now; when it ends, or owns its set no longer,
//	                               also those of its namespace that are within its limit now
//	a Service, an EndpointSlice    the bindings of the Service
//	a Pod with readiness gates     the bindings of its Services
//	a record                       the bindings of its backend sets
func AddHandlers(i *informers.Informers, r *Reconciler, enqueue func(cache.ObjectName)) {
	enqueueNoted := func(name cache.ObjectName) {
		r.NoteEvent(name)
		enqueue(name)
	}
	i.Bindings.AddEventHandler(controller.TypedHandler(enqueue, func(b *v1alpha1.BackendSetBinding) []cache.ObjectName {
		return append(namesOf(informers.BindingsOfSet(i.Bindings, b.Spec.LoadBalancerID, b.Spec.BackendSetName)), nameOf(b))
	}))
	within := controller.TypedHandler(enqueue, func(b *v1alpha1.BackendSetBinding) []cache.ObjectName {
		return namesOf(r.evaluator.withinLimit(b.Namespace))
	})
	i.Bindings.AddEventHandler(controller.UnlessSame(makesNoRoom,
		cache.ResourceEventHandlerFuncs{UpdateFunc: within.OnUpdate, DeleteFunc: within.OnDelete}))
	ofService := func(service cache.ObjectName) []cache.ObjectName {
		return namesOf(informers.BindingsOfService(i.Bindings, service))
	}
	i.Services.AddEventHandler(controller.NameHandler(enqueueNoted, ofService))
	ofSlice := func(s *discoveryv1.EndpointSlice) []cache.ObjectName {
		return ofService(cache.ObjectName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
	}
	i.EndpointSlices.AddEventHandler(controller.UnlessSame(sameSlice, controller.TypedHandler(enqueueNoted, ofSlice)))
	ofPod := func(pod cache.ObjectName) []cache.ObjectName {
		var names []cache.ObjectName
		for _, s := range informers.SlicesOfPod(i.EndpointSlices, pod) {
			names = append(names, ofSlice(s)...)
		}
		return names
	}
	i.Pods.AddEventHandler(controller.UnlessSame(informers.SamePod, controller.NameHandler(enqueueNoted, ofPod)))
	i.ConfigMaps.AddEventHandler(controller.TypedHandler(enqueue, func(c *corev1.ConfigMap) []cache.ObjectName {
		record, ok := lbrecord.FromNamespace(c, r.p.Records)
		if !ok {
			return nil
		}
		var names []cache.ObjectName
		for _, o := range record.Objects {
			if o.Kind == lbrecord.BackendSet {
				names = append(names, namesOf(informers.BindingsOfSet(i.Bindings, record.LoadBalancer, o.Name))...)
			}
		}
		return names
	}))
}

// makesNoRoom reports whether an update of a binding makes no room for others of its namespace: owners of sets come first.
func makesNoRoom(old, current *v1alpha1.BackendSetBinding) bool {
	return old.Status.HeldSince == nil || current.Status.HeldSince != nil
}

// HandleAddresses registers an event handler that calls recheck with the addresses of an EndpointSlice that has changed: a Service may have
// an address that a backend set of another one still has.
func HandleAddresses(i *informers.Informers, recheck func(addresses []string)) {
	i.EndpointSlices.AddEventHandler(addressHandler(recheck))
}

func addressHandler(recheck func(addresses []string)) cache.ResourceEventHandler {
	check := func(obj any) {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			recheck(informers.AddressesOf(s))
		}
	}
	return controller.UnlessSame(sameSlice,
		cache.ResourceEventHandlerFuncs{AddFunc: check, UpdateFunc: func(_, current any) { check(current) }})
}

// OnReport returns the function that enqueues the bindings of a set whose report has changed.
func OnReport(i *informers.Informers, enqueue func(cache.ObjectName)) func(actor.Key) {
	return func(key actor.Key) {
		for _, name := range namesOf(informers.BindingsOfSet(i.Bindings, key.LoadBalancer, key.Set)) {
			enqueue(name)
		}
	}
}

func namesOf(bindings []*v1alpha1.BackendSetBinding) []cache.ObjectName {
	objectNames := make([]cache.ObjectName, 0, len(bindings))
	for _, b := range bindings {
		objectNames = append(objectNames, nameOf(b))
	}
	return objectNames
}

// sameSlice reports whether an update of a slice changes nothing that the program reads.
func sameSlice(old, current *discoveryv1.EndpointSlice) bool {
	return reflect.DeepEqual(old.Endpoints, current.Endpoints) && reflect.DeepEqual(old.Ports, current.Ports) &&
		reflect.DeepEqual(old.Labels, current.Labels)
}
