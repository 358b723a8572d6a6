package kube

import "k8s.io/client-go/tools/cache"

// tracker passes events on and remembers the objects it passed. An informer that is stopped drops what it had queued
// for a handler, so its store does not tell which objects the handler still believes in.
type tracker struct {
	handler cache.ResourceEventHandler
	told    map[cache.ObjectName]any
}

func newTracker(h cache.ResourceEventHandler) *tracker {
	return &tracker{handler: h, told: map[cache.ObjectName]any{}}
}

// OnAdd implements cache.ResourceEventHandler.
func (t *tracker) OnAdd(obj any, isInInitialList bool) {
	t.remember(obj)
	t.handler.OnAdd(obj, isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler.
func (t *tracker) OnUpdate(oldObj, newObj any) {
	t.remember(newObj)
	t.handler.OnUpdate(oldObj, newObj)
}

// OnDelete implements cache.ResourceEventHandler.
func (t *tracker) OnDelete(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		delete(t.told, name)
	}
	t.handler.OnDelete(obj)
}

// deleteAll deletes what is left, after the informer has ended.
func (t *tracker) deleteAll() {
	for name, obj := range t.told {
		delete(t.told, name)
		t.handler.OnDelete(obj)
	}
}

// remember leaves out what has no name: such an object never gets past the informer's store.
func (t *tracker) remember(obj any) {
	if name, err := cache.ObjectToName(obj); err == nil {
		t.told[name] = obj
	}
}
