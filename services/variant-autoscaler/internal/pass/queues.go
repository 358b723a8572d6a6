package pass

import (
	"errors"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// readQueues returns what the objects of Kueue say, and the LocalQueue of each variant. A variant that Kueue manages keeps its replicas
// while its LocalQueue is not known.
func (p *Passes) readQueues(
	read informers.ReadQueue, variants []*foundVariant, pods []inventory.Pod,
) (inventory.Kueue, []*inventory.LocalQueue) {
	all := p.p.World
	queues := make([]*inventory.LocalQueue, len(variants))
	if !all.ClusterQueues.Listed() || !all.ResourceFlavors.Listed() {
		excludeQueued(variants, pods)
		return inventory.Kueue{}, queues
	}
	used := false
	for i, v := range variants {
		if v.found.Queue == "" || v.found.Shape.Cards == 0 {
			continue
		}
		used = true
		var err error
		queues[i], err = read(cache.ObjectName{Namespace: v.Namespace, Name: v.found.Queue})
		if err != nil {
			v.SetProblem(snapshot.NewProblem(problemReason(err),
				"LocalQueue %s/%s, which the label kueue.x-k8s.io/queue-name names, is not known: %s", v.Namespace, v.found.Queue, err))
		}
	}
	if !used {
		return inventory.Kueue{}, queues
	}
	state := inventory.Kueue{CohortsUnknown: !all.Cohorts.Listed()}
	for _, q := range informers.ListAll[informers.QuotaOwner](all.ClusterQueues) {
		state.ClusterQueues = append(state.ClusterQueues, &q.QuotaOwner)
	}
	for _, q := range informers.ListAll[informers.QuotaOwner](all.Cohorts) {
		state.Cohorts = append(state.Cohorts, &q.QuotaOwner)
	}
	for _, f := range informers.ListAll[informers.Flavor](all.ResourceFlavors) {
		state.Flavors = append(state.Flavors, &f.Flavor)
	}
	return state, queues
}

// excludeQueued excludes variants that Kueue manages: it has marked their pod template or a pod. The label alone is without effect in a
// cluster without Kueue.
func excludeQueued(variants []*foundVariant, pods []inventory.Pod) {
	queued := make([]bool, len(variants))
	for i := range pods {
		if v := pods[i].Variant; v >= 0 {
			queued[v] = queued[v] || pods[i].Queued
		}
	}
	for i, v := range variants {
		if (queued[i] || v.found.Queued) && v.found.Shape.Cards > 0 {
			v.SetProblem(snapshot.NewProblem(snapshot.InventoryUnknown,
				"Kueue manages the workload, and ClusterQueues and ResourceFlavors of kueue.x-k8s.io/v1beta2 or v1beta1 cannot be listed: "+
					"grant list and watch of them (limiter.enabled of the chart), install a version of Kueue that serves them, or turn the limiter off"))
		}
	}
}

func problemReason(err error) string {
	switch {
	case errors.Is(err, informers.ErrQueueNotFound):
		return snapshot.QueueNotFound
	case errors.Is(err, informers.ErrTooManyQueues):
		return snapshot.LimitExceeded
	}
	return snapshot.InventoryUnknown
}
