package controller

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Handler returns an event handler for an informer. It enqueues the names that names returns for an object, each once; for an update,
// those of the old object too. It ignores resyncs, where both objects have the same version. names must not modify the object.
func Handler(enqueue func(cache.ObjectName), names func(obj any) []cache.ObjectName) cache.ResourceEventHandler {
	all := func(names ...cache.ObjectName) {
		for name := range sets.New(names...) { // a worker might pick up the first of two
			enqueue(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { all(names(obj)...) },
		UpdateFunc: func(old, current any) {
			if sameVersion(old, current) {
				return
			}
			all(slices.Concat(names(old), names(current))...)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			all(names(obj)...)
		},
	}
}

// TypedHandler is a Handler for objects of type T, such as *corev1.Pod. Others have no names.
func TypedHandler[T any](enqueue func(cache.ObjectName), names func(T) []cache.ObjectName) cache.ResourceEventHandler {
	return Handler(enqueue, func(obj any) []cache.ObjectName {
		if typed, ok := obj.(T); ok {
			return names(typed)
		}
		return nil
	})
}

// NameHandler is a Handler for which only the name of the object matters.
func NameHandler(enqueue func(cache.ObjectName), names func(cache.ObjectName) []cache.ObjectName) cache.ResourceEventHandler {
	return Handler(enqueue, func(obj any) []cache.ObjectName {
		name, err := cache.ObjectToName(obj)
		if err != nil {
			return nil
		}
		return names(name)
	})
}

// UnlessSame returns a handler that ignores the updates of an object of type T for which same returns true.
func UnlessSame[T metav1.Object](same func(old, current T) bool, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return Unless(func(old, current any) bool {
		a, ok := old.(T)
		b, alsoOK := current.(T)
		return ok && alsoOK && a.GetUID() == b.GetUID() && same(a, b)
	}, h)
}

// Unless returns a handler that ignores the updates for which skip returns true.
func Unless(skip func(old, current any) bool, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: h.OnAdd, DeleteFunc: h.OnDelete,
		UpdateFunc: func(old, current any) {
			if !skip(old, current) {
				h.OnUpdate(old, current)
			}
		},
	}
}

// sameVersion reports whether two objects have the same, non-empty resource version.
func sameVersion(a, b any) bool {
	first, ok := a.(metav1.Object)
	if !ok {
		return false
	}
	second, ok := b.(metav1.Object)
	return ok && first.GetResourceVersion() != "" && first.GetResourceVersion() == second.GetResourceVersion()
}
