package pass

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// limitToInventory adds what nodes have free for the pods of variants, and their quotas. A variant whose nodes or quotas are not known
// keeps its replicas.
func (p *Passes) limitToInventory(ctx context.Context, snap *snapshot.Snapshot, found *sources.Result) {
	variants := variantsByAge(snap, found)
	if !p.p.World.Nodes.Listed() {
		for _, v := range variants {
			if v.found.Shape.Cards == 0 && v.found.Claims == nil {
				continue // nodes would not limit it
			}
			v.SetProblem(snapshot.NewProblem(snapshot.InventoryUnknown, "the limiter is on, and nodes cannot be listed: grant list and watch of nodes (limiter.enabled of the chart), or turn the limiter off"))
		}
		return
	}
	in := &inventory.Input{Pods: podHoldings(p.p.World, variants)}
	read, end := p.p.LocalQueues(ctx)
	defer end()
	var queues []*inventory.LocalQueue
	in.Kueue, queues = p.readQueues(read, variants, in.Pods)
	requests := p.requestDevices(variants)
	in.Devices = p.readDevices(requests)
	for _, n := range informers.ListAll[informers.Node](p.p.World.Nodes) {
		if n.Allocatable != (inventory.Cards{}) || len(in.Devices.Slices) > 0 {
			in.Nodes = append(in.Nodes, &n.Node)
		}
	}
	for i, v := range variants {
		in.Variants = append(in.Variants, inventory.Variant{
			Namespace: v.Namespace, Shape: v.found.Shape, Replicas: int64(v.Now), Queue: queues[i], Devices: requests[i],
		})
	}
	applyInventory(snap, variants, inventory.Build(in))
}

// applyInventory adds an inventory to a snapshot.
func applyInventory(snap *snapshot.Snapshot, variants []*foundVariant, result *inventory.Result) {
	snap.Nodes, snap.Quotas = result.Sets, result.Quotas
	for i, v := range variants {
		switch usage := &result.Uses[i]; {
		case usage.Problem != nil:
			v.SetProblem(usage.Problem)
		case usage.Set < 0 && v.found.Claims != nil: // its devices are not known
		case usage.Set < 0:
			v.found.Notes = append(v.found.Notes, *snapshot.NewProblem(snapshot.NotLimited,
				"Nodes do not limit the variant, as its pod template requests no accelerators, or several kinds of them, or is not known: "+
					"request the cards of one resource"))
		default:
			v.Pods = &usage.Pods
		}
	}
}

// foundVariant is a variant of a snapshot, with what sources found.
type foundVariant struct {
	*snapshot.Variant

	found *sources.Variant
}

// variantsByAge returns the variants of a snapshot, the oldest first.
func variantsByAge(snap *snapshot.Snapshot, found *sources.Result) []*foundVariant {
	var variants []*foundVariant
	for g := range snap.Groups {
		for i := range snap.Groups[g].Variants {
			variants = append(variants, &foundVariant{Variant: &snap.Groups[g].Variants[i], found: &found.Groups[g].Variants[i]})
		}
	}
	slices.SortFunc(variants, func(a, b *foundVariant) int {
		return cmp.Or(a.found.Created.Compare(b.found.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return variants
}

// podHoldings returns what pods hold of nodes and quotas.
func podHoldings(world informers.Caches, variants []*foundVariant) []inventory.Pod {
	byOwner, byPod := map[informers.Owner]int{}, map[cache.ObjectName]int{}
	for i, v := range variants {
		for _, o := range v.found.Owners {
			byOwner[o] = i
		}
		for _, pod := range v.found.Pods {
			byPod[cache.ObjectName{Namespace: v.Namespace, Name: pod.Name}] = i
		}
	}
	var pods []inventory.Pod
	for _, pod := range informers.ListAll[informers.Pod](world.Pods) {
		h := pod.Holding()
		if h == nil {
			continue
		}
		held := inventory.Pod{Node: h.Node.Value(), Requests: h.Cards.Value(), Variant: -1, Terminating: h.Terminating, Queued: h.Queued,
			Gated: h.Gated, Claims: h.Claims}
		if i, found := byOwner[h.Owner.Value()]; found {
			held.Variant = i
		} else if i, found := byPod[cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}]; found {
			held.Variant = i
		}
		pods = append(pods, held)
	}
	return pods
}
