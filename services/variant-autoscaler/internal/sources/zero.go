package sources

import (
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// keepLastReplica gives a variant of a model that may have no replicas a minimum of one, if the controller of its target does not let it go
// to zero. OME's native components and LeaderWorkerSets have at least what minReplicas says, or one. OME leaves Deployments to another
// program that writes their replicas: an autoscaler that follows this program, or this program.
func (c *collector) keepLastReplica(v *Variant) {
	if v.Min > 0 || v.Problem != nil || c.params.CanStop == nil || !c.params.CanStop(v.Namespace, v.spec.Model) {
		return
	}
	const forZero = "for zero, use the deployment mode RawDeployment with the annotation " + informers.AnnotationOMEAutoscaler + ": " + informers.OMEAutoscalerExternal
	if groupOf(v.Target.APIVersion) == informers.GroupOME {
		v.keepOneReplica("OME keeps a replica of %s %s: %s", v.Target.Kind, v.Target.Name, forZero)
		return
	}
	if owner := controllerOf(c.world, v.Namespace, v.Target); owner != nil && owner.Kind == informers.KindInferenceService {
		c.keepServiceReplica(v, owner, forZero)
	}
}

// keepServiceReplica is keepLastReplica for the target of an InferenceService.
func (c *collector) keepServiceReplica(v *Variant, owner *informers.Controller, forZero string) {
	o := OwnershipOf(c.world, v.Namespace, v.Target)
	switch {
	case owner.IsOME() && v.Target.Kind == informers.LeaderWorkerSet:
		v.keepOneReplica("OME writes the replicas of %s %s from minReplicas of InferenceService %s: %s", v.Target.Kind, v.Target.Name,
			owner.Name, forZero)
	case o.Follower != "", c.params.Writes && o.Problem == nil:
	case owner.IsOME():
		v.keepOneReplica("InferenceService %s has the replicas of %s %s: %s, and an autoscaler that follows this program", owner.Name,
			v.Target.Kind, v.Target.Name, forZero)
	default:
		v.keepOneReplica("%s %s of group %q has the replicas of %s %s: for zero, let an autoscaler follow this program",
			owner.Kind, owner.Name, owner.Group, v.Target.Kind, v.Target.Name)
	}
}

func (v *Variant) keepOneReplica(format string, args ...any) {
	v.Min = 1
	v.addNote(snapshot.ZeroUnreachable, format, args...)
}
