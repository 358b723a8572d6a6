package trigger

import "k8s.io/client-go/tools/cache"

// Relevant reports whether a pass might decide otherwise after a change of an object. before is nil for an object that was created. It
// must be false for an object that is being deleted, and for changes of the status.
type Relevant func(before, after any) bool

// Handler returns the handler of the objects that declare variants. A deletion requests no pass: the next one is without the object.
func (t *Trigger) Handler(relevant Relevant) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if relevant(nil, obj) {
				t.Enqueue()
			}
		},
		UpdateFunc: func(before, after any) {
			if relevant(before, after) {
				t.Enqueue()
			}
		},
	}
}
