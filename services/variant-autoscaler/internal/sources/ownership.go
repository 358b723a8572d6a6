package sources

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Ownership says what else than this program writes the replicas of a target.
type Ownership struct {
	// Follower is an autoscaler that does what this program decides, empty if there is none. It writes the replicas.
	Follower string
	// Idle reports whether Follower is a HorizontalPodAutoscaler that does nothing while the target has no replicas.
	Idle bool
	// Problem says that something else scales the target, so that the decisions of this program have no effect. Nil: nothing does.
	Problem *snapshot.Problem
}

// OwnershipOf returns who writes the replicas of a target. An autoscaler that takes its replicas from elsewhere counts first, then one that
// follows: it may scale what a controller has made. Autoscalers are compared by kind and name, as the API version may be absent.
func OwnershipOf(world informers.Caches, namespace string, t snapshot.Target) Ownership {
	if a := autoscalerOf(world, informers.Owner{Namespace: namespace, Kind: t.Kind, Name: t.Name}); a != nil {
		name := fmt.Sprintf("%s %s", a.Source, a.Name)
		if a.Follows {
			return Ownership{Follower: name, Idle: a.IdleAtZero && !a.OfKEDA}
		}
		return Ownership{Problem: snapshot.NewProblem(snapshot.TargetOwnedByAutoscaler,
			"%s scales %s %s, and does not follow this program: delete it%s, or let it follow the metric wva_desired_replicas",
			name, t.Kind, t.Name, remedyOfOME(controllerOf(world, namespace, t)))}
	}
	if c := controllerOf(world, namespace, t); c != nil && !c.LeavesReplicas {
		return Ownership{Problem: controllerProblem(c, t)}
	}
	return Ownership{}
}

// controllerProblem returns the problem of a target whose replicas a controller writes.
func controllerProblem(c *informers.Controller, t snapshot.Target) *snapshot.Problem {
	switch {
	case c.IsOME() && t.Kind == informers.LeaderWorkerSet:
		return snapshot.NewProblem(snapshot.UnsupportedTarget,
			"OME writes the replicas of %s %s from minReplicas of InferenceService %s: set them there. With OME 1.3, you can use the deployment mode OMENative, "+
				"the autoscaler class External, and a variant for the InferenceReplica", t.Kind, t.Name, c.Name)
	case c.IsOME():
		return snapshot.NewProblem(snapshot.UnsupportedTarget,
			"OME has the replicas of %s %s: set the annotation %s: %s on InferenceService %s, and OME leaves them to this program",
			t.Kind, t.Name, informers.AnnotationOMEAutoscaler, informers.OMEAutoscalerExternal, c.Name)
	}
	return snapshot.NewProblem(snapshot.TargetOwnedByController,
		"%s %s of group %q controls %s %s, and would undo a change of its replicas: scale that object, or let an autoscaler follow the metric wva_desired_replicas",
		c.Kind, c.Name, c.Group, t.Kind, t.Name)
}

// remedyOfOME says how to delete an autoscaler of a target, where OME makes it again.
func remedyOfOME(c *informers.Controller) string {
	if c == nil || !c.IsOME() || c.LeavesReplicas {
		return ""
	}
	return fmt.Sprintf(" (OME does with the annotation %s: %s on InferenceService %s, if the autoscaler is OME's)",
		informers.AnnotationOMEAutoscaler, informers.OMEAutoscalerExternal, c.Name)
}

// autoscalerOf returns the autoscaler of a workload that counts, nil if there is none. The HorizontalPodAutoscaler that KEDA makes for a
// ScaledObject counts only without that.
func autoscalerOf(world informers.Caches, w informers.Owner) *informers.Declaration {
	all := informers.AutoscalersOf(world, w)
	if slices.ContainsFunc(all, func(d *informers.Declaration) bool { return d.Source == snapshot.ScaledObject }) {
		all = slices.DeleteFunc(all, func(d *informers.Declaration) bool { return d.OfKEDA })
	}
	if len(all) == 0 {
		return nil
	}
	follows := map[bool]int{true: 1}
	return slices.MinFunc(all, func(a, b *informers.Declaration) int {
		return cmp.Or(cmp.Compare(follows[a.Follows], follows[b.Follows]), cmp.Compare(sourceRank[a.Source], sourceRank[b.Source]),
			cmp.Compare(a.Name, b.Name))
	})
}

// controllerOf returns what controls a Deployment, a StatefulSet or a LeaderWorkerSet, such as an InferenceService of OME or KServe.
// Objects of other kinds are made to be scaled, whatever controls them: a DisaggregatedSetRoleScaler belongs to a DisaggregatedSet.
func controllerOf(world informers.Caches, namespace string, t snapshot.Target) *informers.Controller {
	reader := watchedReader(world, t)
	if reader == nil {
		return nil
	}
	w := informers.FindObject[informers.Workload](reader, cache.ObjectName{Namespace: namespace, Name: t.Name})
	if w == nil {
		return nil
	}
	return w.Controller
}

// watchedReader returns the cache of a kind of targets, nil if the program does not watch the kind.
func watchedReader(world informers.Caches, t snapshot.Target) kit.Reader {
	if t.APIVersion != targetVersions[t.Kind] {
		return nil
	}
	return map[string]kit.Reader{
		informers.Deployment: world.Deployments, informers.StatefulSet: world.StatefulSets,
		informers.LeaderWorkerSet: world.LeaderWorkerSets,
	}[t.Kind]
}
