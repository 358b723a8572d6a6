package sources

import (
	"cmp"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
)

const (
	// groupOME is the API group of OME.
	groupOME = "ome.io"
	// kindInferenceService is the kind of services of OME and of KServe.
	kindInferenceService = "InferenceService"
)

// keepLast gives a variant of a model that may have no replicas a minimum of one, if the controller of its target does not let it go to zero.
// OME's native components have at least one replica. Of the Deployments of an InferenceService, the number is that of its own autoscaler:
// where that follows this program, its bounds are those of the component.
func (c *collector) keepLast(v *Variant) {
	if v.Min > 0 || v.Problem != nil || c.params.MayStop == nil || !c.params.MayStop(v.Namespace, v.spec.Model) {
		return
	}
	if groupOf(v.Target.APIVersion) == groupOME {
		v.keepOne("OME keeps a replica of %s %s: for zero, use the deployment mode RawDeployment with minReplicas 0 and an autoscaler that follows this program",
			v.Target.Kind, v.Target.Name)
		return
	}
	owner := cmp.Or(controllerOf(c.world, v.Namespace, v.Target), &informers.Controller{})
	if owner.Kind == kindInferenceService && OwnershipOf(c.world, v.Namespace, v.Target).Follower == "" {
		v.keepOne("%s %s of group %q has the replicas of %s %s: for zero, set minReplicas of its component to 0, with an autoscaler that follows this program",
			owner.Kind, owner.Name, owner.Group, v.Target.Kind, v.Target.Name)
	}
}

func (v *Variant) keepOne(format string, args ...any) {
	v.Min = 1
	v.note(ZeroUnreachable, format, args...)
}
