package sources

import (
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// obeyPause bounds a variant by the replicas that its target keeps while KEDA is told not to scale it: others of its model are planned
// beside them. A variant that can have none takes no part. It must not be the one that wakes its model.
func (c *collector) obeyPause(v *Variant) {
	a := autoscalerOf(c.world, v.targetOwner())
	if a == nil || !a.Follows || a.Pause == (informers.Pause{}) || v.Problem != nil {
		return
	}
	const remedy = "remove its annotations autoscaling.keda.sh/paused"
	v.Schedule = nil // KEDA obeys no bounds now
	if v.bindTo(a.Pause) {
		v.addNote(snapshot.Paused, "%s %s is paused, and keeps replicas of %s %s: %s", a.Source, a.Name, v.Target.Kind, v.Target.Name, remedy)
	} else {
		v.Min = 0
		v.rejectWith(snapshot.Paused, "%s %s is paused, and leaves %s %s without replicas: %s", a.Source, a.Name, v.Target.Kind, v.Target.Name, remedy)
	}
}

// bindTo sets the bounds of a variant to what a pause leaves it. It returns false if that is nothing.
func (v *Variant) bindTo(p informers.Pause) bool {
	keeps := v.Now
	if p.At.Set {
		keeps = int(min(p.At.Value, optimizer.MaxReplicas))
	}
	if p.All || p.Out {
		if keeps == 0 {
			return false
		}
		v.Min, v.Max = min(v.Min, keeps), keeps
	}
	if p.All || p.In {
		v.Min = max(v.Min, keeps)
	}
	if v.Max > 0 {
		v.Max = max(v.Max, v.Min)
	}
	return true
}
