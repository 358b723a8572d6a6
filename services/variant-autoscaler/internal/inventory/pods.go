package inventory

// countPods counts the pods of variants that hold cards. A pod that ends counts while the workload has no other one in its place: its
// cards are for that one, as in a rolling update.
func (b *builder) countPods() {
	ending, gated := make([]int64, len(b.uses)), make([]int64, len(b.uses))
	for i := range b.in.Pods {
		p := &b.in.Pods[i]
		switch {
		case p.Variant < 0 || p.Requests == Cards{} && !p.Claims:
		case p.Gated:
			gated[p.Variant]++
		case !p.Terminating:
			b.uses[p.Variant].Admitted++
			if p.Node != "" {
				b.uses[p.Variant].Placed++
			}
		case b.isReady(p.Node):
			ending[p.Variant]++
		}
	}
	for i := range b.uses {
		v, u := &b.in.Variants[i], &b.uses[i]
		wanted := v.Replicas * v.Shape.Pods
		u.Placed += min(ending[i], max(wanted-u.Placed, 0))
		if u.Admitted += min(ending[i], max(wanted-u.Admitted, 0)); len(u.Quotas) == 0 {
			u.Admitted = 0 // nothing admits them
		}
	}
	b.countReserved(gated)
}

// countReserved counts gated pods that have their quota, and wait for an admission check. The oldest variants of a LocalQueue come first.
func (b *builder) countReserved(gated []int64) {
	taken := map[*LocalQueue]Cards{}
	for i := range b.uses {
		v, u := &b.in.Variants[i], &b.uses[i]
		if len(u.Quotas) == 0 {
			continue
		}
		r, used := v.Shape.Resource, taken[v.Queue]
		pods := min(gated[i], max(v.Queue.Reserved[r]-used[r], 0)/v.Shape.Cards)
		u.Admitted += pods
		used[r] += pods * v.Shape.Cards
		taken[v.Queue] = used
	}
}

func (b *builder) isReady(node string) bool {
	n, known := b.position[node]
	return known && b.nodes[n].Ready
}
