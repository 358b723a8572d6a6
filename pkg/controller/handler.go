package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Handler returns an informer's handler that enqueues the names that an object concerns: of one that changes, those it
// concerned before, too. A resync, which changes nothing, is passed over. names must not change the object.
func Handler(enqueue func(cache.ObjectName), names func(obj any) []cache.ObjectName) cache.ResourceEventHandler {
	all := func(obj any) {
		for _, name := range names(obj) {
			enqueue(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: all,
		UpdateFunc: func(old, current any) {
			if same(old, current) {
				return
			}
			concerned := sets.New(names(old)...).Insert(names(current)...)
			for name := range concerned { // each once: it may be in hand before it would come again
				enqueue(name)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			all(obj)
		},
	}
}

// same reports whether two objects are one version of one object.
func same(a, b any) bool {
	first, ok := a.(metav1.Object)
	if !ok {
		return false
	}
	second, ok := b.(metav1.Object)
	return ok && first.GetResourceVersion() != "" && first.GetResourceVersion() == second.GetResourceVersion()
}
