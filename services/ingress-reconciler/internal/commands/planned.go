package commands

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// replaceObjects returns the objects that exist after the program has reconciled all services: it adds the planned objects, and removes the
// objects that the plans no longer contain. A service that cannot be planned keeps its objects.
func (p *planner) replaceObjects(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	removed := map[identity]bool{}
	var planned []*unstructured.Unstructured
	names := p.observer.ServiceNames()
	slices.SortFunc(names, compareNames)
	for _, name := range names {
		r, err := p.planService(name)
		if err != nil {
			fmt.Fprintf(p.log, "%s: %s\n", name, err)
			continue
		}
		for l, stays := range r.unplannedObjects() {
			if !stays {
				removed[identityOf(l.Object)] = true
			}
		}
		for i := range r.objects {
			next := r.objects[i].Object.DeepCopy()
			next.SetCreationTimestamp(metav1.NewTime(time.Now())) // data planes prefer the older of two routes
			if live := r.findLive(&r.objects[i]); live != nil {
				removed[identityOf(live.Object)] = true // the planned version replaces it
				next.SetCreationTimestamp(live.Object.GetCreationTimestamp())
			}
			planned = append(planned, next)
		}
	}
	var result []*unstructured.Unstructured
	existing := map[identity]bool{}
	for _, u := range objects {
		if id := identityOf(u); !removed[id] {
			result = append(result, u)
			existing[id] = true
		}
	}
	for _, u := range planned {
		if existing[identityOf(u)] {
			fmt.Fprintf(p.log, "%s/%s: %s %s exists and has another owner: it stays\n", u.GetNamespace(), u.GetName(), u.GetKind(),
				u.GetName())
			continue
		}
		result = append(result, u)
	}
	return result
}
