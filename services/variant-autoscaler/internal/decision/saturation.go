package decision

import (
	"math"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// stuckAfter is how long replicas that do not serve yet are waited for before saturated servers get another one.
const stuckAfter = 10 * time.Minute

// serverUsage is what the servers without a profile of a group show together.
type serverUsage struct {
	now, seen, free int
	kv, queue       float64 // sums of what those that are free have in use
}

// applySaturation keeps and adds replicas without a profile, so that their servers stay within the thresholds of the administrator: one
// more if they are short, and as many as their load needs otherwise. It can only raise what the plan wants.
func (d *decider) applySaturation(g int) {
	in := &d.snapshot.Groups[g]
	if in.Saturation == nil || d.groups[g].frozen {
		return
	}
	order, c := d.measureServers(g)
	if c.seen > 0 {
		d.raiseInOrder(g, order, c.minReplicas(in, d.snapshot.Time))
	}
}

// measureServers returns the variants whose servers count, the cheapest first, and what their servers show.
func (d *decider) measureServers(g int) (order []int, c serverUsage) {
	variants := d.snapshot.Groups[g].Variants
	for i := range variants {
		v := &variants[i]
		if v.Profile != nil || v.Problem != nil {
			continue
		}
		order = append(order, i)
		c.now += v.Now
		if s := v.Spare; s != nil {
			c.seen, c.free = c.seen+s.Seen, c.free+s.Free
			c.kv, c.queue = c.kv+s.KV*float64(s.Free), c.queue+s.Queue*float64(s.Free)
		}
	}
	planned := d.problem.Groups[g].Variants
	slices.SortFunc(order, func(i, j int) int { return compareCost(&planned[i], &planned[j]) })
	return order, c
}

// minReplicas returns the least replicas.
func (c *serverUsage) minReplicas(g *snapshot.Group, at time.Time) int {
	t, free := g.Saturation, float64(c.free)
	if c.free == 0 || t.KVCache-c.kv/free < t.KVSpare || t.QueueLength-c.queue/free < t.QueueSpare {
		if c.seen < c.now && at.Sub(g.Zero.Changed) < stuckAfter {
			return c.now
		}
		return c.now + 1
	}
	need := max(replicasNeeded(c.kv, t.KVCache-t.KVSpare), replicasNeeded(c.queue, t.QueueLength-t.QueueSpare))
	return min(c.seen-c.free+int(min(need, float64(c.now))), c.now)
}

// replicasNeeded returns how many replicas have a load if each may have a part of it.
func replicasNeeded(load, each float64) float64 {
	switch {
	case load <= 0:
		return 0
	case each <= 0:
		return math.Inf(1)
	}
	return math.Ceil(load/each - 1e-9) // sums of parts are not exact
}

// raiseInOrder raises variants to the replicas that they have, and then the cheapest one that can have more, until they have n together.
func (d *decider) raiseInOrder(g int, order []int, n int) {
	variants := d.snapshot.Groups[g].Variants
	for _, i := range order {
		n -= d.desired[g][i]
	}
	for _, upTo := range []func(i int) int{
		func(i int) int { return variants[i].Now },
		func(i int) int { return max(variants[i].Now, d.desired[g][i]) + 1 },
	} {
		for _, i := range order {
			before := d.desired[g][i]
			if most := d.variants[g][i].bounds.clampReplicas(min(upTo(i), before+n)); n > 0 && most > before && d.raiseDesired(g, i, most,
				Saturated) {
				n -= most - before
				d.wanted[g][i] = max(d.wanted[g][i], most)
			}
		}
	}
}
