package kube

import "k8s.io/client-go/tools/cache"

// tracker forwards events to a handler and records the delivered objects. A stopped informer drops events that are still
// queued for the handler, so the store of the informer can differ from the state of the handler.
type tracker struct {
	handler   cache.ResourceEventHandler
	delivered map[cache.ObjectName]any
}

func newTracker(h cache.ResourceEventHandler) *tracker {
	return &tracker{handler: h, delivered: map[cache.ObjectName]any{}}
}

// OnAdd implements cache.ResourceEventHandler.
func (t *tracker) OnAdd(obj any, isInInitialList bool) {
	t.recordObject(obj)
	t.handler.OnAdd(obj, isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler.
func (t *tracker) OnUpdate(oldObj, newObj any) {
	t.recordObject(newObj)
	t.handler.OnUpdate(oldObj, newObj)
}

// OnDelete implements cache.ResourceEventHandler.
func (t *tracker) OnDelete(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		delete(t.delivered, name)
	}
	t.handler.OnDelete(obj)
}

// deleteAll calls OnDelete for all delivered objects. Call it after the informer has stopped.
func (t *tracker) deleteAll() {
	for name, obj := range t.delivered {
		delete(t.delivered, name)
		t.handler.OnDelete(obj)
	}
}

// recordObject ignores objects without a name, which the store of the informer rejects too.
func (t *tracker) recordObject(obj any) {
	if name, err := cache.ObjectToName(obj); err == nil {
		t.delivered[name] = obj
	}
}
