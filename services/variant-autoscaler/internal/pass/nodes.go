package pass

import (
	"cmp"
	"context"
	"fmt"
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
			v.exclude(sources.InventoryUnknown, "the limiter is on, and nodes cannot be listed: grant list and watch of nodes (limiter.enabled of the chart), or turn the limiter off")
		}
		return
	}
	in := &inventory.Input{Pods: podHoldings(p.p.World, variants)}
	read, end := p.p.LocalQueues.BeginPass(ctx)
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
	for i := range result.Sets {
		snap.Nodes = append(snap.Nodes, buildNodeSet(&result.Sets[i]))
	}
	for i := range result.Quotas {
		snap.Quotas = append(snap.Quotas, buildQuota(&result.Quotas[i]))
	}
	for i, v := range variants {
		switch usage := &result.Uses[i]; {
		case usage.Problem != nil:
			v.exclude(usage.Problem.Reason, usage.Problem.Message)
		case usage.Set < 0 && v.found.Claims != nil: // its devices are not known
		case usage.Set < 0:
			v.found.Notes = append(v.found.Notes, snapshot.Problem{Reason: sources.NotLimited,
				Message: "Nodes do not limit the variant, as its pod template requests no accelerators, or several kinds of them, or is not known: " +
					"request the cards of one resource"})
		default:
			v.Pods = &snapshot.Pods{Set: usage.Set, Cards: v.found.Shape.Cards, Count: v.found.Shape.Pods, Placed: usage.Placed}
			if len(usage.Quotas) > 0 {
				v.Pods.Quotas, v.Pods.Admitted = usage.Quotas, usage.Admitted
			}
		}
	}
}

// foundVariant is a variant of a snapshot, with what sources found.
type foundVariant struct {
	*snapshot.Variant

	found *sources.Variant
}

func (v *foundVariant) exclude(reason, message string) {
	if v.Problem == nil {
		v.Problem = &snapshot.Problem{Reason: reason, Message: message}
	}
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
		if i, found := byOwner[h.Workload()]; found {
			held.Variant = i
		} else if i, found := byPod[cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}]; found {
			held.Variant = i
		}
		pods = append(pods, held)
	}
	return pods
}

// buildNodeSet returns a node set with a name for people.
func buildNodeSet(s *inventory.Set) snapshot.NodeSet {
	set := snapshot.NodeSet{
		Name: fmt.Sprintf("nodes with %s", s.Resource), Resource: s.Resource, Nodes: s.Nodes, Elastic: s.Elastic,
		Within: s.Within, Overlaps: s.Overlaps,
	}
	if len(s.Products) > 0 {
		set.Name += " (" + strings.Join(s.Products, ", ") + ")"
	}
	for _, f := range s.Free {
		set.Free = append(set.Free, snapshot.FreeNodes{Cards: f.Cards, Nodes: f.Nodes})
	}
	return set
}
