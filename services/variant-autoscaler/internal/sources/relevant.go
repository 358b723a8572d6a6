package sources

import (
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// IsRelevant reports whether a change of an object triggers a pass. before is nil for an object that was created, after nil for one that
// was deleted.
//
//	change                                                 VariantAutoscaling           annotated object
//	created, annotated, no longer excluded                 yes                          yes
//	spec                                                   yes                          target, bounds, our annotations, KEDA's pauses
//	annotation force-reconcile                             yes                          no
//	status, metrics, other metadata                        no                           no
//	deleted, being deleted, no longer annotated, excluded  no: the next pass is enough  no
//
// Of other kinds, only a namespace that is no longer excluded triggers a pass: its objects are as if created.
func IsRelevant(before, after any) bool {
	switch now := after.(type) {
	case *informers.Declaration:
		old, _ := before.(*informers.Declaration)
		return declarationChanged(old, now)
	case *informers.Namespace:
		old, _ := before.(*informers.Namespace)
		return old != nil && old.Excluded && !now.Excluded
	}
	return false
}

func declarationChanged(before, after *informers.Declaration) bool {
	switch {
	case after.Spec == nil:
		return false
	case before == nil || before.Spec == nil || before.UID != after.UID: // a watch can miss that an object was replaced
		return true
	case after.Source == snapshot.VariantAutoscaling:
		return before.Generation != after.Generation || before.Force != after.Force
	}
	return *before.Spec != *after.Spec || before.Pause != after.Pause
}
