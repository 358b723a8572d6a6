package informers

import "strconv"

// Annotations by which a user of KEDA tells it to leave the target of a ScaledObject alone.
const (
	annotationPaused         = "autoscaling.keda.sh/paused"
	annotationPausedReplicas = "autoscaling.keda.sh/paused-replicas"
	annotationPausedScaleIn  = "autoscaling.keda.sh/paused-scale-in"
	annotationPausedScaleOut = "autoscaling.keda.sh/paused-scale-out"
)

// Pause is what KEDA does not do for a ScaledObject, because its annotations say so. It is comparable.
type Pause struct {
	All     bool   // it does nothing
	At      Number // but set this number of replicas
	In, Out bool   // it removes no replicas, and adds none
}

// readPause reads the annotations as KEDA does: one whose value is no boolean is true.
func readPause(f *fields) Pause {
	p := Pause{All: f.isPaused(annotationPaused), In: f.isPaused(annotationPausedScaleIn), Out: f.isPaused(annotationPausedScaleOut)}
	if f.value("metadata", "annotations", annotationPausedReplicas) != nil {
		n, err := strconv.ParseInt(f.annotation(annotationPausedReplicas), 10, 32)
		p.All, p.At = true, Number{Value: n, Set: err == nil && n >= 0}
	}
	return p
}

func (f *fields) isPaused(annotation string) bool {
	if f.value("metadata", "annotations", annotation) == nil {
		return false
	}
	is, err := strconv.ParseBool(f.annotation(annotation))
	return is || err != nil
}
