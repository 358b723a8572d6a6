package sources

import (
	"cmp"
	"slices"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxPools is the number of InferencePools of a namespace that are looked at, the oldest first. It bounds the comparisons with the pods of
// each variant. Half is still ten times what a namespace usually has.
const maxPools = 256

// poolOf returns the InferencePool of the pods of a variant, empty if there is none. Of several, it is the oldest: it was there when the
// variant was set up.
func (c *collector) poolOf(v *Variant) string {
	if v.labels == nil {
		return ""
	}
	first := ""
	for _, pool := range c.poolsOf(v.Namespace) {
		switch {
		case len(pool.Selector) == 0 || !inventory.HasLabels(v.labels, pool.Selector):
		case pool.Name == first: // both versions of the API can have a pool
		case first == "":
			first = pool.Name
		default:
			v.addNote(snapshot.SeveralPools, "InferencePools %s and %s both select the pods: the load is that of %s; make the selectors disjoint", first,
				pool.Name, first)
			return first
		}
	}
	return first
}

func (c *collector) poolsOf(namespace string) []*informers.Pool {
	if c.pools == nil {
		c.pools = map[string][]*informers.Pool{}
		for _, reader := range []kit.Reader{c.world.InferencePools, c.world.AlphaInferencePools} {
			for _, p := range informers.ListAll[informers.Pool](reader) {
				c.pools[p.Namespace] = append(c.pools[p.Namespace], p)
			}
		}
		for _, pools := range c.pools {
			slices.SortFunc(pools, func(a, b *informers.Pool) int {
				return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
			})
		}
	}
	pools := c.pools[namespace]
	return pools[:min(len(pools), maxPools)]
}
