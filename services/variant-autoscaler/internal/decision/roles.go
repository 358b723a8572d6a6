package decision

import (
	"math"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// roleGroup returns the group of a role of the model of a group, or -1 if it has none that can be planned.
func (d *decider) roleGroup(g int, role snapshot.Role) int {
	first, end := d.snapshot.ModelGroups(g)
	for i := first; i < end; i++ {
		if d.snapshot.Groups[i].Role == role && d.isPlannable(i) {
			return i
		}
	}
	return -1
}

// hasPair reports whether a group of servers for whole requests stands beside prefill and decode servers, which keep the model from zero.
func (d *decider) hasPair(g int) bool {
	return d.snapshot.Groups[g].Role == snapshot.Aggregated && d.roleGroup(g, snapshot.Prefill) >= 0 && d.roleGroup(g, snapshot.Decode) >= 0
}

// keepRatio adds replicas so that the prefill replicas of a model for each of its decode replicas keep their bounds. It takes none away:
// both roles need theirs.
func (d *decider) keepRatio(g int) {
	in := &d.snapshot.Groups[g]
	if in.Role != snapshot.Prefill {
		return
	}
	decode, bounds := d.roleGroup(g, snapshot.Decode), in.PrefillRatio
	if decode < 0 || d.groups[g].frozen || d.groups[decode].frozen {
		return
	}
	prefills, decodes := float64(d.totalDesired(g)), float64(d.totalDesired(decode))
	switch {
	case bounds.Min > 0 && prefills < bounds.Min*decodes:
		d.addReplicas(g, replicasFor(bounds.Min*decodes))
	case bounds.Max > 0 && prefills > bounds.Max*decodes:
		d.addReplicas(decode, replicasFor(prefills/bounds.Max))
	}
}

// replicasFor returns the replicas that are at least a number, which is a product that is not exact.
func replicasFor(n float64) int {
	return int(math.Ceil(min(n, math.MaxInt32) - 1e-9)) // of rounding
}

// totalDesired returns the replicas of a group that are acted on.
func (d *decider) totalDesired(g int) int {
	n := 0
	for _, replicas := range d.desired[g] {
		n += replicas
	}
	return n
}

// addReplicas raises the cheapest variants of a group until they have n replicas together, as far as bounds and limits permit.
func (d *decider) addReplicas(g, n int) {
	variants := d.problem.Groups[g].Variants
	order := snapshot.SortedPositions(len(variants), func(i, j int) int { return compareCost(&variants[i], &variants[j]) })
	for _, i := range order {
		if d.snapshot.Groups[g].Variants[i].Problem != nil || d.variants[g][i].delayed {
			continue
		}
		for step := n - d.totalDesired(g); step > 0; step = min(step/2, n-d.totalDesired(g)) { // a limit may leave a part
			if most := d.variants[g][i].bounds.clampReplicas(d.desired[g][i] + step); most > d.desired[g][i] && d.raiseDesired(g, i, most,
				RatioBinding) {
				d.wanted[g][i] = max(d.wanted[g][i], most)
			}
		}
	}
}
