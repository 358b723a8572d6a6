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
)

// AddHandlers registers event handlers that enqueue the bindings that a changed object affects:
//
//	a BackendSetBinding            all bindings of its backend set: another one may own it now
//	a Service, an EndpointSlice    the bindings of the Service
//	a Pod with readiness gates     the bindings of its Services
func AddHandlers(i *informers.Informers, r *Reconciler, enqueue func(cache.ObjectName)) {
	enqueueNoted := func(name cache.ObjectName) {
		r.NoteEvent(name)
		enqueue(name)
	}
	i.Bindings.AddEventHandler(controller.Handler(enqueue, func(obj any) []cache.ObjectName {
		b, ok := obj.(*v1alpha1.BackendSetBinding)
		if !ok {
			return nil
		}
		return append(namesOf(informers.BindingsOfSet(i.Bindings, b.Spec.LoadBalancerID, b.Spec.BackendSetName)), nameOf(b))
	}))
	ofService := func(service cache.ObjectName) []cache.ObjectName {
		return namesOf(informers.BindingsOfService(i.Bindings, service))
	}
	i.Services.AddEventHandler(controller.Handler(enqueueNoted, func(obj any) []cache.ObjectName {
		name, err := cache.ObjectToName(obj)
		if err != nil {
			return nil
		}
		return ofService(name)
	}))
	ofSlice := func(s *discoveryv1.EndpointSlice) []cache.ObjectName {
		return ofService(cache.ObjectName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
	}
	i.EndpointSlices.AddEventHandler(controller.Unless(sameSlice, controller.Handler(enqueueNoted, func(obj any) []cache.ObjectName {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			return ofSlice(s)
		}
		return nil
	})))
	i.Pods.AddEventHandler(controller.Unless(samePod, controller.Handler(enqueueNoted, func(obj any) []cache.ObjectName {
		name, err := cache.ObjectToName(obj)
		if err != nil {
			return nil
		}
		var names []cache.ObjectName
		for _, s := range informers.SlicesOfPod(i.EndpointSlices, name) {
			names = append(names, ofSlice(s)...)
		}
		return names
	})))
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
	return controller.Unless(sameSlice,
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

// samePod reports whether an update of a pod changes nothing that the program reads: of most pods, that is only their existence.
func samePod(old, current any) bool {
	a, ok := old.(*corev1.Pod)
	if !ok {
		return false
	}
	b, ok := current.(*corev1.Pod)
	return ok && a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.Spec, b.Spec) &&
		reflect.DeepEqual(a.Status, b.Status)
}

// sameSlice reports whether an update of a slice changes nothing that the program reads.
func sameSlice(old, current any) bool {
	a, ok := old.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	b, ok := current.(*discoveryv1.EndpointSlice)
	return ok && a.UID == b.UID && reflect.DeepEqual(a.Endpoints, b.Endpoints) && reflect.DeepEqual(a.Ports, b.Ports) &&
		reflect.DeepEqual(a.Labels, b.Labels)
}
